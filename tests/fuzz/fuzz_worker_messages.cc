// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Any bytes as a message of proto/worker.proto: refused, or values that keep the rules.
// DEPS: worker_calls
#include <cstddef>
#include <cstdint>

#include "base/ensure.h"
#include "proto/worker.pb.h"
#include "server/convert.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace pb = baton::worker::v1;
  pb::ToWorker to_worker;
  if (to_worker.ParseFromArray(data, static_cast<int>(size))) {
    const auto message = baton::server::FromProto(to_worker, {1000, 8192});
    if (message.ok()) {
      if (const auto* reserve = std::get_if<baton::Reserve>(&*message)) {
        ENSURE(!reserve->sequence.prompt.empty() && reserve->sequence.remaining_tokens > 0);
      }
    }
  }
  pb::FromWorker from_worker;
  if (from_worker.ParseFromArray(data, static_cast<int>(size))) {
    (void)baton::server::FromProto(from_worker);
  }
  pb::WorkerStatus status;
  if (status.ParseFromArray(data, static_cast<int>(size))) (void)baton::server::FromProto(status);
  return 0;
}
