#include "csrc/compiled/length_program.h"

#include <atomic>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "csrc/client/test_support.h"
#include "csrc/compiled/program.h"
#include "csrc/hlo/test_hlo.h"
#include "csrc/testing/test.h"
#include "csrc/transport/zmq_api.h"

namespace pathways::compiled {
namespace {

// A cluster of one host whose results are all 0, and of which the test sees what is sent.
class ZeroLink final : public client::WireLink {
 public:
  ZeroLink(std::shared_ptr<client::Wire> wire, const std::function<void()>* at_fetch)
      : WireLink(wire), wire_(std::move(wire)), at_fetch_(at_fetch) {}
  Status Send(std::string head, std::vector<client::Payload> payloads) override {
    PW_RETURN_IF_ERROR(WireLink::Send(head, std::move(payloads)));
    const auto decoded = wire::DecodeHead(head);
    if (!decoded.ok() || decoded->header.type != wire::Type::kFetch) return OkStatus();
    (*at_fetch_)();
    wire::Fetched answer;
    answer.request = wire_->Last<wire::Fetch>().request;
    answer.size = sizeof(int64_t);
    answer.inline_data.assign(sizeof(int64_t), '\0');
    wire_->sink(wire::Encode(answer), {});
    return OkStatus();
  }

 private:
  const std::shared_ptr<client::Wire> wire_;
  const std::function<void()>* const at_fetch_;
};

// A computation for all lengths of a kind whose modules have no parameters and give an s64, and two of these.
struct LengthCluster {
  LengthCluster() {
    EXPECT_OK(transport::LoadZmq(std::getenv("PW_LIBZMQ") != nullptr ? std::getenv("PW_LIBZMQ") : ""));
    client::SessionOptions session_options;
    session_options.link = [this](client::Link::Sink sink,
                                  std::function<void(Status)>) -> Result<std::unique_ptr<client::Link>> {
      wire->sink = std::move(sink);
      return std::unique_ptr<client::Link>(std::make_unique<ZeroLink>(wire, &at_fetch));
    };
    session = *client::Session::Connect(session_options);
    values::ClientOptions options;
    options.logical_devices = 1;
    client = *values::ClientState::Create(session, options);
    EXPECT_OK(client->Bind(0, {0}));
    compiler = std::make_shared<Compiler>(client);
    first = NewProgram(1);
    other = NewProgram(2);
    hlo::LengthModule module;
    module.module = ModuleOf(7);
    module.results = {{DType::kS64, {}}};
    module.growing_results = {{}};
    common = std::make_shared<LengthProgram>(std::move(module), first, std::vector<hlo::ModuleNumber>());
  }
  ~LengthCluster() { session->Close("the test is over"); }

  static std::string ModuleOf(int64_t value) {
    hlo::HloBuilder builder;
    builder.Add("constant", hlo::ShapeProto(5, {}), {}, hlo::IndexConstant(value));
    return builder.Build("zero" + std::to_string(value));
  }
  std::shared_ptr<Program> NewProgram(int64_t value) const {
    auto program = std::make_shared<Program>();
    program->compiler = compiler;
    program->spec.name = "zero" + std::to_string(value);
    program->spec.format = "hlo";
    program->spec.module = ModuleOf(value);
    program->spec.options = "options";
    program->spec.outputs = {{DType::kS64, {}}};
    program->spec.outputs_known = true;
    program->key = program->spec.name;
    program->parameters.emplace();
    return program;
  }
  PJRT_Device* device() const { return client->devices().all()[0]; }
  bool Serves() { return common->Serves(*other, device(), device()->devices(), {}); }
  Status Run() { return common->Run(*other, device()->devices(), {}, {}, {}).status(); }
  size_t compiles() { return wire->All<wire::Register>().size(); }
  size_t fetches() { return wire->All<wire::Fetch>().size(); }

  std::function<void()> at_fetch = [] {};
  const std::shared_ptr<client::Wire> wire = std::make_shared<client::Wire>();
  std::shared_ptr<client::Session> session;
  std::shared_ptr<values::ClientState> client;
  std::shared_ptr<Compiler> compiler;
  std::shared_ptr<Program> first, other;
  std::shared_ptr<LengthProgram> common;
};

TEST(ComputationsForAllLengthsKeepTheirCodeWhileTheyAreProved) {
  LengthCluster cluster;
  int asked = 0;
  cluster.at_fetch = [&] {
    ++asked;
    EXPECT(!cluster.common->GiveUpCode());
  };
  EXPECT(cluster.Serves());
  EXPECT_EQ(asked, 2);
  EXPECT_EQ(cluster.compiles(), size_t{2});
  EXPECT(cluster.common->GiveUpCode());
}

TEST(CodeThatWasGivenUpIsCompiledAgainAndNotProvedAgain) {
  LengthCluster cluster;
  EXPECT(cluster.Serves());
  EXPECT_OK(cluster.Run());
  EXPECT_EQ(cluster.compiles(), size_t{2});
  EXPECT(cluster.common->GiveUpCode());
  EXPECT(cluster.Serves());
  EXPECT_EQ(cluster.fetches(), size_t{2});
  cluster.other->spec.options = "others";  // what was proved had not these
  EXPECT_OK(cluster.Run());
  EXPECT_OK(cluster.Run());
  EXPECT_EQ(cluster.compiles(), size_t{3});
  EXPECT_EQ(cluster.fetches(), size_t{2});
  EXPECT(cluster.common->GiveUpCode());
}

TEST(ThreadsThatRunItCompileItAgainWheneverItIsGivenUp) {
  LengthCluster cluster;
  EXPECT(cluster.Serves());
  std::atomic<int> running{2};
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) {
    threads.emplace_back([&] {
      for (int run = 0; run < 100; ++run) EXPECT_OK(cluster.Run());
      --running;
    });
  }
  while (running > 0) cluster.common->GiveUpCode();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cluster.wire->All<wire::Run>().size(), size_t{202});
  EXPECT(cluster.common->GiveUpCode());
}

TEST(ComputationsForAllLengthsMakeRoomWhenTheyAreUsedLeastLately) {
  LengthCluster cluster;
  EXPECT(cluster.Serves());  // the first program is compiled, then the common one
  cluster.compiler->code().MakeRoom(nullptr);
  EXPECT_OK(cluster.Run());
  EXPECT_EQ(cluster.compiles(), size_t{2});  // the first program was used before
  EXPECT_OK(cluster.first->Registered().status());
  EXPECT_EQ(cluster.compiles(), size_t{3});
  wire::Registered answer;
  answer.function = (*cluster.first->Registered())->id();
  answer.code_room = 10;
  cluster.wire->sink(wire::Encode(answer), {});
  EXPECT_OK(cluster.other->Registered().status());  // needs room
  EXPECT_EQ(cluster.compiles(), size_t{4});
  EXPECT_OK(cluster.first->Registered().status());
  EXPECT_EQ(cluster.compiles(), size_t{4});
  EXPECT_OK(cluster.Run());
  EXPECT_EQ(cluster.compiles(), size_t{5});
}

}  // namespace
}  // namespace pathways::compiled
