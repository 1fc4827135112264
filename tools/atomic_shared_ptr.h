// std::atomic<std::shared_ptr>, which libc++ does not have yet. For analyses (thread_safety.py), which run nothing: it
// is not atomic.
#ifndef PTPATHWAYS_TOOLS_ATOMIC_SHARED_PTR_H_
#define PTPATHWAYS_TOOLS_ATOMIC_SHARED_PTR_H_

#include <atomic>
#include <memory>
#include <utility>

template <typename T>
struct std::atomic<std::shared_ptr<T>> {
  atomic() = default;
  atomic(std::shared_ptr<T> value) : value_(std::move(value)) {}
  std::shared_ptr<T> load() const { return value_; }
  void store(std::shared_ptr<T> value) { value_ = std::move(value); }

 private:
  std::shared_ptr<T> value_;
};

#endif  // PTPATHWAYS_TOOLS_ATOMIC_SHARED_PTR_H_
