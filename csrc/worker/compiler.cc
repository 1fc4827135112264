#include "csrc/worker/compiler.h"

#include <pthread.h>

#include <chrono>

namespace pathways::worker {

Compiler::Compiler(std::shared_ptr<pjrt::Client> client) : client_(std::move(client)), thread_([this] { Loop(); }) {}

Compiler::~Compiler() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    queue_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void Compiler::Submit(Job job, Done done) {
  {
    std::lock_guard lock(mutex_);
    queue_.push_back({std::move(job), std::move(done)});
  }
  changed_.notify_one();
}

void Compiler::Loop() {
  pthread_setname_np(pthread_self(), "pw-compile");
  for (;;) {
    Item item;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      item = std::move(queue_.front());
      queue_.pop_front();
    }
    item.done(Compile(item.job));
  }
}

Compiler::Outcome Compiler::Compile(const Job& job) const {
  const auto start = std::chrono::steady_clock::now();
  Outcome outcome;
  auto executable = client_->Compile(job.module, job.format, job.options);
  if (!executable.ok()) {
    outcome.status = executable.status();
    return outcome;
  }
  outcome.executable = *std::move(executable);
  if (auto memory = outcome.executable->MemoryStats()) {
    outcome.temp_bytes = static_cast<uint64_t>(memory->temporary);
    outcome.code_bytes = static_cast<uint64_t>(memory->generated_code);
  }
  outcome.compile_us = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - start).count());
  return outcome;
}

}  // namespace pathways::worker
