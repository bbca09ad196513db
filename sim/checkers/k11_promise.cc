// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "sim/checkers/k11_promise.h"

namespace baton::sim {
namespace {

constexpr size_t kPromisesMax = 20000;  // of one process; the oldest owners' go first

}  // namespace

void K11Promise::Promise(LifeId writer, const kv::GrantKey& key) {
  const GrantFacts* grant = book_.Find(key);
  if (grant != nullptr && grant->writes_out > 0 &&
      grant->ticket.writer == book_.life(writer).incarnation) {
    log_.Violation("K11: ", book_.life(writer).name(), " says Quiet of generation ",
                   key.generation.value(), " with ", grant->writes_out, " writes out");
  }
  auto& mine = promised_[writer];
  mine.insert(key);
  if (mine.size() > kPromisesMax) mine.erase(mine.begin());
}

void K11Promise::Said(LifeId writer, LifeId owner, const kv::QuietFrame& quiet) {
  const Incarnation incarnation = book_.life(owner).hello.self.incarnation;
  if (quiet.generation) {
    Promise(writer, {incarnation, *quiet.generation});
    return;
  }
  for (const auto& [key, grant] : book_.grants) {  // of everything of this incarnation
    if (key.owner == incarnation && grant.ticket.writer == book_.life(writer).incarnation) {
      Promise(writer, key);
    }
  }
}

void K11Promise::Posted(LifeId writer, const kv::DataWrite& write) {
  const auto it = promised_.find(writer);
  if (it == promised_.end() || !it->second.contains(write.header.key)) return;
  log_.Violation("K11: ", book_.life(writer).name(), " writes under generation ",
                 write.header.key.generation.value(), ", of which it said Quiet");
}

}  // namespace baton::sim
