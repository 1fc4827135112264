#include "csrc/worker/pipeline.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

namespace pathways::worker {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr size_t kHeaderBytes = 16;
constexpr size_t kMaxTextBytes = 64u << 20;
constexpr size_t kReadBytes = 64u << 10;
// Where the processes find their ends of the channels.
constexpr int kFirstDescriptor = 3;
// Above any descriptor that is put in its place.
constexpr int kHighDescriptor = 512;
// For a process whose end of the channel has closed to end by itself, so that its exit code can be told.
constexpr std::chrono::milliseconds kExitGrace{500};

Status ErrnoStatus(const std::string& what) { return Internal("cannot " + what + ": " + std::strerror(errno)); }

uint32_t Number32(std::string_view bytes, size_t offset) {
  uint32_t number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

std::string Seconds(std::chrono::milliseconds time) {
  std::string text = std::to_string(time.count() / 1000);
  if (time.count() % 1000 != 0) text += "." + std::to_string(1000 + time.count() % 1000).substr(1);
  return text;
}

std::string Framed(const std::string& bytes) {
  const uint32_t size = static_cast<uint32_t>(bytes.size());
  std::string framed(sizeof size, '\0');
  std::memcpy(framed.data(), &size, sizeof size);
  return framed + bytes;
}

Result<PipelineValues> Map(int descriptor, const std::vector<uint64_t>& sizes) {
  PipelineValues result;
  uint64_t total = 0;
  for (const uint64_t size : sizes) {
    if (size > (uint64_t{1} << 48)) return DataLoss("an input pipeline gave a value of impossible size");
    total += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  const off_t end = lseek(descriptor, 0, SEEK_END);
  if (end < 0 || static_cast<uint64_t>(end) < total) {
    return DataLoss("expected " + std::to_string(total) + " bytes of an input pipeline, got " + std::to_string(end));
  }
  void* memory = mmap(nullptr, total, PROT_READ, MAP_SHARED | MAP_POPULATE, descriptor, 0);
  if (memory == MAP_FAILED) return ErrnoStatus("map a batch of an input pipeline");
  result.owner = std::shared_ptr<const void>(memory, [total](const void* at) { munmap(const_cast<void*>(at), total); });
  const std::byte* at = static_cast<const std::byte*>(memory);
  for (const uint64_t size : sizes) {
    result.values.emplace_back(at, size);
    at += (size + kAlignment - 1) / kAlignment * kAlignment;
  }
  return result;
}

}  // namespace

Result<std::unique_ptr<Pipeline>> Pipeline::Start(PipelineOptions options, const std::string& given, Answered opened) {
  if (options.python.empty() || options.script.empty()) {
    return FailedPrecondition("this worker was started without the path of a Python interpreter for input pipelines");
  }
  std::unique_ptr<Pipeline> pipeline(new Pipeline(std::move(options)));
  PW_RETURN_IF_ERROR(pipeline->Spawn());
  pipeline->Ask(0, given, 0, std::move(opened));
  pipeline->thread_ = std::thread([self = pipeline.get()] {
    pthread_setname_np(pthread_self(), "pw-pipe");
    self->Loop();
  });
  return pipeline;
}

Status Pipeline::Spawn() {
  wake_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_fd_ < 0) return ErrnoStatus("make an event descriptor");
  std::vector<int> theirs;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  Status status;
  for (uint32_t i = 0; i < options_.workers && status.ok(); ++i) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      status = ErrnoStatus("make a socket pair");
      break;
    }
    Channel& channel = channels_.emplace_back();
    channel.fd = ends[0];
    channel.opening = i == 0;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    const int high = fcntl(ends[1], F_DUPFD_CLOEXEC, kHighDescriptor);
    close(ends[1]);
    if (high < 0) {
      status = ErrnoStatus("duplicate a socket");
      break;
    }
    theirs.push_back(high);
    posix_spawn_file_actions_adddup2(&actions, high, kFirstDescriptor + static_cast<int>(i));
  }
  if (status.ok()) {
    posix_spawn_file_actions_addclosefrom_np(&actions, kFirstDescriptor + static_cast<int>(options_.workers));
    sigset_t none, defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    for (const int number : {SIGTERM, SIGINT, SIGUSR2, SIGPIPE}) sigaddset(&defaults, number);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setpgroup(&attributes, 0);  // a group of its own: a terminal's Ctrl-C is the client's alone
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
    std::string channels = std::to_string(options_.workers), parent = std::to_string(getpid());
    std::string python = options_.python, script = options_.script, safe_path = "-P";
    char* const arguments[] = {python.data(), safe_path.data(), script.data(), channels.data(), parent.data(), nullptr};
    const int error = posix_spawn(&pid_, python.c_str(), &actions, &attributes, arguments, environ);
    if (error != 0) {
      pid_ = -1;
      status = NotFound("cannot start an input pipeline with " + python + ": " + std::strerror(error));
    }
  }
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  for (const int descriptor : theirs) close(descriptor);
  return status;
}

Pipeline::~Pipeline() {
  if (thread_.joinable()) {
    {
      std::lock_guard lock(mutex_);
      closing_ = true;
    }
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);  // fails only when it is awake anyway
    thread_.join();
  }
  if (broken_.ok()) {
    Break(Cancelled("the input pipeline is closed"));
  } else {
    TakeAsked();  // since the thread looked last
  }
  for (Channel& channel : channels_) {
    for (const int descriptor : channel.descriptors) close(descriptor);
    if (channel.fd >= 0) close(channel.fd);
  }
  if (wake_fd_ >= 0) close(wake_fd_);
}

void Pipeline::Ask(uint32_t worker, const std::string& what, size_t values, Answered answered) {
  {
    std::lock_guard lock(mutex_);
    asked_.emplace_back(worker % options_.workers, Request{Framed(what), values, std::move(answered)});
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_fd_, &one, sizeof one);
}

int Pipeline::PollTimeout(Clock::time_point now) const {
  int64_t least = 60'000;
  for (const Channel& channel : channels_) {
    if (channel.waiting.empty()) continue;
    const auto limit = channel.opening ? options_.open_timeout : options_.batch_timeout;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(channel.front_since + limit - now);
    least = std::min<int64_t>(least, std::max<int64_t>(left.count() + 1, 0));
  }
  return static_cast<int>(least);
}

void Pipeline::TakeAsked() {
  std::vector<std::pair<uint32_t, Request>> asked;
  {
    std::lock_guard lock(mutex_);
    asked.swap(asked_);
  }
  for (auto& [worker, request] : asked) {
    if (!broken_.ok()) {
      request.answered(broken_, {}, {});
      continue;
    }
    Channel& channel = channels_[worker];
    if (channel.waiting.empty()) channel.front_since = Clock::now();
    channel.out += request.bytes;
    request.bytes.clear();
    channel.waiting.push_back(std::move(request));
  }
}

void Pipeline::Loop() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (closing_) return;
    }
    TakeAsked();
    std::vector<pollfd> polled{{wake_fd_, POLLIN, 0}};
    for (const Channel& channel : channels_) {
      polled.push_back({channel.fd, static_cast<int16_t>(POLLIN | (channel.out.empty() ? 0 : POLLOUT)), 0});
    }
    const nfds_t count = broken_.ok() ? polled.size() : 1;
    if (poll(polled.data(), count, PollTimeout(Clock::now())) < 0 && errno != EINTR) {
      Break(ErrnoStatus("wait for an input pipeline"));
    }
    if (polled[0].revents != 0) {
      uint64_t ignored;
      [[maybe_unused]] const ssize_t taken = read(wake_fd_, &ignored, sizeof ignored);
    }
    for (size_t i = 0; i < channels_.size() && broken_.ok(); ++i) {
      Channel& channel = channels_[i];
      Status status;
      if (polled[i + 1].revents & (POLLIN | POLLHUP | POLLERR)) status = Read(channel);
      if (status.ok() && (polled[i + 1].revents & POLLOUT)) status = Write(channel);
      const auto limit = channel.opening ? options_.open_timeout : options_.batch_timeout;
      if (status.ok() && !channel.waiting.empty() && Clock::now() >= channel.front_since + limit) {
        status =
            Status(Code::kDeadlineExceeded,
                   "expected input pipeline " + options_.name + " to " +
                       (channel.opening ? "build its dataset, with its first sample," : "make its part of a batch") +
                       " within " + Seconds(limit) +
                       " s, got nothing, so its process was killed; the dataset's code hangs, or give it more "
                       "time (timeout_s" +
                       (channel.opening ? " beyond that)" : ")"));
      }
      if (!status.ok()) Break(status);
    }
  }
}

Status Pipeline::Write(Channel& channel) {
  while (!channel.out.empty()) {
    const ssize_t written = send(channel.fd, channel.out.data(), channel.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0) {
      if (errno == EAGAIN || errno == EINTR) return OkStatus();
      return Internal(Reap());
    }
    channel.out.erase(0, static_cast<size_t>(written));
  }
  return OkStatus();
}

Status Pipeline::Read(Channel& channel) {
  std::vector<char> bytes(kReadBytes);
  for (;;) {
    iovec part{bytes.data(), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(16 * sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(channel.fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return OkStatus();
    if (got <= 0) return Internal(Reap());
    for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
      if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int descriptor;
        std::memcpy(&descriptor, CMSG_DATA(head) + i * sizeof(int), sizeof descriptor);
        channel.descriptors.push_back(descriptor);
      }
    }
    channel.in.append(bytes.data(), static_cast<size_t>(got));
    PW_RETURN_IF_ERROR(Answers(channel));
  }
}

Status Pipeline::Answers(Channel& channel) {
  size_t at = 0;
  const std::string_view in = channel.in;
  while (in.size() - at >= kHeaderBytes) {
    const uint32_t code = Number32(in, at), text_bytes = Number32(in, at + 4), count = Number32(in, at + 8);
    if (!IsKnownCode(static_cast<int32_t>(code)) || text_bytes > kMaxTextBytes || channel.waiting.empty() ||
        count > channel.waiting.front().values) {
      return DataLoss("input pipeline " + options_.name + " wrote something else than answers on its channel");
    }
    const size_t whole = kHeaderBytes + text_bytes + size_t{count} * sizeof(uint64_t);
    if (in.size() - at < whole) break;
    std::string text(in.substr(at + kHeaderBytes, text_bytes));
    std::vector<uint64_t> sizes(count);
    if (count > 0) std::memcpy(sizes.data(), in.data() + at + kHeaderBytes + text_bytes, count * sizeof(uint64_t));
    at += whole;
    PipelineValues values;
    Status status = code == 0 ? OkStatus() : Status(static_cast<Code>(code), text);
    if (std::accumulate(sizes.begin(), sizes.end(), uint64_t{0}) > 0) {
      if (channel.descriptors.empty()) return DataLoss("input pipeline " + options_.name + " gave no memory");
      const int descriptor = channel.descriptors.front();
      channel.descriptors.pop_front();
      Result<PipelineValues> mapped = Map(descriptor, sizes);
      close(descriptor);
      if (status.ok()) status = mapped.status();
      if (mapped.ok()) values = *std::move(mapped);
    }
    if (status.ok() && values.values.size() != channel.waiting.front().values) {
      status = DataLoss("expected " + std::to_string(channel.waiting.front().values) + " values of input pipeline " +
                        options_.name + ", got " + std::to_string(values.values.size()));
    }
    Request request = std::move(channel.waiting.front());
    channel.waiting.pop_front();
    channel.front_since = Clock::now();
    channel.opening = false;
    request.answered(status, std::move(text), std::move(values));
  }
  channel.in.erase(0, at);
  return OkStatus();
}

void Pipeline::Break(const Status& status) {
  broken_ = status;
  Reap();
  for (Channel& channel : channels_) {
    std::deque<Request> waiting;
    waiting.swap(channel.waiting);
    for (Request& request : waiting) request.answered(status, {}, {});
  }
  TakeAsked();
}

std::string Pipeline::Reap() {
  std::string text = "a process of input pipeline " + options_.name + " has ended";
  if (pid_ <= 0) return text;
  int state = 0;
  pid_t ended = 0;
  bool closing;
  {
    std::lock_guard lock(mutex_);
    closing = closing_;
  }
  const auto until = Clock::now() + kExitGrace;
  while (broken_.ok() && !closing && (ended = waitpid(pid_, &state, WNOHANG)) == 0 && Clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  kill(-pid_, SIGKILL);
  if (ended == 0) {
    waitpid(pid_, &state, 0);
  } else if (ended == pid_ && WIFEXITED(state)) {
    text += " with exit code " + std::to_string(WEXITSTATUS(state));
  } else if (ended == pid_ && WIFSIGNALED(state)) {
    text += " by signal " + std::to_string(WTERMSIG(state));
  }
  pid_ = -1;
  return text + "; it ran the dataset's code";
}

}  // namespace pathways::worker
