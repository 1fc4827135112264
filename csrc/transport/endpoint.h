// Endpoints as texts: what others are told where a socket was bound.
//
// Ownership: values. Threads: any.
#ifndef PTPATHWAYS_TRANSPORT_ENDPOINT_H_
#define PTPATHWAYS_TRANSPORT_ENDPOINT_H_

#include <string>
#include <string_view>

namespace pathways::transport {

// A tcp endpoint with another host and its own port: ("tcp://0.0.0.0:7450", "10.0.0.1") is "tcp://10.0.0.1:7450". An
// IPv6 address is put in brackets. Other endpoints, and any with an empty `host`, come back as they are.
std::string WithHost(std::string_view endpoint, std::string_view host);

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_ENDPOINT_H_
