// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Every UCX handle has an owner; raw ones never leave kv_transfer/ucx_*.
//
// Thread:     whoever owns the handle; UCX workers here are used by one thread at a time.
// Ownership:  destroy in the order keys, endpoints, memory, worker, context; members of a
//             class declared in the opposite order do so by themselves.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>

namespace baton::kv {

template <auto Destroy>
struct UcxDelete {
  template <typename T>
  void operator()(T* handle) const {
    Destroy(handle);
  }
};

using UcxConfigHandle = std::unique_ptr<ucp_config_t, UcxDelete<ucp_config_release>>;
using UcxContextHandle = std::unique_ptr<ucp_context, UcxDelete<ucp_cleanup>>;
using UcxWorkerHandle = std::unique_ptr<ucp_worker, UcxDelete<ucp_worker_destroy>>;
using UcxKeyHandle = std::unique_ptr<ucp_rkey, UcxDelete<ucp_rkey_destroy>>;

}  // namespace baton::kv
