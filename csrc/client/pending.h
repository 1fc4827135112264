// What the parts of a session keep of work under way: how it is answered, how a loss ends it, and how it is listed.
//
// Pure state machines. Ownership: plain values. Threads: none inside; the session's lock guards the tables.
#ifndef PTPATHWAYS_CLIENT_PENDING_H_
#define PTPATHWAYS_CLIENT_PENDING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "csrc/base/clock.h"
#include "csrc/base/event.h"
#include "csrc/base/status.h"
#include "csrc/client/link.h"

namespace pathways::client {

// A host, or the controller, that does not answer any more.
struct Loss {
  std::optional<uint32_t> host;  // none: the controller, and with it every host
  Status reason;
  bool closed = false;  // not a failure: the user closed the session

  bool Covers(uint32_t of) const { return !host || *host == of; }
};

// Events and their outcomes. They are set without the session's lock, because callbacks may call the session.
using Ended = std::pair<std::shared_ptr<Event>, Status>;
using Endings = std::vector<Ended>;

// What has been sent and not been answered, for the user.
struct PendingItem {
  const char* sort;             // "run", "compile", "prepare" (a program), "fetch"
  std::string what;             // "function 'f' (train.py:12)"
  std::vector<uint32_t> hosts;  // that take part, or that have not answered
  int64_t since_ms;             // NowMs()
};

// What comes with the body of a message of the controller.
struct Received {
  uint64_t from = 0;  // the host that answers, plus one; 0: the controller itself
  std::vector<Payload> payloads{};
};

// PERMISSION_DENIED when the answer comes from another host than the one that was asked.
inline Status CheckSender(uint32_t asked, uint64_t from) {
  if (from == 0 || from == uint64_t{asked} + 1) return OkStatus();
  return Status(Code::kPermissionDenied, "host " + std::to_string(from - 1) +
                                             " answered what another was asked (host " + std::to_string(asked) + ")");
}

// What a host or the controller is asked and answers later.
template <typename Answer>
struct Question {
  std::shared_ptr<Event> done = Event::Make();
  std::shared_ptr<Answer> answer = std::make_shared<Answer>();  // written before `done` is set
};

inline constexpr uint32_t kAsksController = UINT32_MAX;

// Questions without an answer yet, by request.
template <typename Answer>
class Questions {
 public:
  void Begin(uint64_t request, const Question<Answer>& question, uint32_t host) { open_[request] = {question, host}; }
  // Takes out the question that is answered; none when nobody waits for the answer.
  Result<std::optional<Question<Answer>>> Take(uint64_t request, uint64_t from) {
    const auto it = open_.find(request);
    if (it == open_.end()) return std::optional<Question<Answer>>();
    PW_RETURN_IF_ERROR(CheckSender(it->second.second, from));
    std::optional<Question<Answer>> question = std::move(it->second.first);
    open_.erase(it);
    return question;
  }
  void GiveUp(uint64_t request) { open_.erase(request); }
  void Fail(const Loss& loss, Endings& ended) {
    std::erase_if(open_, [&](const auto& entry) {
      const auto& [question, host] = entry.second;
      if (!loss.Covers(host)) return false;
      ended.emplace_back(question.done, loss.reason);
      return true;
    });
  }

 private:
  std::unordered_map<uint64_t, std::pair<Question<Answer>, uint32_t>> open_;
};

// What several hosts make ready, and each of them answers for: a function, or a program.
struct Preparation {
  std::shared_ptr<Event> done;
  std::shared_ptr<const std::string> what;
  std::set<uint32_t> waiting_for{};  // hosts
  Status first_error = OkStatus();
  int64_t since_ms = NowMs();

  void Answer(uint32_t host, const Status& status) {
    waiting_for.erase(host);
    if (!status.ok() && first_error.ok()) first_error = status;
  }
  void Fail(const Loss& loss, Endings& ended) {
    if (std::erase_if(waiting_for, [&](uint32_t host) { return loss.Covers(host); }) > 0) {
      ended.emplace_back(done, loss.reason);
    }
  }
  void List(const char* sort, std::vector<PendingItem>& out) const {
    if (!waiting_for.empty()) out.push_back({sort, *what, {waiting_for.begin(), waiting_for.end()}, since_ms});
  }
};

}  // namespace pathways::client

#endif  // PTPATHWAYS_CLIENT_PENDING_H_
