// World: a controller and its standby under a seeded history. Members join, compute, lose their connections and die;
// the controller's process is killed at any point between the record of an input and the last message that comes of it.
//
// Ownership: owns both cores, the ring between them, and the members. Threads: use from one thread.
#ifndef PTPATHWAYS_CONTROLLER_HISTORY_TEST_SUPPORT_H_
#define PTPATHWAYS_CONTROLLER_HISTORY_TEST_SUPPORT_H_

#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "csrc/base/shared_ring.h"
#include "csrc/controller/core.h"
#include "csrc/testing/test.h"
#include "csrc/transport/zmq_api.h"

namespace pathways::controller::history {

using transport::Frames;
using wire::Type;

inline ClusterOptions OptionsOfCluster() {
  ClusterOptions options{"c", "0.1.0"};
  options.data_secret = std::string(32, 'k');
  options.process_space = "space";
  options.lease_ms = 20'000;
  return options;
}

inline std::string BytesOf(const Frames& frames) {
  std::string bytes;
  for (const transport::Frame& frame : frames) bytes += std::to_string(frame.size()) + ":" + std::string(frame.bytes());
  return bytes;
}

inline std::string BytesOf(const Lines::Parcels& parcels) {
  std::string bytes;
  for (const Lines::Parcel& parcel : parcels) bytes += parcel.route + "=" + BytesOf(parcel.frames) + ";";
  return bytes;
}

inline std::string TextOf(const Core::Effects& effects) {
  std::string text;
  for (const auto& [peer, line] : effects.log) text += peer + ": " + line + "\n";
  return text;
}

// A worker or client: its end of the line, and what it does of itself.
struct Peer {
  Peer(bool is_worker, uint64_t number) : is_worker(is_worker), pid(number), line(number, {1 << 16, 1 << 30}) {}
  const bool is_worker;
  const uint64_t pid;
  transport::Line line;
  std::string route;  // empty: it has no connection
  std::string hello;
  bool welcomed = false, dead = false;
  const std::string address = "10.0.0." + std::to_string(pid);
  uint64_t beats = 0;
  uint32_t index = 0;                                                 // of the client
  uint64_t next = 1;                                                  // id
  std::vector<std::pair<uint64_t, std::vector<uint32_t>>> functions;  // with their devices
  std::vector<uint64_t> buffers;
  bool refused = false;              // something that it said
  std::string next_token;            // as it was told
  std::map<uint64_t, int> done;      // of a client: how often it heard of a run
  std::map<uint64_t, int> executed;  // of a worker
  std::map<uint64_t, int> fetched;   // of a client: how often it heard of a FETCH
  std::vector<std::pair<std::string, std::vector<Payload>>> to_say;
};

struct World {
  explicit World(uint64_t seed, int64_t memory) : random(seed), memory(memory) {
    EXPECT_OK(transport::LoadZmq(std::getenv("PW_LIBZMQ") != nullptr ? std::getenv("PW_LIBZMQ") : ""));
    auto made = SharedRing::Make(1 << 24, std::chrono::milliseconds(0));
    EXPECT_OK(made.status());
    ring = *std::move(made);
    Serve();
  }

  uint64_t Pick(uint64_t below) { return random() % below; }
  bool Chance(uint64_t percent) { return Pick(100) < percent; }

  // --- the two processes
  void Serve() {
    Input input;
    input.kind = Input::Kind::kServing;
    input.pid = ++pid;
    input.standby = 1;
    Give(std::move(input));
  }
  // An input of the primary. It may be killed right after it has recorded it, or before all messages are out.
  void Give(Input input) {
    input.now_ms = now;
    if (input.kind == Input::Kind::kTick) input.digest = primary->digest();
    EXPECT(ring->Write(record.Encode(input)));
    Core::Effects effects;
    if (killed) return;
    primary->Apply(std::move(input), effects);
    of_primary += BytesOf(effects.parcels) + TextOf(effects);
    for (Lines::Parcel& parcel : effects.parcels) {
      if (may_die && Chance(1)) killed = true;
      if (killed) return;
      Deliver(parcel);
    }
  }
  void Follow() {
    std::string bytes;
    while (ring->Read(&bytes)) {
      history.push_back(bytes);
      of_standby += ApplyTo(*standby, bytes);
    }
  }
  static std::string ApplyTo(Core& core, const std::string& bytes) {
    Result<Input> input = InputOf(bytes);
    EXPECT_OK(input.status());
    if (input->kind == Input::Kind::kTick) EXPECT_EQ(core.digest(), input->digest);
    Core::Effects effects;
    core.Apply(*std::move(input), effects);
    return BytesOf(effects.parcels) + TextOf(effects);
  }
  void Compare() {
    Follow();
    EXPECT(of_primary == of_standby);
    EXPECT_EQ(primary->digest(), standby->digest());
    EXPECT_EQ(primary->state().StatusJson(now), standby->state().StatusJson(now));
    of_primary.clear();
    of_standby.clear();
  }
  void TakeOver() {
    Follow();  // what the dead process wrote
    of_primary.clear();
    of_standby.clear();
    ++takeovers;
    killed = false;
    primary = std::move(standby);
    // As a fork would: a copy of it.
    standby = std::make_unique<Core>(OptionsOfCluster());
    for (const std::string& bytes : history) (void)ApplyTo(*standby, bytes);
    EXPECT_EQ(primary->state().StatusJson(now), standby->state().StatusJson(now));
    for (auto& peer : peers) peer->route.clear();
    Serve();
  }

  // --- members
  Peer& Add(bool is_worker) {
    peers.push_back(std::make_unique<Peer>(is_worker, peers.size() + 100));
    Peer& peer = *peers.back();
    wire::Hello hello;
    hello.role = is_worker ? wire::Role::kWorker : wire::Role::kClient;
    hello.build = "0.1.0";
    hello.name = "m" + std::to_string(peers.size());
    hello.pid = peer.pid;
    hello.process_space = "space";
    hello.line = peer.line.number();
    hello.secret = SecretOf(peer);
    hello.island = Chance(50) ? "one" : "";
    if (is_worker) hello.devices.resize(1 + Pick(2));
    for (auto& device : hello.devices) device.memory_limit_bytes = memory;
    hello.data_endpoint = "somewhere " + std::to_string(peers.size());
    if (!is_worker) hello.weight = 1 + static_cast<double>(Pick(3));
    peer.hello = wire::Encode(hello);
    Connect(peer);
    return peer;
  }
  static std::string SecretOf(const Peer& peer) {
    return "secret of " + std::to_string(peer.line.number()) + "........";
  }
  void Connect(Peer& peer) {
    peer.route = "route " + std::to_string(++routes);
    if (peer.welcomed) {
      Beat(peer);
    } else {
      Speak(peer, peer.hello, {});
    }
  }
  void Beat(Peer& peer) {
    if (!peer.welcomed) return;
    wire::Heartbeat beat;
    beat.line = peer.line.number();
    beat.secret = SecretOf(peer);
    beat.count = ++peer.beats;
    beat.received = peer.line.Tell();
    beat.live_buffers = peer.buffers.size();
    Speak(peer, wire::Encode(beat), {});
  }
  // By its connection, if it has one; it may end with the message, or without it.
  void Speak(Peer& peer, std::string head, std::vector<Payload> payloads) {
    if (peer.route.empty()) return;
    const std::string route = peer.route;
    if (may_die && Chance(1)) {
      peer.route.clear();
      closing.push_back(route);
      if (Chance(50)) return;
    }
    Input input;
    input.kind = Input::Kind::kMessage;
    input.route = route;
    input.sender = peer.is_worker ? "worker" : "client";
    if (wire::TypeOf(head) == Type::kHello) input.address = peer.address;
    input.head = std::move(head);
    input.payloads = std::move(payloads);
    Give(std::move(input));
  }
  template <typename Body>
  void Say(Peer& peer, const Body& body, std::vector<Payload> payloads = {}) {
    Frames frames;
    frames.emplace_back(wire::Encode(body));
    for (const Payload& payload : payloads) frames.emplace_back(std::string_view(*payload));
    const Frames sent = peer.line.Out(std::move(frames));
    Speak(peer, std::string(sent[0].bytes()), std::move(payloads));
  }
  void Deliver(Lines::Parcel& parcel) {
    for (auto& peer : peers) {
      if (peer->route == parcel.route && !peer->dead) return Hear(*peer, parcel.frames);
    }
  }
  void Hear(Peer& peer, Frames& frames) {
    const wire::Head head = *wire::DecodeHead(frames[0].bytes());
    if (head.header.number == 0) {
      if (head.header.type == Type::kReject) {
        ++rejects;
        peer.dead = true;
        return;
      }
      const wire::Heartbeat beat = *wire::Decode<wire::Heartbeat>(head.body);
      transport::Link::Dropped dropped;
      EXPECT_OK(peer.line.Seen(beat.received, &dropped));
      if (beat.again != 0) again.push_back(&peer);
      return;
    }
    switch (peer.line.In(head.header.number, frames[0].size())) {
      case transport::Link::Verdict::kNew:
        return Take(peer, head);
      case transport::Link::Verdict::kRepeat:
        return;
      default:
        EXPECT_EQ(head.header.number, peer.line.Tell() + 1);  // a message is missing
    }
  }
  void Take(Peer& peer, const wire::Head& head) {
    const auto answer = [&](const auto& body, std::vector<Payload> payloads = {}) {
      peer.to_say.emplace_back(wire::Encode(body), std::move(payloads));
    };
    switch (head.header.type) {
      case Type::kWelcome:
        EXPECT(!peer.welcomed);
        peer.welcomed = true;
        peer.index = wire::Decode<wire::Welcome>(head.body)->peer;
        return;
      case Type::kRegister: {
        wire::Registered registered;
        registered.function = wire::Decode<wire::Register>(head.body)->function;
        registered.host = peer.index;
        if (Chance(10)) registered.status = InvalidArgument("it does not compile");
        return answer(registered);
      }
      case Type::kRun: {
        const uint64_t run = wire::Decode<wire::Run>(head.body)->run;
        ++peer.executed[run];
        wire::Done done;
        done.outcomes.push_back({run, 0, Pick(1000), OkStatus()});
        return answer(done);
      }
      case Type::kFetch: {
        wire::Fetched fetched;
        fetched.request = wire::Decode<wire::Fetch>(head.body)->request;
        fetched.inline_data = std::string(Pick(2000), 'v');
        return answer(fetched);
      }
      case Type::kFetched:
        ++peer.fetched[wire::Decode<wire::Fetched>(head.body)->request];
        return;
      case Type::kReject:
        peer.refused = true;
        return;
      case Type::kRotate:
        peer.next_token = wire::Decode<wire::Rotate>(head.body)->token;
        return;
      case Type::kDone: {
        const wire::Done done = *wire::Decode<wire::Done>(head.body);
        for (const wire::RunOutcome& outcome : done.outcomes) ++peer.done[outcome.run];
        return;
      }
      default:
        return;
    }
  }
  uint64_t Id(Peer& client) { return (uint64_t{client.index} << wire::kClientShift) | client.next++; }
  uint32_t Devices() const {
    uint32_t count = 0;
    for (const auto& host : primary->state().HostDescriptions()) count += static_cast<uint32_t>(host.devices.size());
    return count;
  }

  void Compute(Peer& client) {
    const uint32_t devices = Devices();
    if (devices == 0) return;
    const auto device = static_cast<uint32_t>(Pick(devices));
    switch (Pick(8)) {
      case 0: {
        wire::Register request;
        request.function = Id(client);
        request.name = "f";
        request.one_device = Chance(70);
        request.devices = {device};
        if (!request.one_device) request.devices.push_back(static_cast<uint32_t>(Pick(devices)));
        client.functions.emplace_back(request.function, request.devices);
        return Say(client, request,
                   {std::make_shared<const std::string>(Pick(9000), 'm'), std::make_shared<const std::string>("o")});
      }
      case 1: {
        wire::Put put;
        put.buffer = put.key = Id(client);
        put.device = device;
        put.type = {DType::kF32, {static_cast<int64_t>(1 + Pick(2000))}};
        client.buffers.push_back(put.buffer);
        return Say(client, put);
      }
      case 2: {
        if (client.buffers.empty()) return;
        wire::Free free;
        free.host = static_cast<uint32_t>(Pick(primary->state().HostDescriptions().size()));
        free.buffers = {client.buffers[Pick(client.buffers.size())]};
        return Say(client, free);
      }
      case 3:
        return Fetch(client, device);
      case 4: {
        wire::Query query;
        query.kind = wire::QueryKind::kStatus;
        query.request = Id(client);
        return Say(client, query);
      }
      case 5: {
        wire::RequestSlice request;
        request.request = Id(client);
        request.device_count = static_cast<uint32_t>(1 + Pick(2));
        return Say(client, request);
      }
      default: {
        if (client.functions.empty()) return;
        const auto& [function, on] = client.functions[Pick(client.functions.size())];
        wire::Run run;
        run.run = Id(client);
        run.function = function;
        run.first_output = Id(client);
        run.devices = on;
        client.done[run.run] += 0;
        return Say(client, run);
      }
    }
  }

  void Fetch(Peer& client, uint32_t device) {
    wire::Fetch fetch;
    fetch.request = Id(client);
    fetch.buffer = client.buffers.empty() ? fetch.request : client.buffers.back();
    fetch.device = device;
    client.fetched[fetch.request] += 0;
    Say(client, fetch);
  }

  // Whatever was asked for while something else was under way.
  void Settle() {
    while (!again.empty() && !killed) {
      Peer& peer = *again.back();
      again.pop_back();
      std::vector<std::pair<std::string, std::vector<Payload>>> sent;
      peer.line.Again([&](Frames frames) {
        std::vector<Payload> payloads;
        for (size_t i = 1; i < frames.size(); ++i) {
          payloads.push_back(std::make_shared<const std::string>(frames[i].bytes()));
        }
        sent.emplace_back(std::string(frames[0].bytes()), std::move(payloads));
      });
      for (auto& [head, payloads] : sent) Speak(peer, std::move(head), std::move(payloads));
    }
    if (killed) {
      again.clear();
      TakeOver();
    }
  }
  void Answer(Peer& peer) {
    auto said = std::exchange(peer.to_say, {});
    for (auto& [head, payloads] : said) {
      Frames frames;
      frames.emplace_back(std::move(head));
      const Frames sent = peer.line.Out(std::move(frames));
      Speak(peer, std::string(sent[0].bytes()), std::move(payloads));
    }
  }
  void Close(const std::string& route) {
    Input input;
    input.kind = Input::Kind::kClosed;
    input.route = route;
    Give(std::move(input));
  }
  void Tick(uint64_t ms) {
    now += ms;
    Input input;
    for (const uint64_t process : primary->ProcessesInDoubt()) {
      for (const auto& peer : peers) {
        if (peer->pid == process && peer->dead) input.gone.push_back(process);
      }
    }
    Give(std::move(input));
    Settle();
    for (auto& peer : peers) {
      if (peer->dead) continue;
      if (peer->route.empty()) {
        Connect(*peer);
      } else {
        Beat(*peer);
      }
      Settle();
    }
  }

  void Step() {
    switch (Pick(16)) {
      case 0:
        if (peers.size() < 9) Add(Chance(50));
        break;
      case 1:
        Tick(50 + (Chance(3) ? Pick(3000) : Pick(200)));
        break;
      case 2: {
        Input input;  // a stranger
        input.kind = Input::Kind::kMessage;
        input.route = "stranger";
        input.head = Chance(50) ? "nonsense" : wire::Encode(wire::Heartbeat{});
        Give(std::move(input));
        break;
      }
      case 3:
        if (!closing.empty()) {
          const std::string route = closing.front();
          closing.pop_front();
          Close(route);
        }
        break;
      case 4:
        if (may_die && Chance(3) && !peers.empty()) {
          Peer& peer = *peers[Pick(peers.size())];
          if (peer.is_worker && !hosts_may_die) break;
          peer.dead = true;
          host_died = host_died || peer.is_worker;
          if (!peer.route.empty()) closing.push_back(std::exchange(peer.route, {}));
        }
        break;
      case 5:
        if (may_die && Chance(5)) killed = true;
        break;
      default: {
        if (peers.empty()) break;
        Peer& peer = *peers[Pick(peers.size())];
        if (peer.dead || !peer.welcomed) break;
        if (peer.is_worker) {
          Answer(peer);
        } else {
          Compute(peer);
        }
      }
    }
    Settle();
  }
  // Nothing else happens; everybody is back, and has said and heard everything.
  void Quiesce() {
    may_die = false;
    for (int i = 0; i < 300; ++i) {
      while (!closing.empty()) {
        const std::string route = closing.front();
        closing.pop_front();
        Close(route);
        Settle();
      }
      Tick(50);
      for (auto& peer : peers) {
        if (!peer->dead && peer->welcomed) Answer(*peer);
        Settle();
      }
    }
  }

  std::mt19937_64 random;
  const int64_t memory;
  std::unique_ptr<Core> primary = std::make_unique<Core>(OptionsOfCluster());
  std::unique_ptr<Core> standby = std::make_unique<Core>(OptionsOfCluster());
  std::unique_ptr<SharedRing> ring;
  RecordOf record;
  std::vector<std::string> history;  // every record
  std::string of_primary, of_standby;
  std::vector<std::unique_ptr<Peer>> peers;
  std::deque<std::string> closing;  // connections of whose end the controller has not heard
  std::vector<Peer*> again;         // who was asked to send again
  uint64_t now = 1000, routes = 0, pid = 1;
  int takeovers = 0, rejects = 0;
  bool killed = false, may_die = true, host_died = false, hosts_may_die = false;
};

}  // namespace pathways::controller::history

#endif  // PTPATHWAYS_CONTROLLER_HISTORY_TEST_SUPPORT_H_
