#include "csrc/controller/standby.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "csrc/base/log.h"

namespace pathways::controller {
namespace {

// A second's messages of a busy cluster. Larger ones pass through in parts.
constexpr size_t kRingBytes = size_t{32} << 20;
// What a standby that does not follow may cost the members, once: less than the silence that they are told of.
constexpr std::chrono::milliseconds kRingPatience{1000};
constexpr int kPollMs = 1000;
constexpr int kInputsPerTurn = 1000;  // then it looks for signals

}  // namespace

bool Journal::Write(const Input& input) {
  if (ring_->Write(record_.Encode(input))) return true;
  why_lost_ = ring_->left() ? "it has left" : "it did not keep up with what the controller does, or is stopped";
  return false;
}

bool Journal::Flush() {
  if (::getppid() != standby_) {
    why_lost_ = "it has ended";
    return false;
  }
  if (ring_->left()) {
    why_lost_ = "it has left";
    return false;
  }
  ring_->Wake();
  return true;
}

Status Standby::Prepare() {
  parent_ = ::getpid();
  served_ = false;
  PW_ASSIGN_OR_RETURN(ring_, SharedRing::Make(kRingBytes, kRingPatience));
  return OkStatus();
}

std::unique_ptr<Journal> Standby::TakeJournal() { return std::make_unique<Journal>(std::move(ring_), parent_); }

Result<Standby::End> Standby::Follow(pid_t child) {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD}) sigaddset(&signals, number);
  const int signal_fd = ::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signal_fd < 0) return ResourceExhausted(std::string("cannot make a signalfd: ") + std::strerror(errno));
  int status = 0;
  for (;;) {
    const bool more = Drain();
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child || (ended < 0 && errno != EINTR)) break;
    const bool sleeps = !more && (core_ == nullptr || ring_->PrepareToSleep());
    pollfd fds[] = {{signal_fd, POLLIN, 0}, {ring_->wake_fd(), POLLIN, 0}};
    (void)::poll(fds, 2, sleeps ? kPollMs : 0);
    ring_->Woke();
    signalfd_siginfo info{};
    while (::read(signal_fd, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGCHLD) continue;
      ending_ = ending_ || info.ssi_signo != SIGUSR1;
      (void)::kill(child, static_cast<int>(info.ssi_signo));
    }
  }
  ::close(signal_fd);
  while (Drain()) continue;  // what it wrote until its end
  End end;
  if (WIFSIGNALED(status)) {
    end.signal = WTERMSIG(status);
    if (ending_) {
      end.why_not = "it was told to stop";
    } else if (core_ == nullptr) {
      end.why_not = why_left_;
    } else if (!served_) {
      end.why_not = "the controller had not begun to serve";
    }
  } else {
    end.code = WEXITSTATUS(status);
  }
  ring_.reset();
  return end;
}

bool Standby::Drain() {
  for (int i = 0; i < kInputsPerTurn; ++i) {
    if (core_ == nullptr) return false;
    if (ring_->dropped()) {  // something is missing behind what there is
      Leave("it did not keep up with what the controller does, or was stopped");
    } else if (!ring_->Read(&record_)) {
      return false;
    } else if (Result<Input> input = InputOf(record_); input.ok()) {
      Apply(*std::move(input));
    } else {
      Leave(input.status().ToString());
    }
  }
  return true;
}

void Standby::Apply(Input input) {
  if (input.kind == Input::Kind::kTick && input.digest != core_->digest()) {
    return Leave("its decisions differ from the controller's, which is a defect of ptpathways; please report it");
  }
  ending_ = ending_ || input.kind == Input::Kind::kEnding;
  if (input.kind == Input::Kind::kServing) {
    served_ = true;
    endpoints_.clear();
    std::string_view lines = input.head;
    for (size_t end = lines.find('\n'); end != std::string_view::npos; end = lines.find('\n')) {
      endpoints_.emplace_back(lines.substr(0, end));
      lines.remove_prefix(end + 1);
    }
  }
  Core::Effects effects;
  core_->Apply(std::move(input), effects);
}

void Standby::Leave(std::string why) {
  ring_->Leave();
  core_.reset();
  logging::Error("controller", "the standby, process " + std::to_string(parent_) + ", leaves: " + why);
  why_left_ = std::move(why);
}

}  // namespace pathways::controller
