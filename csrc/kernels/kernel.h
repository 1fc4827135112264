// Kernel: a convolution or a product of matrices made ready by oneDNN for a number of threads. A convolution chooses
// how its arrays lie in memory while it computes, and copies what lies otherwise; a product takes them as they lie.
//
// Ownership: kernels are shared; KernelFor keeps the last few thousand that it made.
// Threads:   any; a kernel may run on several threads at once. Each run uses `threads` OpenMP threads, the caller among
//            them. Locks: one for the table of kernels.
#ifndef PTPATHWAYS_KERNELS_KERNEL_H_
#define PTPATHWAYS_KERNELS_KERNEL_H_

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "csrc/base/status.h"
#include "csrc/base/tensor_type.h"
#include "csrc/kernels/convolution.h"
#include "csrc/kernels/product.h"

namespace pathways::kernels {

class Kernel {
 public:
  // UNIMPLEMENTED when oneDNN is not loaded, or has only its slow reference implementation for it.
  static Result<std::shared_ptr<const Kernel>> Make(const Convolution& convolution, int64_t threads);
  static Result<std::shared_ptr<const Kernel>> Make(const Product& product, int64_t threads);
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel();

  const std::string& name() const { return name_; }  // of oneDNN's implementation
  DType dtype() const { return dtype_; }             // of its three arrays: two operands and the result
  int64_t ElementCount(size_t array) const { return arrays_[array].elements; }
  // Memory that a run needs beside its arrays, to be given to it; alignment is Run's affair.
  int64_t room_bytes() const { return room_bytes_; }
  // The arrays are those of Convolution::first, second and result, or of Product::left, right and result, as they lie
  // there.
  Status Run(const void* first, const void* second, void* result, void* room) const;

 private:
  struct Array {
    int64_t elements = 0;
    void* outside = nullptr;  // oneDNN's descriptor of the caller's array
    void* inside = nullptr;   // of the one it computes with; the same one where nothing is to be copied
    void* copy = nullptr;     // the primitive that copies between them, or nullptr
    int64_t offset = 0;       // of the copy in the room
    int argument = 0;
  };

  Kernel(DType dtype, int64_t threads) : dtype_(dtype), threads_(static_cast<int>(threads)) {}
  static Result<std::shared_ptr<Kernel>> Start(DType dtype, int64_t threads);
  Status Prepare(const Convolution& convolution);
  Status Prepare(const Product& product);
  // Takes the primitive that `descriptor` describes, whose arrays have these numbers among its arguments.
  Status Take(void* descriptor, const std::array<int, 3>& arguments);
  Status PrepareCopy(Array* array, void* descriptor, bool is_result);
  int64_t TakeRoom(size_t bytes);

  const DType dtype_;
  const int threads_;
  std::string name_;
  void* primitive_ = nullptr;
  void* scratch_ = nullptr;  // descriptor
  int64_t scratch_offset_ = 0;
  std::array<Array, 3> arrays_;  // two operands and the result
  int64_t room_bytes_ = 0;
};

// The kernel for what Convolution::Encode or Product::Encode wrote, made on first use.
Result<std::shared_ptr<const Kernel>> KernelFor(std::span<const int64_t> encoded, int64_t threads);

}  // namespace pathways::kernels

#endif  // PTPATHWAYS_KERNELS_KERNEL_H_
