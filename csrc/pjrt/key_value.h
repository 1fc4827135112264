// What several processes that make one client together need of each other: a place where one puts a value and the
// others find it. Plugins of GPUs exchange their topologies there, and later the ids of their communicators.
//
// Ownership: a Client holds its store to the end, because the plugin may ask at any time.
// Threads:   a store is called on threads of the plugin, several at a time; Get may block.
#ifndef PTPATHWAYS_PJRT_KEY_VALUE_H_
#define PTPATHWAYS_PJRT_KEY_VALUE_H_

#include <chrono>
#include <string>

#include "csrc/base/status.h"
#include "csrc_generated/pjrt_abi.h"

namespace pathways::pjrt {

class KeyValueStore {
 public:
  virtual ~KeyValueStore() = default;
  // Waits until some process has put the key. DEADLINE_EXCEEDED when none did.
  virtual Result<std::string> Get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  // NOT_FOUND when no process has put the key yet.
  virtual Result<std::string> TryGet(const std::string& key) = 0;
  // ALREADY_EXISTS when the key has another value.
  virtual Status Put(const std::string& key, std::string value) = 0;
};

// Lets the plugin's callbacks reach `store`, which must outlive the client that `args` creates.
void SetCallbacks(KeyValueStore* store, PJRT_Client_Create_Args* args);

}  // namespace pathways::pjrt

#endif  // PTPATHWAYS_PJRT_KEY_VALUE_H_
