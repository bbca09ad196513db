// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The links of a running cluster, as a worker's /metrics page shows them.
//
// Pure: text in, values out.  The page is foreign: what is missing or no number is left at its
// default, and a link without a bandwidth is none.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/link_cost.h"

namespace baton::server {

struct ShownLink {
  std::string peer, transport;
  std::string link_class, expected;  // came up, should have; expected "any": nothing certain
  LinkCost cost;
  absl::Duration age;
  double in_flight_bytes = 0;
};

struct ShownWorker {
  std::vector<ShownLink> links;  // in the order of the page
  uint64_t kv_block_bytes = 0;   // of one block, all layers; 0: not said
  uint32_t kv_layers = 0;
};

ShownWorker ReadLinks(absl::string_view metrics_page);

// The time that the KV of so many prompt tokens takes over the link when it is idle.
absl::Duration PredictPrompt(const ShownWorker& worker, const ShownLink& link, uint32_t tokens);

}  // namespace baton::server
