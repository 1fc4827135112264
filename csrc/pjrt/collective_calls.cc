#include "csrc/pjrt/collective_calls.h"

#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "csrc/pjrt/ffi_call.h"

namespace pathways::pjrt {
namespace {

std::atomic<hlo::CollectiveBackend*> backend{nullptr};

Status Attributes(const XLA_FFI_Attrs& attributes, hlo::CollectiveOp* op, std::span<const int64_t>* outer) {
  const auto kind = IntegerAttribute(attributes, "kind");
  const auto reduction = IntegerAttribute(attributes, "reduction");
  const auto number = IntegerAttribute(attributes, "number");
  const auto per_operand = IntegerAttribute(attributes, "block_per_operand");
  const auto members = ArrayAttribute(attributes, "members");
  const auto sizes = ArrayAttribute(attributes, "sizes");
  const auto rows = ArrayAttribute(attributes, "outer");
  if (!kind || !reduction || !number || !per_operand || !members || !sizes || !rows) {
    return InvalidArgument("pathways.collective lacks an attribute");
  }
  op->kind = static_cast<hlo::CollectiveKind>(*kind);
  op->reduction = static_cast<hlo::Reduction>(*reduction);
  op->number = static_cast<uint32_t>(*number);
  op->block_per_operand = *per_operand != 0;
  *outer = *rows;
  op->groups.clear();
  op->pairs.clear();
  if (op->kind == hlo::CollectiveKind::kPermute) {
    for (size_t i = 0; i + 1 < members->size(); i += 2) {
      op->pairs.emplace_back(static_cast<uint32_t>((*members)[i]), static_cast<uint32_t>((*members)[i + 1]));
    }
    return OkStatus();
  }
  size_t at = 0;
  for (const int64_t size : *sizes) {
    if (size < 0 || static_cast<size_t>(size) > members->size() - at) {
      return InvalidArgument("pathways.collective: groups that do not add up");
    }
    op->groups.emplace_back(members->begin() + static_cast<int64_t>(at),
                            members->begin() + static_cast<int64_t>(at) + size);
    at += static_cast<size_t>(size);
  }
  return OkStatus();
}

Status Operands(const XLA_FFI_CallFrame& frame, std::span<const int64_t> outer,
                std::vector<hlo::CollectiveOperand>* operands) {
  const auto count = static_cast<int64_t>(outer.size());
  if (frame.rets.size != count + 1 || (frame.args.size != count && frame.args.size != count + 1)) {
    return InvalidArgument("pathways.collective: expected " + std::to_string(count) +
                           " operands and results besides the chain, got " + std::to_string(frame.args.size) + " and " +
                           std::to_string(frame.rets.size));
  }
  operands->clear();
  for (int64_t i = 0; i < count; ++i) {
    const XLA_FFI_Buffer& from = BufferAt(frame.args.args, i);
    const XLA_FFI_Buffer& to = BufferAt(frame.rets.rets, i);
    hlo::CollectiveOperand operand;
    operand.dtype = DTypeFromXlaPrimitive(static_cast<int64_t>(from.dtype));
    operand.outer = outer[static_cast<size_t>(i)];
    const int64_t width = DTypeBytes(operand.dtype);
    if (width == 0 || to.dtype != from.dtype) {
      return Unimplemented("pathways.collective: element type " + std::to_string(static_cast<int>(from.dtype)));
    }
    operand.input = {static_cast<const std::byte*>(from.data), static_cast<size_t>(BufferBytes(from, width))};
    operand.output = {static_cast<std::byte*>(to.data), static_cast<size_t>(BufferBytes(to, width))};
    operands->push_back(operand);
  }
  return OkStatus();
}

}  // namespace

void SetCollectiveBackend(hlo::CollectiveBackend* serving) { backend.store(serving); }

XLA_FFI_Error* ServeCollectiveCall(XLA_FFI_CallFrame* frame) {
  if (AnswersMetadata(frame)) return nullptr;
  if (frame->stage != XLA_FFI_ExecutionStage_EXECUTE) return nullptr;
  thread_local hlo::CollectiveOp op;
  thread_local std::vector<hlo::CollectiveOperand> operands;
  const Status status = [&]() -> Status {
    std::span<const int64_t> outer;
    PW_RETURN_IF_ERROR(Attributes(frame->attrs, &op, &outer));
    PW_RETURN_IF_ERROR(Operands(*frame, outer, &operands));
    hlo::CollectiveBackend* const serving = backend.load();
    if (serving == nullptr) return Unimplemented("nothing in this process serves collectives between hosts");
    PW_RETURN_IF_ERROR(serving->Meet(static_cast<int>(DeviceOrdinal(frame)), op, operands));
    const XLA_FFI_Buffer& order = BufferAt(frame->rets.rets, frame->rets.size - 1);
    std::memset(order.data, 0, static_cast<size_t>(BufferBytes(order, sizeof(uint32_t))));
    return OkStatus();
  }();
  return ToFfiError(frame, status);
}

}  // namespace pathways::pjrt
