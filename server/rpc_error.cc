// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "server/rpc_error.h"

#include <string>

#include "absl/strings/string_view.h"

namespace baton::server {
namespace {

// The few google.rpc messages needed, written field by field in protobuf's wire format.
void PutVarint(uint64_t value, std::string* to) {
  for (; value >= 0x80; value >>= 7) to->push_back(static_cast<char>(value | 0x80));
  to->push_back(static_cast<char>(value));
}
void PutNumber(int field, uint64_t value, std::string* to) {
  PutVarint(static_cast<uint64_t>(field) << 3, to);
  PutVarint(value, to);
}
void PutBytes(int field, absl::string_view bytes, std::string* to) {
  PutVarint(static_cast<uint64_t>(field) << 3 | 2, to);
  PutVarint(bytes.size(), to);
  to->append(bytes.data(), bytes.size());
}
// google.protobuf.Any
std::string Any(absl::string_view type, absl::string_view value) {
  std::string any;
  PutBytes(1, "type.googleapis.com/google.rpc." + std::string(type), &any);
  PutBytes(2, value, &any);
  return any;
}
std::string RetryInfo(absl::Duration delay) {
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(delay);
  std::string duration, info;
  PutNumber(1, static_cast<uint64_t>(nanoseconds / 1000000000), &duration);
  PutNumber(2, static_cast<uint64_t>(nanoseconds % 1000000000), &duration);
  PutBytes(1, duration, &info);
  return info;
}
std::string BadRequest(absl::string_view field, absl::string_view description) {
  std::string violation, request;
  PutBytes(1, field, &violation);
  PutBytes(2, description, &violation);
  PutBytes(1, violation, &request);
  return request;
}

grpc::StatusCode CodeOf(int http_status) {
  switch (http_status) {
    case 400:
      return grpc::INVALID_ARGUMENT;
    case 404:
      return grpc::NOT_FOUND;
    case 429:
      return grpc::RESOURCE_EXHAUSTED;
    case 499:
      return grpc::CANCELLED;
    case 503:
      return grpc::UNAVAILABLE;
    case 504:
      return grpc::DEADLINE_EXCEEDED;
    default:
      return grpc::INTERNAL;
  }
}

}  // namespace

grpc::Status ToRpcStatus(const ApiError& error, bool begun) {
  const grpc::StatusCode code = CodeOf(error.status);
  std::string details;
  PutNumber(1, static_cast<uint64_t>(code), &details);
  PutBytes(2, error.message, &details);
  if (error.retry_after > absl::ZeroDuration() && !begun) {
    PutBytes(3, Any("RetryInfo", RetryInfo(error.retry_after)), &details);
  }
  if (code == grpc::INVALID_ARGUMENT && !error.param.empty()) {
    PutBytes(3, Any("BadRequest", BadRequest(error.param, error.message)), &details);
  }
  return grpc::Status(code, error.message, details);
}

}  // namespace baton::server
