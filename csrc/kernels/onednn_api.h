// OnednnApi: the few functions of oneDNN's C API that we call, found at run time in the library of the Python package
// `onednn-cpu-gomp`. The declarations are our own, against the documented C API of version 3.
//
// It runs on OpenMP threads (GNU's libgomp): as many for a call as its calling thread has asked for.
//
// Ownership: the library stays loaded to the end of the process. Threads: any.
#ifndef PTPATHWAYS_KERNELS_ONEDNN_API_H_
#define PTPATHWAYS_KERNELS_ONEDNN_API_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "csrc/base/status.h"

namespace pathways::kernels {

struct OnednnApi {
  using Descriptor = void*;  // dnnl_memory_desc_t
  using PrimitiveDescriptor = void*;
  using Object = void*;  // an engine, a stream, a memory, a primitive, attributes
  struct Version {
    int major, minor, patch;
    const char* hash;
    unsigned cpu_runtime, gpu_runtime;
  };
  struct Argument {
    int number;
    Object memory;
  };
  static constexpr int kMaxRank = 12;
  using Dims = int64_t[kMaxRank];

  const Version* (*version)();
  int (*engine_create)(Object* engine, int kind, size_t index);
  int (*stream_create)(Object* stream, Object engine, unsigned flags);
  int (*stream_wait)(Object stream);
  int (*attributes_create)(Object* attributes);
  int (*attributes_set_scratchpad)(Object attributes, int mode);
  int (*descriptor_with_strides)(Descriptor* out, int rank, const Dims dims, int type, const Dims strides);
  int (*descriptor_with_tag)(Descriptor* out, int rank, const Dims dims, int type, int tag);
  int (*descriptor_clone)(Descriptor* out, const void* from);
  int (*descriptor_equal)(const void* a, const void* b);
  size_t (*descriptor_size)(const void* descriptor);
  int (*descriptor_destroy)(Descriptor descriptor);
  int (*memory_create)(Object* memory, const void* descriptor, Object engine, void* data);
  int (*memory_destroy)(Object memory);
  int (*convolution_forward)(PrimitiveDescriptor* out, Object engine, int propagation, int algorithm,
                             const void* source, const void* weights, const void* bias, const void* target,
                             const Dims stride, const Dims dilation, const Dims low, const Dims high,
                             Object attributes);
  int (*convolution_input_gradient)(PrimitiveDescriptor* out, Object engine, int algorithm, const void* source,
                                    const void* weights, const void* target, const Dims stride, const Dims dilation,
                                    const Dims low, const Dims high, PrimitiveDescriptor forward, Object attributes);
  int (*convolution_weight_gradient)(PrimitiveDescriptor* out, Object engine, int algorithm, const void* source,
                                     const void* weights, const void* bias, const void* target, const Dims stride,
                                     const Dims dilation, const Dims low, const Dims high, PrimitiveDescriptor forward,
                                     Object attributes);
  int (*product)(PrimitiveDescriptor* out, Object engine, const void* left, const void* right, const void* bias,
                 const void* result, Object attributes);
  int (*reorder)(PrimitiveDescriptor* out, const void* from, Object from_engine, const void* to, Object to_engine,
                 Object attributes);
  int (*next_implementation)(PrimitiveDescriptor descriptor);
  int (*query)(PrimitiveDescriptor descriptor, int what, int index, void* result);
  const void* (*query_descriptor)(PrimitiveDescriptor descriptor, int what, int index);
  int (*primitive_descriptor_destroy)(PrimitiveDescriptor descriptor);
  int (*primitive_create)(Object* primitive, PrimitiveDescriptor descriptor);
  int (*primitive_destroy)(Object primitive);
  int (*primitive_execute)(Object primitive, Object stream, int count, const Argument* arguments);
  void (*set_threads)(int count);  // omp_set_num_threads, for the calling thread
  int (*threads)();                // omp_get_max_threads, of the calling thread
  int default_threads;             // of a thread that has not asked: OMP_NUM_THREADS, or the cores of this process
};

// Constants of the C API, by their documented numbers.
namespace onednn {
inline constexpr int kSuccess = 0;
inline constexpr int kCpu = 1, kInOrder = 1, kAnyLayout = 1;
inline constexpr int kBf16 = 2, kF32 = 3;
inline constexpr int kForwardTraining = 64, kDirect = 1;
inline constexpr int kScratchpadByCaller = 1;
inline constexpr int kQueryName = 8, kQueryArgument = 255;
inline constexpr int kSource = 1, kTarget = 17, kWeights = 33, kScratchpad = 80, kSourceGradient = 129,
                     kTargetGradient = 145, kWeightsGradient = 161;
inline constexpr unsigned kRuntimeOpenMp = 2;
}  // namespace onednn

// Loads the library at `path` once. FAILED_PRECONDITION, saying what to do, when it does not serve.
Status LoadOnednn(const std::string& path);

// nullptr: not loaded.
const OnednnApi* Onednn();

}  // namespace pathways::kernels

#endif  // PTPATHWAYS_KERNELS_ONEDNN_API_H_
