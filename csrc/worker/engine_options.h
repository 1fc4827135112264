// EngineOptions: what a worker is started with.
//
// Ownership: plain value. Threads: constant once the engine has it.
#ifndef PTPATHWAYS_WORKER_ENGINE_OPTIONS_H_
#define PTPATHWAYS_WORKER_ENGINE_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "csrc/pjrt/client.h"
#include "csrc/transport/keys.h"

namespace pathways::worker {

struct EngineOptions {
  std::string controller;       // endpoint
  std::string name;             // unique in the cluster
  std::string island;           // empty: an island of its own
  std::string platform;         // "cpu", "cuda", "tpu"
  std::string plugin;           // path of the PJRT plugin
  std::string build;            // package version
  std::string data_endpoint;    // where to bind for bulk data
  std::string advertise;        // the host that peers connect to for it; empty: the one bound
  std::string root;             // below which files are read and written for clients; "/" or empty: anywhere
  std::string scratch_dir;      // for files of the moment; empty: the system's temporary folder
  std::string python;           // the interpreter of input pipelines
  std::string pipeline_script;  // what it runs for one
  std::string cache_dir;        // where compiled programs outlive this process; empty: nowhere
  // oneDNN's library, for convolutions and products on cpu devices; empty: there is none, "off": unwanted.
  std::string kernels;
  transport::ClusterKeys keys;  // made of the join token; without one only private endpoints are used
  pjrt::NamedValues create_options;
  // Hosts whose plugins make one client together, this one included: their collectives are then the plugin's own.
  // 0: this host's plugin has a client of its own.
  uint32_t island_hosts = 0;
  std::chrono::milliseconds island_timeout{60000};  // for all of them to come
  // The create options by which the plugin takes this host's number and the number of hosts; empty: by none.
  std::string node_id_option = "node_id";
  std::string num_nodes_option = "num_nodes";
  int64_t memory_limit_bytes = 0;  // per device; 0: the plugin's own limit, if it has one
  int64_t parent_pid = 0;          // exit when that process is gone
  std::chrono::milliseconds connect_timeout{30000};
  std::chrono::milliseconds transfer_timeout{60000};  // of a transfer to a peer that is silent
  uint64_t max_mappings = 0;                          // base/mappings.h
};

}  // namespace pathways::worker

#endif  // PTPATHWAYS_WORKER_ENGINE_OPTIONS_H_
