// What Clang's -Wthread-safety checks: which lock guards a field, and what a function needs. Other compilers see
// nothing.
//
//   std::mutex mutex_;
//   int count_ PW_GUARDED_BY(mutex_) = 0;
//   void Add() PW_REQUIRES(mutex_);
//
// `make thread-safety` runs the analysis. It follows std::lock_guard and UniqueLock; of a lambda that is called with
// the lock held (a condition's) it must be told, by PW_REQUIRES or PW_NO_THREAD_SAFETY.
#ifndef PTPATHWAYS_BASE_THREAD_ANNOTATIONS_H_
#define PTPATHWAYS_BASE_THREAD_ANNOTATIONS_H_

#include <mutex>

#if defined(__clang__)
#define PW_THREAD_ATTRIBUTE_(x) __attribute__((x))
#else
#define PW_THREAD_ATTRIBUTE_(x)
#endif

#define PW_GUARDED_BY(lock) PW_THREAD_ATTRIBUTE_(guarded_by(lock))
// What a pointer points to.
#define PW_PT_GUARDED_BY(lock) PW_THREAD_ATTRIBUTE_(pt_guarded_by(lock))
#define PW_REQUIRES(...) PW_THREAD_ATTRIBUTE_(requires_capability(__VA_ARGS__))
// The reason stands beside it.
#define PW_NO_THREAD_SAFETY PW_THREAD_ATTRIBUTE_(no_thread_safety_analysis)

namespace pathways {

// std::unique_lock on a std::mutex, as the analysis understands it.
class PW_THREAD_ATTRIBUTE_(scoped_lockable) UniqueLock : public std::unique_lock<std::mutex> {
 public:
  explicit UniqueLock(std::mutex& mutex) PW_THREAD_ATTRIBUTE_(acquire_capability(mutex))
      : std::unique_lock<std::mutex>(mutex) {}
  ~UniqueLock() PW_THREAD_ATTRIBUTE_(release_capability()) {}
  void lock() PW_THREAD_ATTRIBUTE_(acquire_capability()) { std::unique_lock<std::mutex>::lock(); }
  void unlock() PW_THREAD_ATTRIBUTE_(release_capability()) { std::unique_lock<std::mutex>::unlock(); }
};

}  // namespace pathways

#endif  // PTPATHWAYS_BASE_THREAD_ANNOTATIONS_H_
