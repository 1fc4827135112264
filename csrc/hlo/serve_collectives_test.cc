#include "csrc/hlo/serve_collectives.h"

#include "csrc/testing/test.h"

namespace pathways::hlo {
namespace {

TEST(WhatIsNotAModuleCannotBeServed) {
  EXPECT(ServeCollectives("not a module", 4).status().code() == Code::kInvalidArgument);
  EXPECT(!ServeCollectives("", 4).ok());
}

}  // namespace
}  // namespace pathways::hlo
