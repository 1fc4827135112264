#include "csrc/base/log.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

namespace pathways::logging {
namespace {

std::atomic<Level> of_process{Level::kWarning};

}  // namespace

Level LevelOf(std::string_view text) {
  if (text == "debug") return Level::kDebug;
  if (text == "info") return Level::kInfo;
  return text == "error" ? Level::kError : Level::kWarning;
}

void SetLevel(Level level) { of_process.store(level, std::memory_order_relaxed); }

bool Says(Level level) { return level >= of_process.load(std::memory_order_relaxed); }

std::string Line(std::string_view who, std::string_view text) {
  std::string line = "ptpathways";
  if (!who.empty()) line.append(" ").append(who);
  line.append(": ").append(text);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line + "\n";
}

void Write(Level level, std::string_view who, std::string_view text) {
  if (!Says(level)) return;
  const std::string line = Line(who, text);
  std::fwrite(line.data(), 1, line.size(), stderr);  // which is unbuffered
}

}  // namespace pathways::logging
