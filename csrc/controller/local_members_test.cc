#include "csrc/controller/local_members.h"

#include <atomic>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "csrc/testing/test.h"

namespace pathways::controller {
namespace {

// What a member has taken, by heads.
struct Taken {
  std::vector<std::string> heads;
  LocalMembers::Sink sink() {
    return [this](std::string head, std::vector<Payload>) { heads.push_back(std::move(head)); };
  }
};

TEST(AHostHasAMessageAtOnceAndAClientWhenItIsDelivered) {
  LocalMembers members;
  Taken of_host, of_client;
  const Connection host = members.AttachHost(of_host.sink());
  EXPECT(!members.has_clients());
  const Connection client = members.AttachClient(of_client.sink());
  EXPECT(members.has_clients());
  LocalMembers::Clients waiting;
  for (const char* head : {"1", "2"}) {
    members.Put({host, head, {}}, waiting);
    members.Put({client, head, {}}, waiting);
  }
  members.Put({"local/9", "3", {}}, waiting);  // nobody's
  EXPECT_EQ(of_host.heads, (std::vector<std::string>{"1", "2"}));
  EXPECT(of_client.heads.empty());
  ASSERT_EQ(waiting.size(), 1u);
  waiting[0]->Deliver();
  EXPECT_EQ(of_client.heads, (std::vector<std::string>{"1", "2"}));
  EXPECT(members.Detach(host) == nullptr);
  EXPECT(members.Detach(client) == waiting[0]);
  EXPECT(!members.has_clients());
  members.Put({client, "4", {}}, waiting);
  waiting[0]->Deliver();
  EXPECT_EQ(of_client.heads.size(), 2u);
}

TEST(ASinkThatDeliversIsNotCalledWithinItself) {
  LocalMembers members;
  std::shared_ptr<LocalMembers::Client> self;
  int depth = 0, deepest = 0;
  std::vector<std::string> heads;
  const Connection client = members.AttachClient([&](std::string head, std::vector<Payload>) {
    deepest = std::max(deepest, ++depth);
    heads.push_back(std::move(head));
    self->Deliver();
    --depth;
  });
  LocalMembers::Clients waiting;
  for (const char* head : {"1", "2", "3"}) members.Put({client, head, {}}, waiting);
  self = waiting[0];
  self->Deliver();
  EXPECT_EQ(heads, (std::vector<std::string>{"1", "2", "3"}));
  EXPECT_EQ(deepest, 1);
}

TEST(WhoeverLeavesWithinItsSinkHearsNoMore) {
  LocalMembers members;
  std::shared_ptr<LocalMembers::Client> self;
  int heard = 0;
  const Connection client = members.AttachClient([&](std::string, std::vector<Payload>) {
    ++heard;
    self->Finish();  // which does not wait for itself
  });
  LocalMembers::Clients waiting;
  for (const char* head : {"1", "2"}) members.Put({client, head, {}}, waiting);
  self = waiting[0];
  self->Deliver();
  EXPECT_EQ(heard, 1);
}

TEST(WhoeverLeavesWaitsForADeliveryThatIsUnderWay) {
  LocalMembers members;
  std::latch began{1}, may_end{1};
  std::atomic<bool> ended = false, finished = false;
  const Connection client = members.AttachClient([&](std::string, std::vector<Payload>) {
    began.count_down();
    may_end.wait();
    ended = true;
  });
  LocalMembers::Clients waiting;
  members.Put({client, "1", {}}, waiting);
  std::thread delivery([&] { waiting[0]->Deliver(); });
  began.wait();
  std::thread leaving([&] {
    waiting[0]->Finish();
    EXPECT(ended);
    finished = true;
  });
  EXPECT(!finished);
  may_end.count_down();
  delivery.join();
  leaving.join();
  EXPECT(finished);
}

}  // namespace
}  // namespace pathways::controller
