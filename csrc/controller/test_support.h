// A cluster for tests of the controller's decisions: peers that speak to a ClusterState without sockets.
//
// Ownership: plain values. Threads: use from one thread.
#ifndef PTPATHWAYS_CONTROLLER_TEST_SUPPORT_H_
#define PTPATHWAYS_CONTROLLER_TEST_SUPPORT_H_

#include <string>
#include <utility>
#include <vector>

#include "csrc/controller/cluster_state.h"
#include "csrc/testing/test.h"

namespace pathways::controller {

struct Cluster {
  ClusterState state{ClusterOptions{"c", "0.1.0"}};
  Outputs out;
  uint64_t now = 1000;

  template <typename Body>
  Outputs Tell(const Connection& from, const Body& body, std::vector<Payload> payloads = {}) {
    out.clear();
    state.OnMessage(from, wire::Encode(body), std::move(payloads), now, out);
    return std::move(out);
  }
  Outputs AddHost(const std::string& name, size_t devices = 1, const std::string& island = "", int64_t memory = 0) {
    wire::Hello hello;
    hello.role = wire::Role::kWorker;
    hello.build = "0.1.0";
    hello.name = name;
    hello.island = island;
    hello.devices.resize(devices);
    for (wire::DeviceDescription& device : hello.devices) device.memory_limit_bytes = memory;
    hello.staging_limit_bytes = 1 << 20;
    return Tell("w-" + name, hello);
  }
  uint32_t AddClient(const Connection& connection, double weight = 1, int32_t priority = 0) {
    wire::Hello hello;
    hello.role = wire::Role::kClient;
    hello.build = "0.1.0";
    hello.name = connection;
    hello.weight = weight;
    hello.priority = priority;
    Outputs answer = Tell(connection, hello);
    return wire::Decode<wire::Welcome>(wire::DecodeHead(answer.at(0).head)->body)->peer;
  }
  static uint64_t Id(uint32_t client, uint64_t n) { return (uint64_t{client} << wire::kClientShift) | n; }
  Outputs Register(const Connection& from, uint32_t client, uint64_t n, uint32_t device) {
    return Register(from, client, n, std::vector<uint32_t>{device});
  }
  Outputs Register(const Connection& from, uint32_t client, uint64_t n, std::vector<uint32_t> devices) {
    wire::Register request;
    request.function = Id(client, n);
    request.name = "f";
    request.one_device = devices.size() == 1;
    request.devices = std::move(devices);
    return Tell(from, request, {std::make_shared<const std::string>("m"), std::make_shared<const std::string>("o")});
  }
  uint32_t Number(const std::string& host) const {
    for (const wire::HostDescription& known : state.HostDescriptions()) {
      if (known.name == host) return known.host;
    }
    return UINT32_MAX;
  }
  Outputs Registered(const std::string& host, uint32_t client, uint64_t n, Status status = OkStatus()) {
    wire::Registered answer;
    answer.function = Id(client, n);
    answer.host = Number(host);
    answer.status = std::move(status);
    return Tell("w-" + host, answer);
  }
  Outputs Run(const Connection& from, uint32_t client, uint64_t n, uint64_t function,
              std::vector<uint32_t> devices = {0}) {
    wire::Run run;
    run.run = Id(client, n);
    run.function = Id(client, function);
    run.first_output = Id(client, n + 1);
    run.devices = std::move(devices);
    return Tell(from, run);
  }
  // A program of one step: `function` on the devices of one host, whose only slot is argument and result.
  wire::RegisterPlan Plan(uint32_t client, uint64_t program, uint32_t host, std::vector<uint32_t> devices,
                          uint64_t function) {
    wire::RegisterPlan plan;
    plan.program = Id(client, program);
    plan.host = host;
    plan.name = "p";
    wire::PlanSlot slot;
    slot.type = {DType::kF32, {}};
    slot.devices = devices;
    for (uint32_t i = 0; i < devices.size(); ++i) slot.shards.push_back(i);
    plan.slots = {slot, slot};
    plan.inputs = {{0, 1}};
    plan.outputs = {{1, 1}};
    plan.nodes = {"f"};
    wire::PlanStep step;
    step.kind = wire::StepKind::kExecute;
    step.function = Id(client, function);
    step.arguments = {0};
    step.results = {1};
    plan.steps = {step};
    return plan;
  }
  Outputs PlanReady(const std::string& host, uint32_t client, uint64_t program, Status status = OkStatus()) {
    wire::PlanReady answer;
    answer.program = Id(client, program);
    answer.host = Number(host);
    answer.status = std::move(status);
    return Tell("w-" + host, answer);
  }
  static wire::RunProgram ProgramRun(uint32_t client, uint64_t n, uint64_t program) {
    wire::RunProgram run;
    run.run = Id(client, n);
    run.program = Id(client, program);
    run.first_output = Id(client, n + 1);
    run.output_count = 1;
    run.first_key = Id(client, n + 2);
    run.arguments = {Id(client, 1)};
    return run;
  }
  Outputs Done(const std::string& host, std::vector<uint64_t> runs, uint64_t device_us = 0,
               Status status = OkStatus()) {
    wire::Done done;
    for (const uint64_t run : runs) done.outcomes.push_back({run, 0, device_us, status});
    return Tell("w-" + host, done);
  }
};

inline wire::Type TypeOf(const Outgoing& outgoing) { return wire::DecodeHead(outgoing.head)->header.type; }
inline uint64_t SequenceOf(const Outgoing& outgoing) { return wire::DecodeHead(outgoing.head)->header.sequence; }
template <typename Body>
Body Read(const Outgoing& outgoing) {
  return *wire::Decode<Body>(wire::DecodeHead(outgoing.head)->body);
}

}  // namespace pathways::controller

#endif  // PTPATHWAYS_CONTROLLER_TEST_SUPPORT_H_
