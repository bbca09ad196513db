// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// ApiError -> grpc::Status with google.rpc details: RetryInfo when it may be tried later,
// BadRequest when a field is wrong.
#pragma once

#include <grpcpp/support/status.h>

#include "server/openai_request.h"

namespace baton::server {

// `begun`: tokens were already sent, so that a plain retry would repeat them; no RetryInfo then.
grpc::Status ToRpcStatus(const ApiError& error, bool begun);

}  // namespace baton::server
