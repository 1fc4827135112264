// Admission: what everyone must fulfil who wants to become a member, before it is asked as what: the controller's
// version, and a description that can be sent to every other member and shown in logs.
//
// Pure functions. Ownership: none. Threads: any. Locks: none.
#ifndef PTPATHWAYS_CONTROLLER_ADMISSION_H_
#define PTPATHWAYS_CONTROLLER_ADMISSION_H_

#include <string>

#include "csrc/base/status.h"
#include "csrc/wire/bodies.h"

namespace pathways::controller {

// INVALID_ARGUMENT: one of its texts is too long, or has control characters.
Status CheckTexts(const wire::Hello& hello);
// FAILED_PRECONDITION unless `build`, the version of `name`, is the controller's, `expected`.
Status CheckBuild(const std::string& build, const std::string& name, const std::string& expected);

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_ADMISSION_H_
