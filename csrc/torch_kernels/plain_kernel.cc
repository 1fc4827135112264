// Kernels in torch's dispatcher that stand before a wrapper written in Python and take the ordinary calls from it.
//
// The front end wraps kernels of PyTorch/XLA that are wrong for some arguments (ptpathways/frontend/kernels). A wrapper
// costs 3 to 8 us per call, also where it only hands its arguments on, and the GIL, which a backward pass takes
// otherwise for none of its operations. What a wrapper's author has said it hands on unchanged ("plain" arguments) goes
// from here to the wrapped kernel; everything else goes to the wrapper.
//
// A library of its own, because it is the only one that needs torch's headers: workers run without torch, and the
// extension is of a version of Python, which this is not. frontend/xla/_plain.py loads it.
//
// Threads: `ptpathways_hand_on` is called once per kernel by the thread that initialises the front end. Kernels are
// called by any thread; they have no state that changes.

#include <ATen/FunctionalTensorWrapper.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/op_registration.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/reshape.h>
#include <ATen/ops/sub.h>
#include <c10/util/Exception.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/library.h>
#include <torch/version.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

namespace ptpathways {
namespace {

// What arguments must be to be plain: bits of frontend/xla/_plain.Plain, which says what each means.
enum Plain : uint32_t {
  kFloating = 1,
  kReal = 2,
  kWide = 4,
  kWithDimensions = 8,
  kNonempty = 16,
  kDimensionsNamed = 32,
  kUnitFactors = 64,
  kNonnegative = 128,
  kMatrices = 256,
  kNormalization = 512,
  kSameTypes = 1024,
  kMasked = 2048,
  kTensors = 4096,
  kSmallNumbers = 8192,
  kFits = 16384,
  kKeepsShape = 32768,
  kNoView = 65536,
  kNoStatistics = 131072,
  kNoNumber = 262144,
  kAtMostMatrices = 524288,
  kUntilRefused = 1048576,
  kUpToDate = 2097152,
  kNoDouble = 4194304,
  kNoGradient = 8388608,
  kOnce = 16777216,
  kOwnType = 33554432,
  kAll = 67108863,
};

// Whether another tensor holds its elements, as torch's functionalisation keeps it.
bool IsView(const at::Tensor& tensor) {
  return at::functionalization::impl::isFunctionalTensor(tensor) &&
         !at::functionalization::impl::unsafeGetFunctionalWrapper(tensor)->view_metas().empty();
}

// Whether it has seen all that was written to its memory.
bool IsUpToDate(const at::Tensor& tensor) {
  return !at::functionalization::impl::isFunctionalTensor(tensor) ||
         at::functionalization::impl::unsafeGetFunctionalWrapper(tensor)->is_up_to_date();
}

// Whether a view shows elements several times, or may do so. The classes of views are not in torch's headers.
bool MayRepeat(const at::Tensor& view) {
  for (const auto& meta : at::functionalization::impl::unsafeGetFunctionalWrapper(view)->view_metas()) {
    const auto& step = *meta;
    const char* name = typeid(step).name();
    if (step.is_as_strided || std::strstr(name, "expand_ViewMeta") || std::strstr(name, "unfold_ViewMeta")) return true;
  }
  return false;
}

// Whether nobody has the memory of a view but itself, and its base that nobody else has: autograd notes the base for
// both directions of derivatives.
bool IsAlone(const at::Tensor& view) {
  const size_t count = view.storage().use_count();
  if (count != 2 || !view.is_view()) return count == 1;
  const at::TensorBase& base = view._base();
  return base.use_count() <= 2 && base.has_storage() && base.storage().is_alias_of(view.storage());
}

// Of what detach() is given: whether autograd is about to keep it as a parameter's gradient, and it is a view that
// repeats elements, or whose memory others have. The same as frontend/kernels/memory/_gradients asks.
bool IsGradientToCopy(const at::Tensor& tensor) {
  if (!IsView(tensor)) return false;
  const auto node = torch::autograd::get_current_node();
  const auto* keeper = dynamic_cast<const torch::autograd::AccumulateGrad*>(node.get());
  if (keeper == nullptr || keeper->variable.is_same(tensor) || keeper->variable.grad().defined()) return false;
  return !IsAlone(tensor) || MayRepeat(tensor);
}

// Of a gradient to copy: a tensor of its value alone, where that was computed for it (it has more elements than its
// base) and there are no other views, which may have the same value. Nothing is computed here; a copy takes the GIL.
std::optional<at::Tensor> WithoutBase(const at::Tensor& view) {
  namespace functional = at::functionalization;
  auto* memory = static_cast<functional::FunctionalStorageImpl*>(view.storage().unsafeGetStorageImpl());
  if (view.storage().use_count() > 2 || view.numel() <= memory->base().numel()) return std::nullopt;
  return functional::impl::to_functional_tensor(functional::impl::from_functional_tensor(view));
}

bool IsPlain(const at::Tensor& tensor, uint32_t plain) {
  if (!tensor.defined()) return true;
  const at::ScalarType type = tensor.scalar_type();
  if ((plain & kFloating) && !at::isFloatingType(type)) return false;
  if ((plain & kReal) && at::isComplexType(type)) return false;
  if ((plain & kWide) && (type == at::kHalf || type == at::kBFloat16)) return false;
  if ((plain & kNoDouble) && type == at::kDouble) return false;
  if ((plain & kWithDimensions) && tensor.dim() == 0) return false;
  if ((plain & kNonempty) && tensor.numel() == 0) return false;
  if ((plain & kSmallNumbers) && type == at::kBool) return false;
  if ((plain & kNoView) && IsView(tensor)) return false;
  if ((plain & kTensors) && tensor.unsafeGetTensorImpl()->is_wrapped_number()) return false;
  return true;
}

bool IsPlain(const c10::IValue& argument, uint32_t plain) {
  if (argument.isTensor()) return IsPlain(argument.toTensor(), plain);
  if (argument.isInt()) {
    const int64_t number = argument.toInt();
    return (!(plain & kUnitFactors) || number == 1) && (!(plain & kNonnegative) || number >= 0) &&
           (!(plain & kSmallNumbers) || (number >= 0 && number <= 127));
  }
  if (argument.isDouble()) {
    const double number = argument.toDouble();
    return (!(plain & kUnitFactors) || number == 1) &&
           (!(plain & kSmallNumbers) || (number >= 0 && number <= 127 && number == std::trunc(number)));
  }
  // Numbers that are complex or symbolic, and lists of tensors, are left to the wrapper.
  return argument.isNone() || argument.isBool() || argument.isIntList() || argument.isBoolList() ||
         argument.isString() || argument.isDevice();
}

// Tensors that were made of numbers take part in no type but their own kind's, which PyTorch/XLA's kernels know.
bool AreOfOneType(c10::ArrayRef<c10::IValue> arguments) {
  std::optional<at::ScalarType> type;
  for (const c10::IValue& argument : arguments) {
    if (!argument.isTensor()) continue;
    const at::Tensor& tensor = argument.toTensor();
    if (!tensor.defined() || tensor.unsafeGetTensorImpl()->is_wrapped_number()) continue;
    if (type && *type != tensor.scalar_type()) return false;
    type = tensor.scalar_type();
  }
  return true;
}

// Booleans, integers, floats and complex numbers, in this order: of two types the result is of the larger kind, and a
// tensor holds no result of a larger kind than its own.
int Kind(at::ScalarType type) {
  if (at::isComplexType(type)) return 3;
  if (at::isFloatingType(type)) return 2;
  return type == at::kBool ? 0 : 1;
}

// Whether the first tensor holds a result of all of them.
bool Fit(c10::ArrayRef<c10::IValue> arguments) {
  const int kind = Kind(arguments[0].toTensor().scalar_type());
  for (const c10::IValue& argument : arguments.slice(1)) {
    if (argument.isTensor() && Kind(argument.toTensor().scalar_type()) > kind) return false;
    if ((argument.isDouble() && kind < 2) || (argument.isInt() && kind < 1)) return false;
  }
  return true;
}

// Whether the first tensor has the shape of a result of all of them.
bool KeepsShape(c10::ArrayRef<c10::IValue> arguments) {
  const at::IntArrayRef sizes = arguments[0].toTensor().sizes();
  for (const c10::IValue& argument : arguments.slice(1)) {
    if (!argument.isTensor() || !argument.toTensor().defined()) continue;
    const at::IntArrayRef others = argument.toTensor().sizes();
    if (others.size() > sizes.size()) return false;
    for (size_t place = 1; place <= others.size(); ++place) {
      const int64_t size = others[others.size() - place];
      if (size != 1 && size != sizes[sizes.size() - place]) return false;
    }
  }
  return true;
}

// Of native_batch_norm: in training, without running statistics (LayerNorm, GroupNorm), of more than one value each.
bool IsNormalization(c10::ArrayRef<c10::IValue> arguments) {
  const at::Tensor& values = arguments[0].toTensor();
  return arguments[3].isNone() && arguments[4].isNone() && arguments[5].toBool() && values.dim() > 1 &&
         values.size(1) > 0 && values.numel() > values.size(1);
}

bool ArePlain(c10::ArrayRef<c10::IValue> arguments, uint32_t plain) {
  if (plain == kUntilRefused) return true;
  if (plain & kDimensionsNamed) {
    if (arguments.size() < 2 || !arguments[1].isIntList() || arguments[1].toIntList().empty()) return false;
  }
  if ((plain & kSameTypes) && !AreOfOneType(plain & kMasked ? arguments.slice(1) : arguments)) return false;
  if ((plain & kFits) && !Fit(arguments)) return false;
  if ((plain & kKeepsShape) && !KeepsShape(arguments)) return false;
  if ((plain & kNormalization) && !IsNormalization(arguments)) return false;
  if ((plain & kOnce) && IsView(arguments[0].toTensor()) && MayRepeat(arguments[0].toTensor())) return false;
  if ((plain & kNoNumber) && arguments[0].toTensor().is_cpu() && arguments[0].toTensor().dim() == 0) return false;
  if ((plain & kNoStatistics) && !(arguments[3].isNone() && arguments[4].isNone())) return false;
  if ((plain & kSmallNumbers) && arguments.size() == 2 && arguments[1].isDouble() &&
      !at::isFloatingType(arguments[0].toTensor().scalar_type())) {
    return false;  // which it makes floating
  }
  if ((plain & kAtMostMatrices) && arguments[0].toTensor().dim() > 2) return false;
  if ((plain & kMatrices) && (!arguments[0].isTensor() || arguments[0].toTensor().dim() < 2)) return false;
  for (const c10::IValue& argument : arguments) {
    if (!IsPlain(argument, plain)) return false;
  }
  return true;
}

// Calls a kernel of native_batch_norm with values that are shifted by their mean
// (frontend/kernels/layers/_normalization says why), as the wrapper in Python does with ten times the overhead; a
// transformer has two of them in each block.
void CallShifted(const c10::SafeKernelFunction& kernel, const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                 torch::jit::Stack* stack) {
  c10::IValue& first = (*stack)[stack->size() - operation.schema().arguments().size()];
  const at::Tensor values = first.toTensor();
  std::vector<int64_t> others;
  for (int64_t dim = 0; dim < values.dim(); ++dim) {
    if (dim != 1) others.push_back(dim);
  }
  const at::Tensor shift = at::mean(values, others, /*keepdim=*/true);
  first = at::sub(values, shift);
  kernel.callBoxed(operation, keys, stack);
  c10::IValue& mean = (*stack)[stack->size() - 2];  // of the result, the mean and the inverse deviation
  mean = at::add(mean.toTensor(), at::reshape(shift, {-1}));
}

class PlainKernel final : public c10::OperatorKernel {
 public:
  PlainKernel(uint32_t plain, c10::SafeKernelFunction wrapped, c10::SafeKernelFunction wrapper)
      : plain_(plain), wrapped_(std::move(wrapped)), wrapper_(std::move(wrapper)) {}

  void operator()(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) const {
    const auto arguments = torch::jit::last(*stack, operation.schema().arguments().size());
    // As the wrapper would; but what a wrapper in Python makes is no tensor that nn.Parameter takes.
    if ((plain_ & kUpToDate) && !IsUpToDate(arguments[0].toTensor())) {
      at::functionalization::impl::sync(arguments[0].toTensor());
    }
    if ((plain_ & kNoGradient) && IsGradientToCopy(arguments[0].toTensor())) {
      if (auto made = WithoutBase(arguments[0].toTensor())) {
        stack->back() = *std::move(made);
      } else {
        wrapper_.callBoxed(operation, keys, stack);
      }
    } else if (!ArePlain(arguments, plain_)) {
      wrapper_.callBoxed(operation, keys, stack);
    } else {
      if ((plain_ & kOwnType) && stack->back().isNone()) {
        stack->back() = static_cast<int64_t>(arguments[0].toTensor().scalar_type());
      }
      CallWrapped(operation, keys, stack);
    }
  }

 private:
  void CallWrapped(const c10::OperatorHandle& operation, c10::DispatchKeySet keys, torch::jit::Stack* stack) const {
    if (plain_ & kNormalization) {
      CallShifted(wrapped_, operation, keys, stack);
    } else if (plain_ & kUntilRefused) {
      CallUntilRefused(operation, keys, stack);
    } else {
      wrapped_.callBoxed(operation, keys, stack);
    }
  }

  // What Python raises is no runtime_error, and goes on.
  void CallUntilRefused(const c10::OperatorHandle& operation, c10::DispatchKeySet keys,
                        torch::jit::Stack* stack) const {
    const std::vector<c10::IValue> arguments = torch::jit::last(*stack, operation.schema().arguments().size()).vec();
    const size_t below = stack->size() - arguments.size();
    try {
      wrapped_.callBoxed(operation, keys, stack);
      return;
    } catch (const c10::Error&) {
    } catch (const std::runtime_error&) {
    }
    torch::jit::drop(*stack, stack->size() - below);
    for (const c10::IValue& argument : arguments) stack->push_back(argument);
    wrapper_.callBoxed(operation, keys, stack);
  }

  const uint32_t plain_;
  const c10::SafeKernelFunction wrapped_;
  const c10::SafeKernelFunction wrapper_;
};

// torch warns that a kernel replaces another, which is the intention.
class NoWarnings final : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

class Registration {
 public:
  Registration(const char* name, const char* overload, const char* key)
      : operation_(c10::Dispatcher::singleton().findSchemaOrThrow(name, overload)),
        key_(c10::parseDispatchKey(key)),
        wrapped_(operation_.getComputedKernelForDispatchKey(key_)) {}

  // The kernel that `operation_` has by now is the wrapper.
  void HandOn(uint32_t plain) {
    auto wrapper = operation_.getComputedKernelForDispatchKey(key_);
    NoWarnings nothing;
    const c10::WarningUtils::WarningHandlerGuard quiet(&nothing);
    const auto& name = operation_.operator_name();
    const std::string space(name.getNamespace().value_or("aten"));
    library_ = std::make_unique<torch::Library>(torch::Library::IMPL, space, key_, __FILE__, __LINE__);
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    library_->impl(full.c_str(), torch::CppFunction::makeFromBoxedFunctor(
                                     std::make_unique<PlainKernel>(plain, std::move(wrapped_), std::move(wrapper))));
  }

 private:
  const c10::OperatorHandle operation_;
  const c10::DispatchKey key_;
  c10::SafeKernelFunction wrapped_;
  std::unique_ptr<torch::Library> library_;  // what is registered stays as long as this
};

void Put(const char* text, char* error, size_t size) {
  std::strncpy(error, text, size - 1);
  error[size - 1] = '\0';
}

}  // namespace
}  // namespace ptpathways

extern "C" {

// For which torch this was compiled, and for which kinds of arguments; frontend/xla/_plain.py compares it.
__attribute__((visibility("default"))) const char* ptpathways_built_for() {
  static const std::string built = "torch " TORCH_VERSION ", plain " + std::to_string(ptpathways::kAll);
  return built.c_str();
}

// Remembers the kernel of an operation, such as "aten::sum" with its overload "dim_IntList", for a dispatch key such as
// "XLA", before a wrapper takes its place. Returns nullptr and writes what went wrong to `error`, or what
// `ptpathways_hand_on` takes; it is never freed.
__attribute__((visibility("default"))) void* ptpathways_remember_kernel(const char* name, const char* overload,
                                                                        const char* key, char* error, size_t size) {
  try {
    return new ptpathways::Registration(name, overload, key);
  } catch (const std::exception& raised) {
    ptpathways::Put(raised.what(), error, size);
    return nullptr;
  }
}

// Puts a kernel in place of the wrapper that hands plain arguments to the kernel that was remembered. Once for each.
// False: `error` says why, and the wrapper is still there.
__attribute__((visibility("default"))) bool ptpathways_hand_on(void* remembered, uint32_t plain, char* error,
                                                               size_t size) {
  try {
    static_cast<ptpathways::Registration*>(remembered)->HandOn(plain);
    return true;
  } catch (const std::exception& raised) {
    ptpathways::Put(raised.what(), error, size);
    return false;
  }
}

}  // extern "C"
