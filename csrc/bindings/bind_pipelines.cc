// Input pipelines: opening them, asking for parts of batches, and buffers that they fill.
#include <pybind11/stl.h>

#include "csrc/bindings/bindings.h"
#include "csrc/bindings/tilings.h"
#include "csrc/plugin/adopt.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

using client::Session;

}  // namespace

void BindPipelines(py::module_& module) {
  module.def("start_declaring", &plugin::StartDeclaring);
  module.def("stop_declaring", [] {
    py::list found;
    for (const plugin::Declared& one : plugin::StopDeclaring()) {
      found.append(py::make_tuple(one.device_id, one.key, TilingToPython(one.tiling), py::tuple(py::cast(one.devices)),
                                  py::tuple(py::cast(one.dims))));
    }
    return found;
  });
  py::class_<client::Query>(module, "Question")
      .def_property_readonly("done", [](const client::Query& self) { return self.done->IsReady(); })
      .def(
          "wait",
          [](const client::Query& self, double timeout_s, const std::string& what) {
            Check(WaitFor(self.done, timeout_s, what));
            return py::bytes(self.answer->payload);
          },
          py::arg("timeout_s"), py::arg("what"));
  module.def(
      "open_pipeline",
      [](const std::shared_ptr<Session>& session, uint64_t pipeline, uint32_t host, const py::bytes& given,
         uint32_t workers, double open_timeout_s, double batch_timeout_s, const std::string& name) {
        wire::OpenPipeline open;
        open.pipeline = pipeline;
        open.host = host;
        open.workers = workers;
        open.open_timeout_ms = static_cast<uint64_t>(Milliseconds(open_timeout_s).count());
        open.batch_timeout_ms = static_cast<uint64_t>(Milliseconds(batch_timeout_s).count());
        open.name = name;
        return Unwrap(session->queries().OpenPipeline(std::move(open), std::string(given)));
      },
      py::arg("session"), py::arg("pipeline"), py::arg("host"), py::arg("given"), py::kw_only(), py::arg("workers"),
      py::arg("open_timeout_s"), py::arg("batch_timeout_s"), py::arg("name"));
  module.def(
      "mint_pipeline", [](const std::shared_ptr<Session>& session) { return session->queries().MintPipeline(); },
      py::arg("session"));
  module.def(
      "feed",
      [](const std::shared_ptr<Session>& session, uint64_t pipeline, uint32_t host, uint32_t worker,
         std::vector<uint64_t> keys, const std::string& what) {
        wire::Feed feed;
        feed.pipeline = pipeline;
        feed.host = host;
        feed.worker = worker;
        feed.keys = std::move(keys);
        feed.what = what;
        return Unwrap(session->queries().Feed(std::move(feed)));
      },
      py::arg("session"), py::arg("pipeline"), py::arg("host"), py::arg("worker"), py::arg("keys"), py::arg("what"));
  module.def(
      "close_pipeline",
      [](const std::shared_ptr<Session>& session, uint64_t pipeline, uint32_t host) {
        session->queries().ClosePipeline(pipeline, host);
      },
      py::arg("session"), py::arg("pipeline"), py::arg("host"));
}

}  // namespace pathways::bindings
