// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The front end's gRPC service, baton.v1.Inference: Generate, Tokenize, ListModels.
//
// Threads:  gRPC's post to the work pool; answers are written from the delivery thread.
// Failure:  errors before the first token end the call with a status and no message; a client
//           that reads too slowly is cancelled once its buffer is full (K5).
#pragma once

#include <functional>
#include <memory>

#include "server/answer.h"
#include "server/frontend_model.h"
#include "server/work_pool.h"

namespace grpc {
class Service;
}

namespace baton::server {

struct InferenceOptions {
  Answer::Context answer;
  const FrontendModel* model = nullptr;
  WorkPool* pool = nullptr;
  absl::Duration default_deadline = absl::Seconds(300);
  size_t buffer_bytes = 4u << 20;  // waiting for one client
};

std::unique_ptr<grpc::Service> MakeInferenceService(InferenceOptions options);

}  // namespace baton::server
