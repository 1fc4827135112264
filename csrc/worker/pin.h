// Pin: keeps a shard from being donated, and its memory alive, while bytes are read behind the plugin's back.
//
// Ownership: shares the object. Threads: made on the engine's thread, dropped on any.
#ifndef PTPATHWAYS_WORKER_PIN_H_
#define PTPATHWAYS_WORKER_PIN_H_

#include <memory>
#include <utility>

#include "csrc/store/object_store.h"

namespace pathways::worker {

class Pin {
 public:
  Pin(std::shared_ptr<store::Object> object, size_t position)
      : object_(std::move(object)), shard_(object_->At(position)) {
    shard_.pins.fetch_add(1);
  }
  ~Pin() { shard_.pins.fetch_sub(1); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;
  const pjrt::Buffer& buffer() const { return shard_.buffer; }

 private:
  const std::shared_ptr<store::Object> object_;
  store::Object::Shard& shard_;
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_PIN_H_
