// SocketEndpoints: where a libzmq socket listens and whom it calls, with which keys.
//
// libzmq copies a socket's options when it binds or connects, so each endpoint gets its own.
//
// Ownership: owned by a Socket; borrows the libzmq socket, and owns the ipc paths and the admission of callers.
// Threads:   under its Socket's lock. No call blocks.
#ifndef PTPATHWAYS_TRANSPORT_SOCKET_ENDPOINTS_H_
#define PTPATHWAYS_TRANSPORT_SOCKET_ENDPOINTS_H_

#include <string>
#include <string_view>
#include <vector>

#include "csrc/base/status.h"
#include "csrc/transport/socket_options.h"

namespace pathways::transport {

class SocketEndpoints {
 public:
  // `options` are the Socket's own.
  explicit SocketEndpoints(const SocketOptions& options) : options_(options), curve_(options.curve) {}

  // Gives the socket, which was just made, the options that hold for all endpoints.
  Status Open(void* socket);
  // Removes the paths; to be called when the socket is closed.
  void Close();

  // The calls of Socket with these names.
  Result<std::string> Bind(const std::string& endpoint);
  void Unbind(const std::string& endpoint);
  Status Connect(const std::string& endpoint);
  Status ConnectAs(const std::string& endpoint, const std::string& peer, const std::string& identity);
  Status Disconnect(const std::string& endpoint);
  Status SetCurve(CurveOptions curve);

  bool has_connected() const { return has_connected_; }

 private:
  Status ApplyCurve();
  Status Apply(const std::string& endpoint, bool listens);
  Status SetOption(int option, int value, const char* name);
  Status SetOption(int option, std::string_view value, const char* name);

  const SocketOptions& options_;
  void* socket_ = nullptr;
  CurveOptions curve_;
  std::string zap_domain_;
  std::vector<std::string> bound_paths_;
  bool has_connected_ = false;
};

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_SOCKET_ENDPOINTS_H_
