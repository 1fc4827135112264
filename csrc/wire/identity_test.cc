#include "csrc/wire/identity.h"

#include "csrc/testing/test.h"

namespace pathways::wire {
namespace {

TEST(OnlyTheKeyMakesAnIdentity) {
  for (const Identity& identity : {Identity{"c/3", 17}, Identity{"w/a/b", 1}, Identity{"w/", UINT64_MAX}}) {
    const std::string text = IdentityText("key", identity);
    EXPECT(text.starts_with(identity.name + "/" + std::to_string(identity.session) + "/"));
    const Result<Identity> checked = CheckIdentity("key", text);
    ASSERT_OK(checked.status());
    EXPECT_EQ(checked->name, identity.name);
    EXPECT_EQ(checked->session, identity.session);
    EXPECT_EQ(CheckIdentity("other", text).status().code(), Code::kPermissionDenied);
    for (size_t at = 0; at < text.size(); ++at) {
      std::string changed = text;
      changed[at] = changed[at] == '1' ? '2' : '1';
      EXPECT(!CheckIdentity("key", changed).ok());
      EXPECT(!CheckIdentity("key", text.substr(0, at)).ok());
    }
  }
  for (const char* none : {"", "/", "//", "c/3", "c/3/1", "c/3/x/0123", "c/3//", "to/host0"}) {
    EXPECT(!CheckIdentity("key", none).ok());
  }
}

TEST(EachHostHasAKeyForEachOfItsSessions) {
  const std::string key = ListenerKey("secret", {"w/b", 2});
  EXPECT_EQ(key.size(), 32);
  EXPECT_EQ(key, ListenerKey("secret", {"w/b", 2}));
  const std::string name = IdentityText(key, {"w/a", 1});
  EXPECT_OK(CheckIdentity(key, name).status());
  const std::string others[] = {ListenerKey("secret", {"w/c", 2}), ListenerKey("secret", {"w/b", 3}),
                                ListenerKey("other", {"w/b", 2}), "secret", ""};
  for (const std::string& other : others) {
    EXPECT_NE(key, other);
    EXPECT_EQ(CheckIdentity(other, name).status().code(), Code::kPermissionDenied);
  }
}

TEST(AnIdentityOfTheLongestNameIsARoutingId) {
  EXPECT(IdentityText("key", {"w/" + std::string(kMaxNameBytes, 'h'), UINT64_MAX}).size() <= 255);
}

}  // namespace
}  // namespace pathways::wire
