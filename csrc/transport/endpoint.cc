#include "csrc/transport/endpoint.h"

namespace pathways::transport {

std::string WithHost(std::string_view endpoint, std::string_view host) {
  constexpr std::string_view kTcp = "tcp://";
  const size_t colon = endpoint.rfind(':');
  if (host.empty() || !endpoint.starts_with(kTcp) || colon < kTcp.size()) return std::string(endpoint);
  const bool bare_six = host.front() != '[' && host.find(':') != std::string_view::npos;
  std::string result(kTcp);
  result += bare_six ? "[" + std::string(host) + "]" : std::string(host);
  result += endpoint.substr(colon);
  return result;
}

}  // namespace pathways::transport
