// Controller, its standby, and the link from this process's client to its embedded controller.
#include <pybind11/stl.h>

#include <mutex>
#include <random>

#include "csrc/base/log.h"
#include "csrc/base/thread_annotations.h"
#include "csrc/bindings/bindings.h"
#include "csrc_generated/version.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

struct Embedded {
  std::mutex mutex;
  std::shared_ptr<controller::Controller> controller PW_GUARDED_BY(mutex);  // null: there is none
};

Embedded& TheEmbedded() {
  static auto* const embedded = new Embedded;
  return *embedded;
}

std::string RandomName() {
  static constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::random_device random;
  std::string name;
  for (int i = 0; i < 10; ++i) name += kLetters[random() % (sizeof kLetters - 1)];
  return name;
}

// Messages to the embedded controller are handled on the thread that sends them.
class EmbeddedLink : public client::Link {
 public:
  EmbeddedLink(std::shared_ptr<controller::Controller> controller, Sink sink)
      : controller_(std::move(controller)), connection_(controller_->AttachLocal(std::move(sink))) {}
  ~EmbeddedLink() override { Close(); }
  Status Send(std::string head, std::vector<client::Payload> payloads) override {
    controller_->FromLocal(connection_, std::move(head), std::move(payloads));
    return OkStatus();
  }
  void Close() override { controller_->DetachLocal(connection_); }

 private:
  const std::shared_ptr<controller::Controller> controller_;
  const controller::Connection connection_;
};

struct PyController {
  std::shared_ptr<controller::Controller> controller;
};

controller::ControllerOptions OptionsOf(const py::dict& options) {
  controller::ControllerOptions controller_options;
  controller_options.cluster.build = PTPATHWAYS_VERSION;
  controller_options.cluster.cluster = Option<std::string>(options, "cluster", "");
  if (controller_options.cluster.cluster.empty()) controller_options.cluster.cluster = RandomName();
  controller_options.keys =
      Unwrap(transport::KeysOfToken(Option<std::string>(options, "token", ""), transport::Role::kController));
  controller_options.bind = options["bind"].cast<std::vector<std::string>>();
  controller_options.cluster.heartbeat_interval_ms =
      static_cast<uint32_t>(Option<double>(options, "heartbeat_interval_s", 0.5) * 1000);
  controller_options.cluster.lease_ms = static_cast<uint32_t>(Option<double>(options, "lease_s", 60.0) * 1000);
  controller_options.cluster.overdue_ms = static_cast<uint32_t>(Option<double>(options, "overdue_s", 30.0) * 1000);
  controller_options.cluster.expected_hosts = Option<std::vector<std::string>>(options, "expected_hosts", {});
  scheduler::SchedulerOptions& scheduling = controller_options.cluster.scheduling;
  const std::string policy = Option<std::string>(options, "policy", "fifo");
  scheduling.arbitrate = policy != "arrival";
  scheduling.policy = Unwrap(scheduler::ParsePolicy(scheduling.arbitrate ? policy : "fifo"));
  const double queue_ms = Option<double>(options, "queue_ms", 20);
  if (!(queue_ms > 0 && queue_ms <= 60'000)) {
    Raise(InvalidArgument("expected queue_ms above 0 and at most 60000, got " + std::to_string(queue_ms)));
  }
  scheduling.queue_us = static_cast<uint64_t>(queue_ms * 1000);
  logging::SetLevel(logging::LevelOf(Option<std::string>(options, "log_level", "warning")));
  return controller_options;
}

PyController MakeController(const py::dict& options) {
  controller::ControllerOptions controller_options = OptionsOf(options);
  const bool embedded = Option<bool>(options, "embedded", true);
  Embedded& slot = TheEmbedded();
  std::lock_guard lock(slot.mutex);
  if (embedded && slot.controller) {
    Raise(Status(Code::kAlreadyExists, "this process already has an embedded controller; close it first"));
  }
  std::shared_ptr<controller::Controller> controller =
      Unwrap(controller::Controller::Start(std::move(controller_options)));
  if (embedded) slot.controller = controller;
  return {controller};
}

// A controller that begins in another process has this long until its address is free.
constexpr std::chrono::milliseconds kBindPatience{3000};

struct PyStandby {
  controller::ControllerOptions options;
  std::unique_ptr<controller::Standby> standby;
  bool is_successor = false;  // the next child is not the first
};

std::unique_ptr<PyStandby> MakeStandby(const py::dict& options) {
  auto made = std::make_unique<PyStandby>();
  made->options = OptionsOf(options);
  made->options.cluster = controller::Completed(std::move(made->options.cluster), true);
  made->standby = std::make_unique<controller::Standby>(made->options.cluster, made->options.bind);
  return made;
}

PyController Serve(PyStandby& self) {
  controller::ControllerOptions options = self.options;
  options.bind = self.standby->endpoints();
  if (const std::string token = self.standby->token(); !token.empty()) {
    options.keys = Unwrap(transport::KeysOfToken(token, transport::Role::kController));
  }
  if (self.is_successor) options.bind_patience = kBindPatience;
  return {
      Unwrap(controller::Controller::Start(std::move(options), self.standby->TakeCore(), self.standby->TakeJournal()))};
}

py::tuple Follow(PyStandby& self, int child) {
  Result<controller::Standby::End> end = [&] {
    py::gil_scoped_release release;
    return self.standby->Follow(child);
  }();
  Check(end.status());
  self.is_successor = true;
  return py::make_tuple(end->code, end->signal, end->why_not);
}

void WaitForHosts(PyController& self, uint32_t count, double timeout_s) {
  const auto deadline = std::chrono::steady_clock::now() + Milliseconds(timeout_s);
  for (;;) {
    Status status;
    {
      py::gil_scoped_release release;
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
      const bool final_try = left <= std::chrono::milliseconds(100);
      status = self.controller->WaitForHosts(
          count, final_try ? std::max(left, std::chrono::milliseconds(0)) : std::chrono::milliseconds(100));
      if (status.code() != Code::kDeadlineExceeded || final_try) {
        py::gil_scoped_acquire acquire;
        if (status.code() == Code::kDeadlineExceeded) {
          status = status.WithPrefix("after " + std::string(py::str(py::float_(timeout_s))) + " s");
        }
        return Check(status);
      }
    }
    if (PyErr_CheckSignals() != 0) throw py::error_already_set();
  }
}

void Close(PyController& self, const std::string& reason) {
  {
    Embedded& slot = TheEmbedded();
    std::lock_guard lock(slot.mutex);
    if (slot.controller == self.controller) slot.controller.reset();
  }
  py::gil_scoped_release release;
  self.controller->Close(reason);
}

}  // namespace

std::shared_ptr<controller::Controller> EmbeddedController() {
  Embedded& slot = TheEmbedded();
  std::lock_guard lock(slot.mutex);
  return slot.controller;
}

Result<std::unique_ptr<client::Link>> OpenEmbeddedLink(client::Link::Sink sink) {
  std::shared_ptr<controller::Controller> controller = EmbeddedController();
  if (!controller) {
    return FailedPrecondition("this process has no embedded controller; start one or give a controller's address");
  }
  return std::unique_ptr<client::Link>(std::make_unique<EmbeddedLink>(std::move(controller), std::move(sink)));
}

void BindController(py::module_& module) {
  py::class_<PyController>(module, "Controller")
      .def(py::init(&MakeController), py::arg("options"))
      .def_property_readonly("endpoints", [](const PyController& self) { return self.controller->endpoints(); })
      .def_property_readonly("cluster", [](const PyController& self) { return self.controller->cluster(); })
      .def(
          "rotate",
          [](PyController& self, const std::string& cluster, const std::string& worker, const std::string& client) {
            Status status;
            {
              py::gil_scoped_release release;
              status = self.controller->Rotate({cluster, worker, client});
            }
            Check(status);
          },
          py::arg("cluster"), py::arg("worker"), py::arg("client"))
      .def_property_readonly("rotating", [](const PyController& self) { return self.controller->rotating(); })
      .def_property_readonly("token", [](const PyController& self) { return self.controller->token(); })
      .def("wait_for_hosts", &WaitForHosts, py::arg("count"), py::arg("timeout_s"))
      .def(
          "status_json", [](PyController& self) { return self.controller->StatusJson(); },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "host_exited",
          [](PyController& self, const std::string& name, const std::string& reason) {
            self.controller->HostExited(name, reason);
          },
          py::arg("name"), py::arg("reason"), py::call_guard<py::gil_scoped_release>())
      .def("close", &Close, py::arg("reason"));
  py::class_<PyStandby>(module, "Standby")
      .def(py::init(&MakeStandby), py::arg("options"))
      .def_property_readonly("cluster", [](const PyStandby& self) { return self.options.cluster.cluster; })
      .def_property_readonly("endpoints", [](const PyStandby& self) { return self.standby->endpoints(); })
      .def_property_readonly("token", [](const PyStandby& self) { return self.standby->token(); })
      .def_property_readonly("is_successor", [](const PyStandby& self) { return self.is_successor; })
      .def("prepare", [](PyStandby& self) { Check(self.standby->Prepare()); })
      .def("serve", &Serve)
      .def("follow", &Follow, py::arg("child"));
}

}  // namespace pathways::bindings
