// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// A cluster's configuration: what one YAML file says, checked.
//
// Values only; yaml-cpp stays in this folder.  Every error names file:line:column, the key
// and, for a mistyped one, the nearest known key.  `0`, empty and absent are three things.
// Precedence: --set flag > BATON_<KEY_PATH> environment > file > default.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace baton::config {

struct Address {
  std::string host;
  uint16_t port = 0;         // 0: any free port, where that makes sense (tests)
  std::string text() const;  // host:port
  bool operator==(const Address&) const = default;
};

struct Worker {
  std::string name;
  Address listen, admin, transfer;
  std::optional<Address> advertise_listen, advertise_transfer;
  std::string device = "cpu";
  uint32_t threads = 1;
  uint64_t kv_memory_bytes = 512ull << 20;
  std::optional<std::string> kv_type;  // none: engine.kv_type
};

enum class TransportChoice { kAuto, kShm, kTcp, kUcxTcp };

struct Config {
  struct {
    std::string path = "models/smollm2-135m-instruct-q4_1.gguf";
    std::string name = "smollm2-135m-instruct";
    uint32_t max_context = 8192;
  } model;
  struct {
    Address http{"127.0.0.1", 8000}, grpc{"127.0.0.1", 8001}, admin{"127.0.0.1", 8002};
  } frontend;
  struct {
    std::vector<Worker> prefill, decode;
  } workers;
  struct {
    uint32_t colocate_below_tokens = 512;
    uint32_t attempts_max = 3;
    bool resume = true;
  } router;
  struct {
    uint32_t chunk_tokens = 512;  // prompt tokens in one step of a prefill worker
    uint32_t batch_tokens = 256;  // tokens in one step of a decode worker
    uint32_t step_percent = 160;  // of a decode step without prompts, for one with
    uint32_t prefill_nice = 5;    // of a prefill worker's compute threads
    uint32_t sequences_max = 64;  // running at once on one worker
    bool prefix_cache = true;
    std::string kv_type = "bf16";  // bf16, f16, int8, f32
    std::string isa = "auto";      // auto, avx2, avx512
  } engine;
  struct {
    TransportChoice transport = TransportChoice::kAuto;
    std::vector<std::string> devices{"lo"};
    bool require_rdma = false;
    uint64_t min_bandwidth_bytes_per_second = 0;
    absl::Duration progress_timeout = absl::Seconds(30);
    bool allow_mixed_numerics = false;
    bool allow_conversion = false;  // of pushed KV where workers' kv_type differs
    bool pipelining = true;         // push each layer as soon as it is computed
    uint32_t check_one_in = 64;     // pushes whose bytes decode compares with CRC32C; 0: none
  } kv_transfer;
  struct {
    uint32_t queue_requests = 256;
    uint64_t queue_tokens = 1000000;
    absl::Duration default_deadline = absl::Seconds(300);
    absl::Duration drain = absl::Seconds(30);
    uint64_t body_bytes = 64ull << 20;          // of one HTTP request
    uint64_t stream_buffer_bytes = 4ull << 20;  // waiting for one slow reader
  } limits;
  // Key path -> "file:line:column", "environment", "flag" or "default".
  std::map<std::string, std::string> origins;
};

// Of the elements in a worker's KV pool.
inline const std::string& KvTypeOf(const Config& config, const Worker& worker) {
  return worker.kv_type.has_value() ? *worker.kv_type : config.engine.kv_type;
}

struct Overrides {
  std::vector<std::string> set;                    // "key.path=value", in order
  std::map<std::string, std::string> environment;  // BATON_… only; others are ignored
};

// Reads and checks `path`; `text` variants are for tests and fuzzing.
absl::StatusOr<Config> Load(const std::string& path, const Overrides& overrides = {});
absl::StatusOr<Config> Parse(const std::string& text, const std::string& name,
                             const Overrides& overrides = {});

// The effective values as YAML, each line with its origin in a comment.
std::string Print(const Config& config);

// The key paths whose effective values differ, in the order of Print; a worker that only one of
// them has counts with all its keys.
std::vector<std::string> Differences(const Config& a, const Config& b);

}  // namespace baton::config
