// CollectiveGroup: processes that reduce together without a cluster, by a name and their ranks. For measuring and for
// tests of the transport; programs get their collectives from XLA.
#include <pybind11/stl.h>

#include <utility>

#include "csrc/bindings/bindings.h"
#include "csrc/collective/communicator.h"
#include "csrc/dataplane/data_plane.h"

namespace py = pybind11;

namespace pathways::bindings {
namespace {

class NoTransfers : public dataplane::DataSink {
 public:
  void OnBytes(std::string_view, uint64_t, uint64_t, uint64_t, std::span<const std::byte>,
               transport::BulkLease) override {}
  void OnTransferFailed(std::string_view, uint64_t, const Status&) override {}
  void OnSendFailed(const std::string&, uint64_t, const Status&) override {}
};

DType DTypeOf(const py::buffer_info& info) {
  const std::string& format = info.format;
  if (format == "?") return DType::kPred;
  if (format == "f") return DType::kF32;
  if (format == "d") return DType::kF64;
  if (format == "e") return DType::kF16;
  const bool is_signed = format == "b" || format == "h" || format == "i" || format == "l" || format == "q";
  const bool is_unsigned = format == "B" || format == "H" || format == "I" || format == "L" || format == "Q";
  if (!is_signed && !is_unsigned) return DType::kInvalid;
  switch (info.itemsize) {
    case 1:
      return is_signed ? DType::kS8 : DType::kU8;
    case 2:
      return is_signed ? DType::kS16 : DType::kU16;
    case 4:
      return is_signed ? DType::kS32 : DType::kU32;
    default:
      return is_signed ? DType::kS64 : DType::kU64;
  }
}

Result<hlo::Reduction> ReductionOf(const std::string& name) {
  using hlo::Reduction;
  for (const Reduction reduction : {Reduction::kSum, Reduction::kProduct, Reduction::kMin, Reduction::kMax,
                                    Reduction::kAnd, Reduction::kOr, Reduction::kXor}) {
    if (collective::ReductionName(reduction) == name) return reduction;
  }
  return InvalidArgument("the reduction must be sum, product, min, max, and, or or xor, got '" + name + "'");
}

// One rank: a host with one device, in one gang that never ends.
class CollectiveGroup {
 public:
  CollectiveGroup(const std::string& name, uint32_t rank, uint32_t size, const py::dict& options)
      : name_(name), rank_(rank), size_(size) {
    if (size == 0 || rank >= size) {
      Raise(InvalidArgument("a rank below the size of the group is required, got rank " + std::to_string(rank) +
                            " of " + std::to_string(size)));
    }
    collective::CommunicatorOptions communicator;
    communicator.cluster = name;
    communicator.host = rank;
    communicator.limit = Milliseconds(Option<double>(options, "limit_s", 60.0));
    communicator.lane.chunk_bytes = Option<size_t>(options, "chunk_bytes", communicator.lane.chunk_bytes);
    communicator.lane.slots = Option<uint32_t>(options, "slots", communicator.lane.slots);
    communicator.spin = std::chrono::microseconds(Option<int64_t>(options, "spin_us", communicator.spin.count()));
    const std::string listen = Option<std::string>(options, "listen", "");
    shared_memory_ = listen.empty();
    if (!shared_memory_) {
      communicator.shared_memory_bytes = 0;
      dataplane::DataPlaneOptions data;
      data.membership = {name, "w/" + NameOf(rank), "", 0};
      data.bind_endpoint = listen;
      data.curve = Unwrap(transport::KeysOfToken(Option<std::string>(options, "token", ""), transport::Role::kWorker))
                       .Curve(transport::Role::kWorker);
      data_ = Unwrap(dataplane::DataPlane::Start(std::move(data), &sink_));
    }
    communicator_ = std::make_unique<collective::Communicator>(communicator, data_.get());
    auto gang = std::make_shared<collective::Gang>();
    gang->run = gang->launch.sequence = 1;
    gang->what = "group '" + name + "'";
    std::vector<collective::Place> places;
    for (uint32_t host = 0; host < size; ++host) places.push_back({host, 0});
    gang->shards = std::make_shared<const std::vector<collective::Place>>(std::move(places));
    communicator_->Begin(0, std::move(gang), rank);
    if (shared_memory_) Connect(std::vector<std::string>(size));
  }
  ~CollectiveGroup() { Close(); }

  std::string Endpoint() const { return data_ ? data_->endpoint() : ""; }

  void Connect(const std::vector<std::string>& endpoints) {
    if (endpoints.size() != size_) {
      Raise(InvalidArgument("an endpoint for each of " + std::to_string(size_) + " ranks is required, got " +
                            std::to_string(endpoints.size())));
    }
    for (uint32_t host = 0; host < size_; ++host) {
      communicator_->SetHost({host, NameOf(host), shared_memory_, endpoints[host], ""});
    }
  }

  void AllReduce(const py::buffer& array, const std::string& reduction) {
    const py::buffer_info info = array.request(true);
    hlo::CollectiveOp op;
    op.kind = hlo::CollectiveKind::kAllReduce;
    op.reduction = Unwrap(ReductionOf(reduction));
    const auto bytes = static_cast<size_t>(info.size * info.itemsize);
    const std::span<std::byte> memory(static_cast<std::byte*>(info.ptr), bytes);
    const hlo::CollectiveOperand operand{DTypeOf(info), 1, memory, memory};
    py::ssize_t dense = info.itemsize;
    for (size_t i = info.shape.size(); i-- > 0; dense *= info.shape[i]) {
      if (info.shape[i] > 1 && info.strides[i] != dense) Raise(InvalidArgument("a dense array is required"));
    }
    if (!communicator_) Raise(FailedPrecondition("this rank has left its group"));
    Status status;
    {
      py::gil_scoped_release release;
      status = communicator_->Meet(0, op, {&operand, 1});
    }
    Check(status);
  }

  void Close() {
    if (data_) data_->Stop();
    communicator_.reset();
    data_.reset();
  }

 private:
  static std::string NameOf(uint32_t rank) { return "rank" + std::to_string(rank); }

  const std::string name_;
  const uint32_t rank_;
  const uint32_t size_;
  bool shared_memory_ = true;
  NoTransfers sink_;
  std::unique_ptr<dataplane::DataPlane> data_;
  std::unique_ptr<collective::Communicator> communicator_;
};

}  // namespace

void BindCollective(py::module_& module) {
  py::class_<CollectiveGroup>(module, "CollectiveGroup")
      .def(py::init<const std::string&, uint32_t, uint32_t, const py::dict&>(), py::arg("name"), py::arg("rank"),
           py::arg("size"), py::arg("options") = py::dict())
      .def_property_readonly("endpoint", &CollectiveGroup::Endpoint)
      .def("connect", &CollectiveGroup::Connect, py::arg("endpoints"))
      .def("all_reduce", &CollectiveGroup::AllReduce, py::arg("array"), py::arg("reduction") = "sum")
      .def("close", &CollectiveGroup::Close);
}

}  // namespace pathways::bindings
