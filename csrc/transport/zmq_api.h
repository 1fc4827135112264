// ZmqApi: the few functions of libzmq's stable C API that we call, found at run time in the copy that pyzmq brings.
//
// pyzmq's wheel carries libzmq but no header, so the declarations below are our own, against the documented 4.3 ABI.
// Python finds the library (pyzmq.libs/libzmq-*.so*) and gives its path once to LoadZmq.
//
// Ownership: the library handle and the one context of this process are leaked on purpose: ending a context waits for
//            its sockets, and a static destructor that waits can hang the exit of somebody else's interpreter.
//            Messages still queued at exit are therefore lost; a protocol that cares says goodbye and awaits an answer.
// Threads:   every function here may be called from any thread.
// Fork:      a child gets a fresh context on first use; sockets made before the fork are its parent's and unusable.
#ifndef PTPATHWAYS_TRANSPORT_ZMQ_API_H_
#define PTPATHWAYS_TRANSPORT_ZMQ_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "csrc/base/status.h"

namespace pathways::transport {

// zmq_msg_t: opaque, 64 bytes, aligned as a pointer.
struct alignas(void*) ZmqMessage {
  unsigned char opaque[64];
};

struct ZmqApi {
  using FreeFunction = void(void* data, void* hint);

  int (*error_number)();                 // zmq_errno
  const char* (*error_text)(int error);  // zmq_strerror
  void (*version)(int* major, int* minor, int* patch);
  int (*has)(const char* capability);
  void* (*context_new)();
  int (*context_set)(void* context, int option, int value);
  int (*context_term)(void* context);
  void* (*socket)(void* context, int type);
  int (*close)(void* socket);
  int (*set_option)(void* socket, int option, const void* value, size_t size);
  int (*get_option)(void* socket, int option, void* value, size_t* size);
  int (*bind)(void* socket, const char* endpoint);
  int (*unbind)(void* socket, const char* endpoint);
  int (*connect)(void* socket, const char* endpoint);
  int (*disconnect)(void* socket, const char* endpoint);
  int (*monitor)(void* socket, const char* endpoint, int events);
  int (*message_init)(ZmqMessage*);
  int (*message_init_size)(ZmqMessage*, size_t size);
  int (*message_init_data)(ZmqMessage*, void* data, size_t size, FreeFunction* free, void* hint);
  int (*message_close)(ZmqMessage*);
  int (*message_move)(ZmqMessage* to, ZmqMessage* from);
  void* (*message_data)(ZmqMessage*);
  size_t (*message_size)(const ZmqMessage*);
  int (*message_more)(const ZmqMessage*);
  int (*message_get)(const ZmqMessage*, int property);
  const char* (*message_gets)(const ZmqMessage*, const char* property);  // nullptr: it has none such
  int (*message_send)(ZmqMessage*, void* socket, int flags);
  int (*message_receive)(ZmqMessage*, void* socket, int flags);
  int (*curve_keypair)(char* public_key_z85, char* secret_key_z85);  // 41 bytes each, ending in zero
  int (*curve_public)(char* public_key_z85, const char* secret_key_z85);
  uint8_t* (*z85_decode)(uint8_t* data, const char* text);
  char* (*z85_encode)(char* text, const uint8_t* data, size_t size);
};

// Constants of the C API, by their documented numbers.
namespace zmq {
inline constexpr int kPair = 0, kDealer = 5, kRouter = 6;
inline constexpr int kDontWait = 1, kSendMore = 2;
inline constexpr int kPollIn = 1, kPollOut = 2;
inline constexpr int kContextMaxSockets = 2;
inline constexpr int kRoutingId = 5, kFd = 14, kEvents = 15, kLinger = 17, kReconnectInterval = 18,
                     kReconnectIntervalMax = 21, kMaxMessageSize = 22, kSendHwm = 23, kReceiveHwm = 24,
                     kLastEndpoint = 32, kRouterMandatory = 33, kIpv6 = 42, kCurveServer = 47, kCurvePublicKey = 48,
                     kCurveSecretKey = 49, kCurveServerKey = 50, kZapDomain = 55, kRouterHandover = 56,
                     kConnectRoutingId = 61, kHandshakeInterval = 66, kHeartbeatInterval = 75, kHeartbeatTtl = 76,
                     kHeartbeatTimeout = 77, kConnectTimeout = 79;
inline constexpr int kMessageSourceFd = 2;
inline constexpr int kEventConnected = 0x0001, kEventAccepted = 0x0020, kEventClosed = 0x0080,
                     kEventDisconnected = 0x0200, kEventHandshakeFailedNoDetail = 0x0800,
                     kEventHandshakeSucceeded = 0x1000, kEventHandshakeFailedProtocol = 0x2000,
                     kEventHandshakeFailedAuth = 0x4000;
inline constexpr int kEfsm = 156384712 + 51, kEterm = 156384712 + 53;
}  // namespace zmq

// Loads libzmq from `path` and checks that it is 4.3 or newer with every function above. Calling again with the same
// path is a no-op; with another path, or when the file does not serve, an error that says which file and what to do.
Status LoadZmq(const std::string& path);

// True once LoadZmq has succeeded.
bool ZmqLoaded();

// The loaded table. Calling this before LoadZmq succeeded is a bug of ours and aborts.
const ZmqApi& Zmq();

// The context all sockets of this process share, made on first use. It has one I/O thread, which moves more than 1
// GB/s.
Result<void*> ZmqContext();

// `what: <libzmq's reason>` for the calling thread's last libzmq error, with the nearest code.
Status ZmqError(const std::string& what);
Status ZmqErrorFrom(int error, const std::string& what);

}  // namespace pathways::transport

#endif  // PTPATHWAYS_TRANSPORT_ZMQ_API_H_
