// Compiler: what a client compiles, and what is remembered of it, so that little is compiled again.
//
// Ownership: shared by PJRT_Client and the programs that it makes, which it knows weakly. Keeps its client alive.
// Threads:   every method may be called from any thread.
// Locks:     none of its own; its parts have some.
#ifndef PTPATHWAYS_COMPILED_COMPILER_H_
#define PTPATHWAYS_COMPILED_COMPILER_H_

#include <memory>
#include <string_view>
#include <utility>

#include "csrc/base/status.h"
#include "csrc/compiled/code_room.h"
#include "csrc/compiled/families.h"
#include "csrc/compiled/length_families.h"
#include "csrc/values/client.h"

namespace pathways::compiled {

struct Program;

class Compiler : public std::enable_shared_from_this<Compiler> {
 public:
  explicit Compiler(std::shared_ptr<values::ClientState> client) : client_(std::move(client)) {}
  Compiler(const Compiler&) = delete;
  Compiler& operator=(const Compiler&) = delete;

  const std::shared_ptr<values::ClientState>& client() const { return client_; }
  CodeRoom& code() { return code_; }

  // The program of a module, registered unless its client has logical devices. `format` is "hlo", "hlo_with_config" or
  // "mlir".
  Result<std::shared_ptr<Program>> Compile(std::string_view code, std::string_view format, std::string_view options);

 private:
  const std::shared_ptr<values::ClientState> client_;
  CodeRoom code_;
  ModuleFamilies families_;
  LengthFamilies lengths_;
};

}  // namespace pathways::compiled

#endif  // PTPATHWAYS_COMPILED_COMPILER_H_
