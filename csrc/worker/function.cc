#include "csrc/worker/function.h"

namespace pathways::worker {

std::string Function::Describe() const {
  std::string text = "function '" + request.name + "'";
  if (!request.source.empty()) text += " (" + request.source + ")";
  return text;
}

}  // namespace pathways::worker
