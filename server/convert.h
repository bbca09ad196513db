// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// proto/worker.proto <-> base/messages.h.
//
// What comes in is foreign: every value is checked before a worker or the dispatcher sees it,
// and a message that breaks a rule is INVALID_ARGUMENT that names the field.  What the two
// sides cannot know (vocabulary, context) is bounded by the caller's limits.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/messages.h"

namespace baton::worker::v1 {
class ToWorker;
class FromWorker;
class WorkerStatus;
}  // namespace baton::worker::v1

namespace baton::server {

struct ConvertLimits {
  uint32_t vocab_size = 0;           // token ids are below it; 0: not known
  uint32_t sequence_max = 1u << 24;  // tokens of prompt, outputs and what may follow
};

void ToProto(const ToWorker& from, worker::v1::ToWorker* to);
void ToProto(const FromWorker& from, worker::v1::FromWorker* to);
void ToProto(const WorkerStatus& from, worker::v1::WorkerStatus* to);

absl::StatusOr<ToWorker> FromProto(const worker::v1::ToWorker& from, const ConvertLimits& limits);
absl::StatusOr<FromWorker> FromProto(const worker::v1::FromWorker& from);
absl::StatusOr<WorkerStatus> FromProto(const worker::v1::WorkerStatus& from);

// The rules for sampling parameters, wherever they come from.
absl::Status CheckSampling(const SamplingParams& params, uint32_t vocab_size);

}  // namespace baton::server
