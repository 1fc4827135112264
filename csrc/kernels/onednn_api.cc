#include "csrc/kernels/onednn_api.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>

namespace pathways::kernels {
namespace {

constexpr int kMajor = 3;

std::atomic<const OnednnApi*> loaded{nullptr};

template <typename F>
bool Resolve(void* handle, const char* name, F** function) {
  *function = reinterpret_cast<F*>(dlsym(handle, name));
  return *function != nullptr;
}

// The name of the first missing symbol, or nullptr.
const char* ResolveAll(void* handle, OnednnApi* api) {
#define PW_RESOLVE_(field, symbol) \
  if (!Resolve(handle, symbol, &api->field)) return symbol
  PW_RESOLVE_(version, "dnnl_version");
  PW_RESOLVE_(engine_create, "dnnl_engine_create");
  PW_RESOLVE_(stream_create, "dnnl_stream_create");
  PW_RESOLVE_(stream_wait, "dnnl_stream_wait");
  PW_RESOLVE_(attributes_create, "dnnl_primitive_attr_create");
  PW_RESOLVE_(attributes_set_scratchpad, "dnnl_primitive_attr_set_scratchpad_mode");
  PW_RESOLVE_(descriptor_with_strides, "dnnl_memory_desc_create_with_strides");
  PW_RESOLVE_(descriptor_with_tag, "dnnl_memory_desc_create_with_tag");
  PW_RESOLVE_(descriptor_clone, "dnnl_memory_desc_clone");
  PW_RESOLVE_(descriptor_equal, "dnnl_memory_desc_equal");
  PW_RESOLVE_(descriptor_size, "dnnl_memory_desc_get_size");
  PW_RESOLVE_(descriptor_destroy, "dnnl_memory_desc_destroy");
  PW_RESOLVE_(memory_create, "dnnl_memory_create");
  PW_RESOLVE_(memory_destroy, "dnnl_memory_destroy");
  PW_RESOLVE_(convolution_forward, "dnnl_convolution_forward_primitive_desc_create");
  PW_RESOLVE_(convolution_input_gradient, "dnnl_convolution_backward_data_primitive_desc_create");
  PW_RESOLVE_(convolution_weight_gradient, "dnnl_convolution_backward_weights_primitive_desc_create");
  PW_RESOLVE_(product, "dnnl_matmul_primitive_desc_create");
  PW_RESOLVE_(reorder, "dnnl_reorder_primitive_desc_create");
  PW_RESOLVE_(next_implementation, "dnnl_primitive_desc_next_impl");
  PW_RESOLVE_(query, "dnnl_primitive_desc_query");
  PW_RESOLVE_(query_descriptor, "dnnl_primitive_desc_query_md");
  PW_RESOLVE_(primitive_descriptor_destroy, "dnnl_primitive_desc_destroy");
  PW_RESOLVE_(primitive_create, "dnnl_primitive_create");
  PW_RESOLVE_(primitive_destroy, "dnnl_primitive_destroy");
  PW_RESOLVE_(primitive_execute, "dnnl_primitive_execute");
  PW_RESOLVE_(set_threads, "omp_set_num_threads");
  PW_RESOLVE_(threads, "omp_get_max_threads");
#undef PW_RESOLVE_
  return nullptr;
}

}  // namespace

Status LoadOnednn(const std::string& path) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (loaded.load() != nullptr) return OkStatus();
  const std::string remedy = "; install the package onednn-cpu-gomp, or go on with XLA's own kernels";
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return FailedPrecondition("expected oneDNN at " + path + ", got: " + dlerror() + remedy);
  auto* api = new OnednnApi{};  // never freed, like the library
  if (const char* missing = ResolveAll(handle, api); missing != nullptr) {
    return FailedPrecondition("expected oneDNN 3 on OpenMP at " + path + ", got a library without " + missing + remedy);
  }
  const OnednnApi::Version& version = *api->version();
  if (version.major != kMajor || version.cpu_runtime != onednn::kRuntimeOpenMp) {
    return FailedPrecondition("expected oneDNN 3 on OpenMP at " + path + ", got version " +
                              std::to_string(version.major) + "." + std::to_string(version.minor) + " on runtime " +
                              std::to_string(version.cpu_runtime) + remedy);
  }
  api->default_threads = api->threads();
  loaded.store(api);
  return OkStatus();
}

const OnednnApi* Onednn() { return loaded.load(std::memory_order_acquire); }

}  // namespace pathways::kernels
