// What the native part says on standard error: one line in one write, so that lines of several processes stay whole.
//
// A process says what is of its level or above: the option log_level, "warning" unless it is set.
//
// Threads: any.
#ifndef PTPATHWAYS_BASE_LOG_H_
#define PTPATHWAYS_BASE_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace pathways::logging {

enum class Level : uint8_t {
  kDebug,
  kInfo,     // members come and go, and what they leave is collected
  kWarning,  // something was refused, is missing or is tried again; work goes on
  kError,    // this process, or a part of it, ends
};

// As the option says it; a text that is none of the four is as "warning".
Level LevelOf(std::string_view text);
void SetLevel(Level level);
bool Says(Level level);

// "ptpathways worker a: TEXT" with `who` "worker a", and "ptpathways: TEXT" with none. Line breaks become spaces.
std::string Line(std::string_view who, std::string_view text);

void Write(Level level, std::string_view who, std::string_view text);
inline void Warning(std::string_view who, std::string_view text) { Write(Level::kWarning, who, text); }
inline void Error(std::string_view who, std::string_view text) { Write(Level::kError, who, text); }

}  // namespace pathways::logging

#endif  // PTPATHWAYS_BASE_LOG_H_
