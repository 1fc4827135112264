#include "csrc/compiled/installed.h"

#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "csrc/base/thread_annotations.h"

namespace pathways::compiled {
namespace {

template <typename Function>
class Installed {
 public:
  void Set(Function function) {
    auto fresh = function ? std::make_shared<const Function>(std::move(function)) : nullptr;
    std::lock_guard lock(mutex_);
    function_.swap(fresh);
  }
  std::shared_ptr<const Function> Get() {
    std::lock_guard lock(mutex_);
    return function_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<const Function> function_ PW_GUARDED_BY(mutex_);
};

// Leaked: computations may be compiled during shutdown.
auto* const installed_locator = new Installed<std::function<std::string()>>;
auto* const installed_listener = new Installed<CompileListener>;

}  // namespace

void SetSourceLocator(std::function<std::string()> locator) { installed_locator->Set(std::move(locator)); }

std::string CurrentSource() {
  const auto locator = installed_locator->Get();
  if (locator == nullptr) return "";
  try {
    return (*locator)();
  } catch (const std::exception&) {
    return "";  // a missing line must not fail a compile
  }
}

void SetCompileListener(CompileListener listener) { installed_listener->Set(std::move(listener)); }

void NoteCompile(std::string_view module, std::string_view format, const std::string& source, size_t numbers) {
  const auto listener = installed_listener->Get();
  if (listener == nullptr || format != "hlo") return;
  const Result<hlo::HloSummary> summary = hlo::SummarizeHlo(module);
  if (!summary.ok()) return;
  try {
    (*listener)(*summary, source, numbers);
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace pathways::compiled
