#include "csrc/controller/admission.h"

#include <algorithm>
#include <cstddef>
#include <string_view>

#include "csrc/base/log_limit.h"
#include "csrc/wire/identity.h"

namespace pathways::controller {
namespace {

// Of what a HELLO says of its member beside its name; every other member is sent it, and logs show it.
constexpr size_t kMaxTextBytes = 1024;
constexpr size_t kMaxVersionBytes = 16 << 10;

Status CheckText(std::string_view text, const char* what, size_t most) {
  const bool shows = std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  if (shows && text.size() <= most) return OkStatus();
  return InvalidArgument("expected a member's " + std::string(what) + " of at most " + std::to_string(most) +
                         " bytes without control characters, got " + std::to_string(text.size()) +
                         " bytes: " + Printable(text, 32));
}

}  // namespace

Status CheckTexts(const wire::Hello& hello) {
  PW_RETURN_IF_ERROR(CheckText(hello.name, "name", wire::kMaxNameBytes));
  PW_RETURN_IF_ERROR(CheckText(hello.island, "island", wire::kMaxNameBytes));
  PW_RETURN_IF_ERROR(CheckText(hello.build, "version", kMaxTextBytes));
  PW_RETURN_IF_ERROR(CheckText(hello.machine, "machine", kMaxTextBytes));
  PW_RETURN_IF_ERROR(CheckText(hello.platform, "platform", kMaxTextBytes));
  PW_RETURN_IF_ERROR(CheckText(hello.data_endpoint, "data endpoint", kMaxTextBytes));
  if (hello.platform_version.size() > kMaxVersionBytes) {
    return InvalidArgument("expected a plugin's version of at most " + std::to_string(kMaxVersionBytes) +
                           " bytes, got " + std::to_string(hello.platform_version.size()));
  }
  for (const wire::DeviceDescription& device : hello.devices) {
    PW_RETURN_IF_ERROR(CheckText(device.kind, "kind of device", kMaxTextBytes));
  }
  return OkStatus();
}

Status CheckBuild(const std::string& build, const std::string& name, const std::string& expected) {
  if (build == expected) return OkStatus();
  return FailedPrecondition("expected ptpathways " + expected + " as on the controller, got " + build + " on " +
                            Quoted(name) + "; install the same version on both");
}

}  // namespace pathways::controller
