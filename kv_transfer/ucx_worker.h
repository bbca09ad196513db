// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One UCX context with one worker: memory that others may write, messages, endpoints.
//
// A data path is a context of its own, made by ucx_settings.h.
//
// Thread:     created anywhere, then used by one thread at a time.
// Ownership:  endpoints, memory and keys must be gone before their worker.
// Cost:       nothing blocks but Create and the destructor (≤ 1 s, for closing endpoints).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kv_transfer/ucx_handles.h"
#include "kv_transfer/ucx_settings.h"

namespace baton::kv {

// Called exactly once, on the worker's thread, from Progress or from the call itself.
using UcxDone = absl::AnyInvocable<void(const absl::Status&)>;

// Active messages of Baton's own; the payload is whole and stays valid during the call.
using UcxReceive =
    absl::AnyInvocable<void(absl::Span<const uint8_t> header, absl::Span<const uint8_t> payload)>;

class UcxWorker {
 public:
  using Options = UcxContextOptions;
  // FAILED_PRECONDITION: UCX has no transport for the path on these devices.
  static absl::StatusOr<std::unique_ptr<UcxWorker>> Create(const Options& options);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  // What a peer's Connect needs.
  const std::vector<uint8_t>& address() const { return address_; }
  size_t header_bytes_max() const { return header_bytes_max_; }
  uint64_t client() const { return client_; }

  // True if anything happened.
  bool Progress();
  // Readable when Progress would do something, after Arm() said true.
  int event_fd() const { return event_fd_; }
  // False: there is something to progress already.
  bool Arm();

  // Messages with this id go to `receive`.  Call once per id, before the first Progress.
  void OnMessage(uint16_t id, UcxReceive receive);
  // Rendezvous messages, which no Baton process sends, were refused this often.
  uint64_t messages_refused() const { return messages_refused_; }

  // For ucx_endpoint and ucx_memory.
  ucp_worker_h handle() const { return worker_.get(); }
  ucp_context_h context() const { return context_.get(); }
  // Takes over a close request that UCX has not finished (null: it has, or has refused), and what
  // must live until then.
  void AwaitClose(void* request, bool accepted, std::unique_ptr<struct UcxEndpointState> keep);
  size_t closing() const { return closing_.size(); }

 private:
  struct Receiver {
    UcxWorker* worker;
    UcxReceive receive;
  };
  struct Closing {
    void* request;   // null: UCX has ended the close
    bool confirmed;  // then
    std::unique_ptr<struct UcxEndpointState> keep;
    absl::Time give_up;
  };

  UcxWorker() = default;
  absl::Status Init(const Options& options);
  void ReapClosed();
  static ucs_status_t OnActiveMessage(void* argument, const void* header, size_t header_bytes,
                                      void* data, size_t bytes,
                                      const ucp_am_recv_param_t* parameters);

  UcxContextHandle context_;
  UcxWorkerHandle worker_;
  std::vector<uint8_t> address_;
  size_t header_bytes_max_ = 0;
  uint64_t client_ = 0;
  int event_fd_ = -1;
  uint64_t messages_refused_ = 0;
  std::vector<std::unique_ptr<Receiver>> receivers_;
  std::vector<Closing> closing_;
  // Of closed endpoints with operations that UCX has still not ended, though everyone else has
  // been told; it may do so at any time.
  std::vector<std::unique_ptr<struct UcxEndpointState>> late_;
};

// Memory that peers write without our help: UCX allocated it for those on this host, or pinned
// it for RDMA.
//
// Ownership:  must go before its worker.  Zeroed and lazily backed (sysv) or pre-faulted (posix).
class UcxMemory {
 public:
  // At a multiple of `alignment` (a power of two) where UCX can do that, else anywhere.
  // REQUIRES: bytes is a multiple of `alignment`.
  static absl::StatusOr<UcxMemory> Allocate(UcxWorker& worker, uint64_t bytes, uint64_t alignment);
  // Memory of someone else's, pinned for RDMA; it outlives the result, at the same physical
  // pages: what punches holes into it makes peers write where nobody reads.
  static absl::StatusOr<UcxMemory> Register(UcxWorker& worker, uint8_t* base, uint64_t bytes);
  UcxMemory() = default;
  UcxMemory(UcxMemory&& other) noexcept;
  UcxMemory& operator=(UcxMemory&& other) noexcept;
  ~UcxMemory();

  uint8_t* base() const { return base_; }
  uint64_t bytes() const { return bytes_; }
  // What a peer's endpoint unpacks into a key.
  absl::StatusOr<std::vector<uint8_t>> PackKey() const;

 private:
  ucp_context_h context_ = nullptr;
  ucp_mem_h memory_ = nullptr;
  uint8_t* base_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace baton::kv
