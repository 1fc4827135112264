#include "csrc/transport/zmq_api.h"

#include <dlfcn.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "csrc/base/thread_annotations.h"

namespace pathways::transport {
namespace {

// Sockets are cheap until opened: one per peer on a worker's data plane, plus a monitor pair for each.
constexpr int kMaxSockets = 16384;

struct Library {
  std::mutex mutex;
  std::string path PW_GUARDED_BY(mutex);
  // Written once under mutex, then read freely:
  ZmqApi api{};
  std::atomic<bool> loaded{false};
  std::atomic<void*> context{nullptr};
};

Library& TheLibrary() {
  static Library* library = new Library;  // leaked: see the header
  return *library;
}

void ForgetContextInChild() {
  // The parent's I/O threads do not exist here, so its context can only hang.
  TheLibrary().context.store(nullptr, std::memory_order_relaxed);
}

template <typename F>
bool Resolve(void* handle, const char* name, F** function) {
  *function = reinterpret_cast<F*>(dlsym(handle, name));
  return *function != nullptr;
}

// The name of the first missing symbol, or nullptr.
const char* ResolveAll(void* handle, ZmqApi* api) {
#define PW_RESOLVE_(field, symbol) \
  if (!Resolve(handle, symbol, &api->field)) return symbol
  PW_RESOLVE_(error_number, "zmq_errno");
  PW_RESOLVE_(error_text, "zmq_strerror");
  PW_RESOLVE_(version, "zmq_version");
  PW_RESOLVE_(has, "zmq_has");
  PW_RESOLVE_(context_new, "zmq_ctx_new");
  PW_RESOLVE_(context_set, "zmq_ctx_set");
  PW_RESOLVE_(context_term, "zmq_ctx_term");
  PW_RESOLVE_(socket, "zmq_socket");
  PW_RESOLVE_(close, "zmq_close");
  PW_RESOLVE_(set_option, "zmq_setsockopt");
  PW_RESOLVE_(get_option, "zmq_getsockopt");
  PW_RESOLVE_(bind, "zmq_bind");
  PW_RESOLVE_(unbind, "zmq_unbind");
  PW_RESOLVE_(connect, "zmq_connect");
  PW_RESOLVE_(disconnect, "zmq_disconnect");
  PW_RESOLVE_(monitor, "zmq_socket_monitor");
  PW_RESOLVE_(message_init, "zmq_msg_init");
  PW_RESOLVE_(message_init_size, "zmq_msg_init_size");
  PW_RESOLVE_(message_init_data, "zmq_msg_init_data");
  PW_RESOLVE_(message_close, "zmq_msg_close");
  PW_RESOLVE_(message_move, "zmq_msg_move");
  PW_RESOLVE_(message_data, "zmq_msg_data");
  PW_RESOLVE_(message_size, "zmq_msg_size");
  PW_RESOLVE_(message_more, "zmq_msg_more");
  PW_RESOLVE_(message_get, "zmq_msg_get");
  PW_RESOLVE_(message_gets, "zmq_msg_gets");
  PW_RESOLVE_(message_send, "zmq_msg_send");
  PW_RESOLVE_(message_receive, "zmq_msg_recv");
  PW_RESOLVE_(curve_keypair, "zmq_curve_keypair");
  PW_RESOLVE_(curve_public, "zmq_curve_public");
  PW_RESOLVE_(z85_decode, "zmq_z85_decode");
  PW_RESOLVE_(z85_encode, "zmq_z85_encode");
#undef PW_RESOLVE_
  return nullptr;
}

}  // namespace

Status LoadZmq(const std::string& path) {
  Library& library = TheLibrary();
  std::lock_guard lock(library.mutex);
  if (library.loaded.load(std::memory_order_relaxed)) {
    if (path == library.path) return OkStatus();
    return FailedPrecondition("libzmq is already loaded from " + library.path + "; got " + path +
                              "; load one library per process");
  }
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    return NotFound("cannot load libzmq from '" + path + "': " + (reason != nullptr ? reason : "no reason given") +
                    "; install pyzmq, whose wheel carries it as pyzmq.libs/libzmq-*.so*");
  }
  ZmqApi api{};
  if (const char* missing = ResolveAll(handle, &api)) {
    dlclose(handle);
    return FailedPrecondition("'" + path + "' has no function " + missing +
                              "; libzmq 4.3 or newer is required; upgrade pyzmq");
  }
  int major = 0, minor = 0, patch = 0;
  api.version(&major, &minor, &patch);
  if (major != 4 || minor < 3) {
    dlclose(handle);
    return FailedPrecondition("libzmq 4.3 or newer of the 4 series is required, got " + std::to_string(major) + "." +
                              std::to_string(minor) + "." + std::to_string(patch) + " from '" + path +
                              "'; upgrade pyzmq");
  }
  pthread_atfork(nullptr, nullptr, &ForgetContextInChild);
  library.api = api;
  library.path = path;
  library.loaded.store(true, std::memory_order_release);
  return OkStatus();
}

bool ZmqLoaded() { return TheLibrary().loaded.load(std::memory_order_acquire); }

const ZmqApi& Zmq() {
  static const ZmqApi& api = [&]() -> const ZmqApi& {
    if (!ZmqLoaded()) {
      std::fputs("ptpathways: transport used before LoadZmq\n", stderr);
      std::abort();
    }
    return TheLibrary().api;
  }();
  return api;
}

Result<void*> ZmqContext() {
  Library& library = TheLibrary();
  if (void* context = library.context.load(std::memory_order_acquire)) return context;
  if (!ZmqLoaded()) {
    return FailedPrecondition("libzmq is not loaded; call LoadZmq with the path of pyzmq's library first");
  }
  std::lock_guard lock(library.mutex);
  if (void* context = library.context.load(std::memory_order_relaxed)) return context;
  void* context = library.api.context_new();
  if (context == nullptr) return ZmqError("cannot create a libzmq context");
  if (library.api.context_set(context, zmq::kContextMaxSockets, kMaxSockets) != 0) {
    Status status = ZmqError("cannot configure the libzmq context");
    library.api.context_term(context);
    return status;
  }
  library.context.store(context, std::memory_order_release);
  return context;
}

Status ZmqErrorFrom(int error, const std::string& what) {
  Code code = Code::kInternal;
  switch (error) {
    case EAGAIN:
    case EMFILE:
    case ENFILE:
    case ENOMEM:
      code = Code::kResourceExhausted;
      break;
    case EHOSTUNREACH:
    case ENOENT:
      code = Code::kNotFound;
      break;
    case EINVAL:
    case ENODEV:
    case ENAMETOOLONG:
    case EPROTONOSUPPORT:
      code = Code::kInvalidArgument;
      break;
    case EADDRINUSE:
      code = Code::kAlreadyExists;
      break;
    case EACCES:
    case EPERM:
      code = Code::kPermissionDenied;
      break;
    case EADDRNOTAVAIL:
    case ECONNREFUSED:
    case ENETDOWN:
    case ENOTSOCK:
    case zmq::kEterm:
      code = Code::kUnavailable;
      break;
    default:
      break;
  }
  return Status(code, what + ": " + Zmq().error_text(error));
}

Status ZmqError(const std::string& what) { return ZmqErrorFrom(Zmq().error_number(), what); }

}  // namespace pathways::transport
