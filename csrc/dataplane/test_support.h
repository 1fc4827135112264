// What this room's tests share: a socket, the options of an end, a sink that can be waited for, messages, and a TCP
// proxy that cuts, resets and swallows.
#ifndef PTPATHWAYS_DATAPLANE_TEST_SUPPORT_H_
#define PTPATHWAYS_DATAPLANE_TEST_SUPPORT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/dataplane/data_plane.h"
#include "csrc/testing/test.h"

namespace pathways::dataplane::testing {

inline constexpr const char* kCluster = "plane-test";

inline void UseZmq() {
  EXPECT_OK(transport::LoadZmq(std::getenv("PW_LIBZMQ") != nullptr ? std::getenv("PW_LIBZMQ") : ""));
}

// A socket to which nobody is connected.
inline std::shared_ptr<transport::Socket> OpenRouter() {
  UseZmq();
  transport::SocketOptions options;
  options.kind = transport::SocketKind::kRouter;
  options.curve.insecure = true;
  return *transport::Socket::Open(options);
}

// Of an end without shared memory, which listens if `binds`.
inline DataPlaneOptions OptionsOf(const std::string& name, Membership membership, bool binds) {
  UseZmq();
  DataPlaneOptions options;
  options.membership = std::move(membership);
  options.curve.insecure = true;
  options.machine = name;  // another one each
  if (binds) options.bind_endpoint = "tcp://127.0.0.1:*";
  return options;
}

// A DATA message that is a whole transfer, with its number on a link.
inline transport::Frames DataMessage(uint64_t key, uint64_t sequence, std::string_view bytes) {
  wire::Data data;
  data.key = key;
  data.size = data.total = bytes.size();
  std::string head = wire::Encode(data);
  wire::PatchSequence(head, sequence);
  transport::Frames frames;
  frames.emplace_back(std::move(head));
  frames.emplace_back(std::string(bytes));
  return frames;
}

// Notes what happens, so that a test can wait for it. Fields of those who inherit from it are under its lock.
class NotingSink : public DataSink {
 public:
  static constexpr std::chrono::seconds kPatience{20};

  template <typename Action>
  void Note(Action action) {
    std::lock_guard lock(mutex_);
    action();
    changed_.notify_all();
  }
  // False when `predicate` has not become true in time.
  template <typename Predicate>
  bool Wait(Predicate predicate) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, predicate);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

class Proxy {
 public:
  // `target`: "tcp://127.0.0.1:<port>".
  explicit Proxy(const std::string& target)
      : target_(static_cast<uint16_t>(std::atoi(target.substr(target.rfind(':') + 1).c_str()))) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = Loopback(0);
    socklen_t size = sizeof address;
    (void)::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    (void)::listen(listener_, 16);
    (void)::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    endpoint_ = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { Loop(); });
  }
  ~Proxy() {
    stop_ = true;
    thread_.join();
    Reset();
    ::close(listener_);
  }
  const std::string& endpoint() const { return endpoint_; }
  // Ends all connections with RST.
  void Reset() {
    std::lock_guard lock(mutex_);
    for (const Pair& pair : pairs_) {
      for (int fd : pair.fds) {
        const linger now{1, 0};
        ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        ::close(fd);
      }
    }
    pairs_.clear();
  }
  // Takes all bytes and hands none on; connections stay open.
  void Swallow(bool on) { swallow_ = on; }
  // The same, of the connections there are now, for ever.
  void SwallowPresent() {
    std::lock_guard lock(mutex_);
    for (Pair& pair : pairs_) pair.swallowed = true;
  }
  // Resets all connections after so many more bytes.
  void ResetAfter(int64_t bytes) { left_ = bytes; }
  int resets() const { return resets_; }
  int64_t passed() const { return passed_; }

 private:
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }
  void Loop() {
    std::vector<char> buffer(1 << 16);
    while (!stop_) {
      std::unique_lock lock(mutex_);
      std::vector<pollfd> fds{{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        for (int fd : pair.fds) fds.push_back({fd, POLLIN, 0});
      }
      lock.unlock();
      ::poll(fds.data(), fds.size(), 5);
      lock.lock();
      if (fds[0].revents != 0) Accept();
      bool reset = false;
      for (size_t i = 0; i < pairs_.size() && 2 * i + 2 < fds.size(); ++i) {
        if (pairs_[i].fds[0] != fds[2 * i + 1].fd) break;  // they were reset meanwhile
        for (size_t side : {0, 1}) {
          if (fds[2 * i + 1 + side].revents == 0) continue;
          const int from = pairs_[i].fds[side], to = pairs_[i].fds[1 - side];
          const ssize_t n = ::recv(from, buffer.data(), buffer.size(), MSG_DONTWAIT);
          if (n <= 0) {
            ::shutdown(to, SHUT_WR);
            if (n == 0) ::shutdown(from, SHUT_RD);
            continue;
          }
          if (swallow_ || pairs_[i].swallowed) continue;
          passed_ += n;
          for (ssize_t done = 0; done < n;) {
            const ssize_t wrote = ::send(to, buffer.data() + done, static_cast<size_t>(n - done), MSG_NOSIGNAL);
            if (wrote <= 0) break;
            done += wrote;
          }
          if (left_ > 0 && (left_ -= n) <= 0) reset = true;
        }
      }
      lock.unlock();
      if (reset) {
        Reset();
        ++resets_;
      }
    }
  }
  void Accept() {
    const int in = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (in < 0) return;
    const int out = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Loopback(target_);
    (void)::connect(out, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    pairs_.push_back({{in, out}, false});
  }

  const uint16_t target_;
  int listener_ = -1;
  std::string endpoint_;
  std::atomic<bool> stop_{false}, swallow_{false};
  std::atomic<int64_t> left_{0}, passed_{0};
  std::atomic<int> resets_{0};
  std::mutex mutex_;
  struct Pair {
    std::array<int, 2> fds;
    bool swallowed;
  };
  std::vector<Pair> pairs_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace pathways::dataplane::testing

#endif  // PTPATHWAYS_DATAPLANE_TEST_SUPPORT_H_
