#include "csrc/kernels/kernel.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "csrc/base/thread_annotations.h"
#include "csrc/kernels/onednn_api.h"

namespace pathways::kernels {
namespace {

constexpr int64_t kAlignment = 64;
constexpr size_t kMostKept = 4096;

Status Check(int code, const char* what) {
  if (code == onednn::kSuccess) return OkStatus();
  return Unimplemented("oneDNN: " + std::string(what) + " failed with status " + std::to_string(code));
}

// One engine and one set of attributes for the process; a stream for each thread, which only names its order.
struct Environment {
  OnednnApi::Object engine = nullptr, attributes = nullptr;
  Status status;
};

const Environment& TheEnvironment() {
  static const Environment* const environment = [] {
    auto* made = new Environment;  // never freed: kernels may run to the end of the process
    const OnednnApi& api = *Onednn();
    made->status = Check(api.engine_create(&made->engine, onednn::kCpu, 0), "making an engine");
    if (made->status.ok()) made->status = Check(api.attributes_create(&made->attributes), "making attributes");
    if (made->status.ok()) {
      // With memory of its own a primitive could not run on two threads at once.
      made->status = Check(api.attributes_set_scratchpad(made->attributes, onednn::kScratchpadByCaller), "attributes");
    }
    return made;
  }();
  return *environment;
}

OnednnApi::Object TheStream() {
  thread_local OnednnApi::Object stream = [] {
    OnednnApi::Object made = nullptr;
    if (Onednn()->stream_create(&made, TheEnvironment().engine, onednn::kInOrder) != onednn::kSuccess) made = nullptr;
    return made;  // never freed: the plugin's threads live as long as the process
  }();
  return stream;
}

class Descriptor {
 public:
  Descriptor() = default;
  Descriptor(const Descriptor&) = delete;
  ~Descriptor() {
    if (handle != nullptr) Onednn()->descriptor_destroy(handle);
  }
  OnednnApi::Descriptor handle = nullptr;
};

class PrimitiveDescriptor {
 public:
  PrimitiveDescriptor() = default;
  PrimitiveDescriptor(const PrimitiveDescriptor&) = delete;
  ~PrimitiveDescriptor() {
    if (handle != nullptr) Onednn()->primitive_descriptor_destroy(handle);
  }
  OnednnApi::PrimitiveDescriptor handle = nullptr;
};

class Memory {
 public:
  Status Make(const void* descriptor, void* data) {
    return Check(Onednn()->memory_create(&handle, descriptor, TheEnvironment().engine, data), "naming memory");
  }
  Memory() = default;
  Memory(const Memory&) = delete;
  ~Memory() {
    if (handle != nullptr) Onednn()->memory_destroy(handle);
  }
  OnednnApi::Object handle = nullptr;
};

// One group is no group: oneDNN has better kernels for weights without that dimension.
StridedArray WithoutOneGroup(const StridedArray& array, bool is_weights) {
  StridedArray out = array;
  if (is_weights && out.dims[0] == 1) {
    out.dims.erase(out.dims.begin());
    out.strides.erase(out.strides.begin());
  }
  return out;
}

Status Describe(const StridedArray& array, DType dtype, bool any, OnednnApi::Descriptor* out) {
  OnednnApi::Dims dims{}, strides{};
  std::copy(array.dims.begin(), array.dims.end(), dims);
  std::copy(array.strides.begin(), array.strides.end(), strides);
  const int rank = static_cast<int>(array.dims.size());
  const int type = dtype == DType::kBF16 ? onednn::kBf16 : onednn::kF32;
  const OnednnApi& api = *Onednn();
  return Check(any ? api.descriptor_with_tag(out, rank, dims, type, onednn::kAnyLayout)
                   : api.descriptor_with_strides(out, rank, dims, type, strides),
               "describing an array");
}

// A batch of one is no batch: oneDNN has better kernels for two dimensions.
StridedArray WithoutOneBatch(const StridedArray& array) {
  StridedArray out = array;
  if (out.dims[0] == 1) {
    out.dims.erase(out.dims.begin());
    out.strides.erase(out.strides.begin());
  }
  return out;
}

// oneDNN's first choice reads a right operand of long rows where it lies, a few columns of each row at a time, and is
// up to three times as slow as its second one, which packs it.
bool WantsPackedRight(const Product& product) {
  constexpr int64_t kLongRow = 768;
  return product.dtype == DType::kF32 && product.batch() == 1 && product.right.strides[2] == 1 &&
         product.columns() >= kLongRow;
}

}  // namespace

Result<std::shared_ptr<Kernel>> Kernel::Start(DType dtype, int64_t threads) {
  if (Onednn() == nullptr) return Unimplemented("expected oneDNN for a kernel, it is not loaded in this process");
  PW_RETURN_IF_ERROR(TheEnvironment().status);
  if (threads < 1 || threads > 4096) {
    return InvalidArgument("expected 1 to 4096 threads for a kernel, got " + std::to_string(threads));
  }
  Onednn()->set_threads(static_cast<int>(threads));  // how the work is divided is decided when a kernel is made
  return std::shared_ptr<Kernel>(new Kernel(dtype, threads));
}

Result<std::shared_ptr<const Kernel>> Kernel::Make(const Convolution& convolution, int64_t threads) {
  PW_ASSIGN_OR_RETURN(const std::shared_ptr<Kernel> kernel, Start(convolution.dtype, threads));
  PW_RETURN_IF_ERROR(kernel->Prepare(convolution));
  return std::shared_ptr<const Kernel>(kernel);
}

Result<std::shared_ptr<const Kernel>> Kernel::Make(const Product& product, int64_t threads) {
  PW_ASSIGN_OR_RETURN(const std::shared_ptr<Kernel> kernel, Start(product.dtype, threads));
  PW_RETURN_IF_ERROR(kernel->Prepare(product));
  return std::shared_ptr<const Kernel>(kernel);
}

Kernel::~Kernel() {
  const OnednnApi& api = *Onednn();
  for (const Array& array : arrays_) {
    if (array.copy != nullptr) api.primitive_destroy(array.copy);
    for (void* descriptor : {array.outside, array.inside}) {
      if (descriptor != nullptr) api.descriptor_destroy(descriptor);
    }
  }
  if (scratch_ != nullptr) api.descriptor_destroy(scratch_);
  if (primitive_ != nullptr) api.primitive_destroy(primitive_);
}

Status Kernel::Prepare(const Convolution& convolution) {
  const OnednnApi& api = *Onednn();
  const Environment& environment = TheEnvironment();
  Descriptor source, weights, target;
  PW_RETURN_IF_ERROR(Describe(convolution.source, dtype_, true, &source.handle));
  PW_RETURN_IF_ERROR(Describe(WithoutOneGroup(convolution.weights, true), dtype_, true, &weights.handle));
  PW_RETURN_IF_ERROR(Describe(convolution.target, dtype_, true, &target.handle));
  OnednnApi::Dims stride{}, dilation{}, low{}, high{};
  for (size_t i = 0; i < convolution.spatial(); ++i) {
    stride[i] = convolution.stride[i];
    dilation[i] = convolution.dilation[i] - 1;  // oneDNN counts what is skipped
    low[i] = convolution.low[i];
    high[i] = convolution.high[i];
  }
  PrimitiveDescriptor forward, made;
  PW_RETURN_IF_ERROR(Check(api.convolution_forward(&forward.handle, environment.engine, onednn::kForwardTraining,
                                                   onednn::kDirect, source.handle, weights.handle, nullptr,
                                                   target.handle, stride, dilation, low, high, environment.attributes),
                           "a convolution"));
  std::array<int, 3> arguments{onednn::kSource, onednn::kWeights, onednn::kTarget};
  if (convolution.kind == Convolution::Kind::kInputGradient) {
    PW_RETURN_IF_ERROR(Check(api.convolution_input_gradient(
                                 &made.handle, environment.engine, onednn::kDirect, source.handle, weights.handle,
                                 target.handle, stride, dilation, low, high, forward.handle, environment.attributes),
                             "an input gradient"));
    arguments = {onednn::kTargetGradient, onednn::kWeights, onednn::kSourceGradient};
  } else if (convolution.kind == Convolution::Kind::kWeightGradient) {
    PW_RETURN_IF_ERROR(
        Check(api.convolution_weight_gradient(&made.handle, environment.engine, onednn::kDirect, source.handle,
                                              weights.handle, nullptr, target.handle, stride, dilation, low, high,
                                              forward.handle, environment.attributes),
              "a weight gradient"));
    arguments = {onednn::kSource, onednn::kTargetGradient, onednn::kWeightsGradient};
  }
  const std::array<const StridedArray*, 3> shapes{&convolution.first(), &convolution.second(), &convolution.result()};
  for (size_t i = 0; i < arrays_.size(); ++i) {
    arrays_[i].elements = shapes[i]->ElementCount();
    PW_RETURN_IF_ERROR(
        Describe(WithoutOneGroup(*shapes[i], shapes[i] == &convolution.weights), dtype_, false, &arrays_[i].outside));
  }
  return Take(made.handle != nullptr ? made.handle : forward.handle, arguments);
}

Status Kernel::Prepare(const Product& product) {
  const std::array<const StridedArray*, 3> shapes{&product.left, &product.right, &product.result};
  for (size_t i = 0; i < arrays_.size(); ++i) {
    arrays_[i].elements = shapes[i]->ElementCount();
    PW_RETURN_IF_ERROR(
        Describe(product.batch() == 1 ? WithoutOneBatch(*shapes[i]) : *shapes[i], dtype_, false, &arrays_[i].outside));
  }
  const std::array<int, 3> arguments{onednn::kSource, onednn::kWeights, onednn::kTarget};
  const auto make = [this](PrimitiveDescriptor* made) {
    const Environment& environment = TheEnvironment();
    return Check(Onednn()->product(&made->handle, environment.engine, arrays_[0].outside, arrays_[1].outside, nullptr,
                                   arrays_[2].outside, environment.attributes),
                 "a product of matrices");
  };
  PrimitiveDescriptor first;
  PW_RETURN_IF_ERROR(make(&first));
  if (!WantsPackedRight(product)) return Take(first.handle, arguments);
  PrimitiveDescriptor packing;
  PW_RETURN_IF_ERROR(make(&packing));
  while (Onednn()->next_implementation(packing.handle) == onednn::kSuccess) {
    const char* name = nullptr;
    PW_RETURN_IF_ERROR(Check(Onednn()->query(packing.handle, onednn::kQueryName, 0, &name), "asking for a name"));
    if (std::string_view(name).starts_with("gemm:jit")) return Take(packing.handle, arguments);
  }
  return Take(first.handle, arguments);
}

Status Kernel::Take(void* descriptor, const std::array<int, 3>& arguments) {
  const OnednnApi& api = *Onednn();
  const char* name = nullptr;
  PW_RETURN_IF_ERROR(Check(api.query(descriptor, onednn::kQueryName, 0, &name), "asking for a name"));
  name_ = name;
  if (name_.starts_with("ref")) return Unimplemented("oneDNN has only its reference implementation for a kernel");
  for (size_t i = 0; i < arrays_.size(); ++i) {
    arrays_[i].argument = arguments[i];
    PW_RETURN_IF_ERROR(PrepareCopy(&arrays_[i], descriptor, i == 2));
  }
  const void* scratch = api.query_descriptor(descriptor, onednn::kQueryArgument, onednn::kScratchpad);
  if (scratch != nullptr) {
    PW_RETURN_IF_ERROR(Check(api.descriptor_clone(&scratch_, scratch), "describing memory"));
    scratch_offset_ = TakeRoom(api.descriptor_size(scratch_));
  }
  if (room_bytes_ > 0) room_bytes_ += kAlignment;
  return Check(api.primitive_create(&primitive_, descriptor), "making a kernel");
}

Status Kernel::PrepareCopy(Array* array, void* descriptor, bool is_result) {
  const OnednnApi& api = *Onednn();
  const Environment& environment = TheEnvironment();
  const void* inside = api.query_descriptor(descriptor, onednn::kQueryArgument, array->argument);
  if (inside == nullptr) return Internal("oneDNN does not say how an array of a kernel lies");
  PW_RETURN_IF_ERROR(Check(api.descriptor_clone(&array->inside, inside), "describing an array"));
  if (api.descriptor_equal(array->inside, array->outside) != 0) return OkStatus();
  const void* const from = is_result ? array->inside : array->outside;
  const void* const to = is_result ? array->outside : array->inside;
  PrimitiveDescriptor copy;
  PW_RETURN_IF_ERROR(Check(
      api.reorder(&copy.handle, from, environment.engine, to, environment.engine, environment.attributes), "a copy"));
  const void* scratch = api.query_descriptor(copy.handle, onednn::kQueryArgument, onednn::kScratchpad);
  if (scratch != nullptr && api.descriptor_size(scratch) > 0) {
    return Unimplemented("oneDNN needs memory to copy an array of a kernel");
  }
  PW_RETURN_IF_ERROR(Check(api.primitive_create(&array->copy, copy.handle), "making a copy"));
  array->offset = TakeRoom(api.descriptor_size(array->inside));
  return OkStatus();
}

int64_t Kernel::TakeRoom(size_t bytes) {
  const int64_t offset = room_bytes_;
  room_bytes_ += (static_cast<int64_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

Status Kernel::Run(const void* first, const void* second, void* result, void* room) const {
  const OnednnApi& api = *Onednn();
  OnednnApi::Object const stream = TheStream();
  if (stream == nullptr) return Internal("oneDNN: making a stream failed");
  const auto start = reinterpret_cast<uintptr_t>(room);
  char* const aligned = static_cast<char*>(room) + ((start + kAlignment - 1) / kAlignment * kAlignment - start);
  api.set_threads(threads_);
  std::array<Memory, 3> inside, outside;
  Memory scratch;
  std::vector<OnednnApi::Argument> arguments;
  const std::array<void*, 3> data{const_cast<void*>(first), const_cast<void*>(second), result};
  for (size_t i = 0; i < 3; ++i) {
    const Array& array = arrays_[i];
    void* const at = array.copy == nullptr ? data[i] : aligned + array.offset;
    PW_RETURN_IF_ERROR(inside[i].Make(array.inside, at));
    if (array.copy != nullptr) PW_RETURN_IF_ERROR(outside[i].Make(array.outside, data[i]));
    arguments.push_back({array.argument, inside[i].handle});
  }
  if (scratch_ != nullptr) {
    PW_RETURN_IF_ERROR(scratch.Make(scratch_, aligned + scratch_offset_));
    arguments.push_back({onednn::kScratchpad, scratch.handle});
  }
  const auto copy = [&](size_t i, const Memory& from, const Memory& to) {
    const std::array<OnednnApi::Argument, 2> pair{{{onednn::kSource, from.handle}, {onednn::kTarget, to.handle}}};
    return Check(api.primitive_execute(arrays_[i].copy, stream, 2, pair.data()), "copying");
  };
  for (size_t i = 0; i < 2; ++i) {
    if (arrays_[i].copy != nullptr) PW_RETURN_IF_ERROR(copy(i, outside[i], inside[i]));
  }
  PW_RETURN_IF_ERROR(Check(
      api.primitive_execute(primitive_, stream, static_cast<int>(arguments.size()), arguments.data()), "computing"));
  if (arrays_[2].copy != nullptr) PW_RETURN_IF_ERROR(copy(2, inside[2], outside[2]));
  return Check(api.stream_wait(stream), "waiting");
}

namespace {

Result<std::shared_ptr<const Kernel>> MakeEncoded(std::span<const int64_t> encoded, int64_t threads) {
  if (!encoded.empty() && encoded[0] == Product::kTag) {
    PW_ASSIGN_OR_RETURN(const Product product, Product::Decode(encoded));
    return Kernel::Make(product, threads);
  }
  PW_ASSIGN_OR_RETURN(const Convolution convolution, Convolution::Decode(encoded));
  return Kernel::Make(convolution, threads);
}

}  // namespace

Result<std::shared_ptr<const Kernel>> KernelFor(std::span<const int64_t> encoded, int64_t threads) {
  static std::mutex mutex;
  static auto* const kernels PW_PT_GUARDED_BY(mutex) =
      new std::unordered_map<std::string, std::shared_ptr<const Kernel>>;
  std::string key(reinterpret_cast<const char*>(encoded.data()), encoded.size_bytes());
  key.append(reinterpret_cast<const char*>(&threads), sizeof threads);
  {
    const std::lock_guard lock(mutex);
    if (const auto found = kernels->find(key); found != kernels->end()) return found->second;
  }
  PW_ASSIGN_OR_RETURN(auto kernel, MakeEncoded(encoded, threads));
  const std::lock_guard lock(mutex);
  if (kernels->size() >= kMostKept)
    kernels->clear();  // shapes that change without end; what runs now has its own share
  return kernels->emplace(std::move(key), std::move(kernel)).first->second;
}

}  // namespace pathways::kernels
