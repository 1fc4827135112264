#include "csrc/plugin/compiles.h"

#include <exception>
#include <memory>
#include <mutex>
#include <utility>

namespace pathways::plugin {
namespace {

struct Installed {
  std::mutex mutex;
  std::shared_ptr<const CompileListener> listener;  // guarded by mutex
};

Installed& TheInstalled() {
  static Installed* const installed = new Installed;  // leaked: computations may be compiled during shutdown
  return *installed;
}

}  // namespace

void SetCompileListener(CompileListener listener) {
  auto fresh = listener ? std::make_shared<const CompileListener>(std::move(listener)) : nullptr;
  Installed& installed = TheInstalled();
  std::lock_guard lock(installed.mutex);
  installed.listener.swap(fresh);
}

void NoteCompile(std::string_view module, std::string_view format, const std::string& source, size_t numbers) {
  std::shared_ptr<const CompileListener> listener;
  {
    Installed& installed = TheInstalled();
    std::lock_guard lock(installed.mutex);
    listener = installed.listener;
  }
  if (listener == nullptr || format != "hlo") return;
  const Result<hlo::HloSummary> summary = hlo::SummarizeHlo(module);
  if (!summary.ok()) return;
  try {
    (*listener)(*summary, source, numbers);
  } catch (const std::exception&) {
    return;
  }
}

}  // namespace pathways::plugin
