// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// One prefill and one decode worker with a transport that lands writes late, in any order
// within what it promises, under random cancels, revocations, broken links and lost leases.
// Every answer is the oracle's, and when all is over nothing is owned.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <set>
#include <vector>

#include "base/random.h"
#include "decode_worker/decode_worker.h"
#include "prefill_worker/prefill_worker.h"
#include "sim/hash_engine.h"
#include "tests/worker_fakes.h"

namespace baton {
namespace {

const engine::KvLayout kSource{.layers = 3, .kv_heads = 1, .head_dim = 4, .blocks = 24};
const engine::KvLayout kTarget{.layers = 3, .kv_heads = 1, .head_dim = 4, .blocks = 30};
const sim::HashEngineOptions kHashes{.vocab_size = 40, .context_max = 300};
const WorkerRef kPrefill{"prefill-0", Incarnation(10)};
const WorkerRef kDecode{"decode-0", Incarnation(20)};

class ManualClock final : public Clock {
 public:
  absl::Time Now() const override { return now; }
  absl::Time now = absl::UnixEpoch();
};

// A write lands some turns after it was posted, also when its push was revoked or abandoned
// meanwhile; Quiet comes only after the last one.
class LateTransport final : public kv::OwnerTransport, public kv::WriterTransport {
 public:
  LateTransport(uint64_t seed, uint8_t* source, uint8_t* target)
      : random_(seed), source_(source), target_(target) {}

  // ── the owner's view ──
  void Grant(const kv::Ticket& ticket) override {
    grants_[ticket.key] = ticket;
    if (down_) {
      owner_events_.push_back(kv::WriterFailed{ticket.key.generation, Broken()});
    }
  }
  void Revoke(Generation generation) override {
    const kv::GrantKey key{kDecode.incarnation, generation};
    ENSURE(grants_.erase(key) == 1);
    revoked_.insert(key);
    if (accepted_.contains(key))
      writer_events_.push_back(kv::PushEnded{key, absl::CancelledError("revoked")});
  }
  // ── the writer's view ──
  void Accept(const kv::Ticket& ticket) override {
    if (down_ || revoked_.contains(ticket.key) || closed_.contains(ticket.key) ||
        accepted_.contains(ticket.key)) {
      writer_events_.push_back(kv::PushEnded{ticket.key, absl::CancelledError("refused")});
      return;
    }
    accepted_.insert(ticket.key);
    tickets_[ticket.key] = ticket;
  }
  void Write(kv::WriteId id, kv::GrantKey key, uint32_t layer,
             absl::Span<const kv::WritePiece> pieces) override {
    if (!accepted_.contains(key)) {  // its PushEnded is on the way
      writer_events_.push_back(kv::WriteDone{id, Broken()});
      return;
    }
    writes_.push_back({id, key, layer, {pieces.begin(), pieces.end()}});
  }
  void SendCommit(const kv::Commit& commit) override {
    if (accepted_.erase(commit.key) == 0) return;  // it broke meanwhile (rule 13)
    closed_.insert(commit.key);
    commits_.push_back(commit);
  }
  void Abandon(kv::GrantKey key, const absl::Status& why) override {
    if (accepted_.erase(key) == 0) return;
    closed_.insert(key);
    if (grants_.contains(key)) owner_events_.push_back(kv::WriterFailed{key.generation, why});
  }

  void Poll(std::vector<kv::TransportEvent>&) override { ENSURE(false); }
  std::vector<kv::TransportEvent> TakeOwnerEvents() { return std::exchange(owner_events_, {}); }
  std::vector<kv::TransportEvent> TakeWriterEvents() { return std::exchange(writer_events_, {}); }

  // The link breaks: a Commit on its way is lost, a write on its way may still land.
  void Break() {
    if (down_) return;
    down_ = true;
    for (const auto& [key, ticket] : grants_) {
      owner_events_.push_back(kv::WriterFailed{key.generation, Broken()});
    }
    owner_events_.push_back(kv::PeerDown{kPrefill, Broken()});
    for (const kv::GrantKey& key : accepted_) {
      closed_.insert(key);
      writer_events_.push_back(kv::PushEnded{key, Broken()});
    }
    accepted_.clear();
    commits_.clear();
    writer_events_.push_back(kv::PeerDown{kDecode, Broken()});
  }

  void Turn() {
    if (down_ && random_.Chance(0.1)) {
      down_ = false;
      owner_events_.push_back(kv::PeerUp{kPrefill, {.transport = "late"}});
      writer_events_.push_back(kv::PeerUp{kDecode, {.transport = "late"}});
    }
    for (size_t i = 0; i < writes_.size();) {
      if (!random_.Chance(0.3)) {
        ++i;
        continue;
      }
      Land(writes_[i]);
      writes_.erase(writes_.begin() + static_cast<int64_t>(i));
    }
    if (!commits_.empty() && random_.Chance(0.3)) {
      const kv::Commit commit = commits_.front();
      commits_.erase(commits_.begin());
      if (grants_.erase(commit.key) == 1) owner_events_.push_back(kv::CommitArrived{commit});
    }
    for (auto it = revoked_.begin(); it != revoked_.end();) {
      const bool out = std::any_of(writes_.begin(), writes_.end(),
                                   [&](const Out& write) { return write.key == *it; });
      if (out || !random_.Chance(0.2)) {
        ++it;
        continue;
      }
      owner_events_.push_back(kv::Quiet{it->generation});
      accepted_.erase(*it);
      closed_.insert(*it);
      it = revoked_.erase(it);
    }
  }
  static absl::Status Broken() { return absl::UnavailableError("the link broke"); }
  bool Idle() const { return writes_.empty() && commits_.empty() && revoked_.empty(); }

 private:
  struct Out {
    kv::WriteId id;
    kv::GrantKey key;
    uint32_t layer = 0;
    std::vector<kv::WritePiece> pieces;
  };
  void Land(const Out& write) {
    const kv::Ticket& to = tickets_.at(write.key);
    for (const kv::WritePiece& piece : write.pieces) {
      std::memcpy(target_ + kTarget.offset(write.layer, to.blocks.at(piece.target_index)),
                  source_ + kSource.offset(write.layer, piece.source), kSource.block_bytes());
    }
    const bool failed = closed_.contains(write.key) && random_.Chance(0.5);
    LinkWork work;
    if (!failed) work.bytes = write.pieces.size() * kTarget.block_bytes();
    writer_events_.push_back(kv::WriteDone{write.id, failed ? Broken() : absl::OkStatus(), work});
  }

  Random random_;
  bool down_ = false;
  uint8_t* const source_;
  uint8_t* const target_;
  std::map<kv::GrantKey, kv::Ticket> grants_;   // open at the owner
  std::set<kv::GrantKey> accepted_;             // by the writer
  std::map<kv::GrantKey, kv::Ticket> tickets_;  // that were ever accepted
  std::set<kv::GrantKey> revoked_;              // not yet quiet
  std::set<kv::GrantKey> closed_;
  std::vector<Out> writes_;
  std::vector<kv::Commit> commits_;
  std::vector<kv::TransportEvent> owner_events_, writer_events_;
};

// The two Poll()s of the two views, told apart.
class OwnerView final : public kv::OwnerTransport {
 public:
  explicit OwnerView(LateTransport& t) : t_(t) {}
  void Grant(const kv::Ticket& ticket) override { t_.Grant(ticket); }
  void Revoke(Generation generation) override { t_.Revoke(generation); }
  void Poll(std::vector<kv::TransportEvent>& events) override {
    for (auto& event : t_.TakeOwnerEvents()) events.push_back(event);
    if (!std::exchange(up_, true)) events.push_back(kv::PeerUp{kPrefill, {.transport = "late"}});
  }

 private:
  LateTransport& t_;
  bool up_ = false;
};
class WriterView final : public kv::WriterTransport {
 public:
  explicit WriterView(LateTransport& t) : t_(t) {}
  void Accept(const kv::Ticket& ticket) override { t_.Accept(ticket); }
  void Write(kv::WriteId id, kv::GrantKey key, uint32_t layer,
             absl::Span<const kv::WritePiece> pieces) override {
    t_.Write(id, key, layer, pieces);
  }
  void SendCommit(const kv::Commit& commit) override { t_.SendCommit(commit); }
  void Abandon(kv::GrantKey key, const absl::Status& why) override { t_.Abandon(key, why); }
  void Poll(std::vector<kv::TransportEvent>& events) override {
    for (auto& event : t_.TakeWriterEvents()) events.push_back(event);
    if (!std::exchange(up_, true)) events.push_back(kv::PeerUp{kDecode, {.transport = "late"}});
  }

 private:
  LateTransport& t_;
  bool up_ = false;
};

// A front end that starts over, with what it has, whenever an attempt ends early.
struct Asked {
  Sequence asked;    // as the client did
  Sequence current;  // with the outputs so far
  uint32_t attempt = 0;
  StreamId decode, prefill;
  bool over = false;
};

struct Pair {
  explicit Pair(uint64_t seed)
      : random(seed),
        source(kSource.pool_bytes(), 0x11),
        target(kTarget.pool_bytes(), 0x22),
        transport(seed, source.data(), target.data()),
        owner_view(transport),
        writer_view(transport),
        prefill_engine(kHashes, {source.data(), kSource}, clock),
        decode_engine(kHashes, {target.data(), kTarget}, clock),
        prefill(PrefillOptions(), prefill_engine, writer_view, kPrefill, kSource),
        decode(DecodeOptions(), decode_engine, owner_view, kDecode, kTarget) {}

  prefill::Options PrefillOptions() {
    prefill::Options options{.chunk_tokens = static_cast<uint32_t>(random.Between(1, 6)) * 16,
                             .pipelining = random.Chance(0.8)};
    options.prefix_cache = {.enabled = random.Chance(0.7), .key = {3, 4}};
    return options;
  }
  decode::Options DecodeOptions() {
    decode::Options options{.batch_tokens = static_cast<uint32_t>(random.Between(4, 64)),
                            .recompute_here_max = static_cast<uint32_t>(random.Between(1, 200))};
    options.prefix_cache = {.enabled = random.Chance(0.7), .key = {5, 6}};
    return options;
  }

  void Ask() {
    Asked& request = requests.emplace_back();
    Sequence& s = request.asked;
    s = fakes::Prompt(static_cast<uint32_t>(random.Between(1, 110)));
    for (TokenId& id : s.prompt) id %= 40;
    s.prompt[s.prompt.size() / 2] = static_cast<TokenId>(random.Below(3));
    s.remaining_tokens = static_cast<uint32_t>(random.Between(1, 40));
    s.sampling.seed = random.Next();
    if (random.Chance(0.3)) s.sampling.presence_penalty = 0.5f;
    request.current = s;
    OpenAttempt(request);
  }
  void OpenAttempt(Asked& request) {
    ++request.attempt;
    request.decode = StreamId(++streams);
    request.prefill = StreamId();
    const AttemptId id = IdOf(request);
    decode.Receive(StreamOpened{
        request.decode, Reserve{id, kDecode.incarnation, request.current, absl::Hours(1), kPrefill,
                                static_cast<uint32_t>(random.Between(0, 40))}});
    by_stream[request.decode] = &request - requests.data();
  }
  AttemptId IdOf(const Asked& request) const {
    return fakes::Attempt(1 + (&request - requests.data()), request.attempt);
  }
  void Close(Asked& request) {
    decode.Receive(StreamClosed{request.decode});
    by_stream.erase(request.decode);
    ClosePrefill(request);
  }
  void ClosePrefill(Asked& request) {
    if (request.prefill == StreamId()) return;
    prefill.Receive(StreamClosed{request.prefill});
    by_stream.erase(request.prefill);
    request.prefill = StreamId();
  }

  void FromDecode(const WorkerOutput& output) {
    const auto found = by_stream.find(output.stream);
    if (found == by_stream.end()) return;
    Asked& request = requests[found->second];
    if (const auto* reserved = std::get_if<Reserved>(&output.message)) {
      if (reserved->ticket.empty()) return;
      request.prefill = StreamId(++streams);
      by_stream[request.prefill] = found->second;
      prefill.Receive(StreamOpened{request.prefill, Prefill{IdOf(request), request.current,
                                                            absl::Hours(1), reserved->ticket}});
      ++pushes;
    } else if (const auto* token = std::get_if<Token>(&output.message)) {
      REQUIRE(token->index == request.current.outputs.size());  // K10
      request.current.outputs.push_back(token->token.id);
      --request.current.remaining_tokens;
    } else if (std::holds_alternative<Finished>(output.message)) {
      REQUIRE(request.current.remaining_tokens == 0);
      request.over = true;
      by_stream.erase(output.stream);
    } else if (const auto* ended = std::get_if<Ended>(&output.message)) {
      INFO(ended->why.ToString());
      REQUIRE(ended->why.code() != absl::StatusCode::kInternal);
      by_stream.erase(output.stream);
      ClosePrefill(request);
      OpenAttempt(request);
      ++retries;
    }
  }
  void FromPrefill(const WorkerOutput& output) {
    const auto found = by_stream.find(output.stream);
    if (found == by_stream.end() || !output.last) return;
    Asked& request = requests[found->second];
    by_stream.erase(output.stream);
    request.prefill = StreamId();
    if (!std::holds_alternative<Ended>(output.message)) return;
    decode.Receive(StreamMessage{request.decode, Revoke{}});
  }

  void Turn(double trouble) {
    for (Asked& request : requests) {
      if (request.over || !random.Chance(trouble)) continue;
      switch (random.Below(3)) {
        case 0:  // the client is gone
          Close(request);
          request.over = true;
          request.asked.remaining_tokens = 0;
          break;
        case 1:
          decode.Receive(StreamMessage{request.decode, Revoke{}});
          break;
        case 2:
          if (request.prefill == StreamId()) break;
          ClosePrefill(request);
          decode.Receive(StreamMessage{request.decode, Revoke{}});
          break;
      }
    }
    transport.Turn();
    const absl::Time next = std::min(prefill_engine.NextEvent(), decode_engine.NextEvent());
    if (next != absl::InfiniteFuture() && random.Chance(0.7)) clock.now = std::max(clock.now, next);
    if (random.Chance(trouble)) transport.Break();
    if (random.Chance(trouble * 0.2)) {
      clock.now += absl::Seconds(3);  // no heartbeat for as long: every lease is lost
    } else {
      prefill.Receive(FrontendAlive{Incarnation(99)});
      decode.Receive(FrontendAlive{Incarnation(99)});
    }
    if (random.Chance(0.8)) prefill.Tick(clock.now);
    if (random.Chance(0.8)) decode.Tick(clock.now);
    for (const WorkerOutput& output : prefill.TakeOutputs()) FromPrefill(output);
    for (const WorkerOutput& output : decode.TakeOutputs()) FromDecode(output);
  }
  bool Over() const {
    return transport.Idle() && std::all_of(requests.begin(), requests.end(),
                                           [](const Asked& request) { return request.over; });
  }

  Random random;
  ManualClock clock;
  std::vector<uint8_t> source, target;
  LateTransport transport;
  OwnerView owner_view;
  WriterView writer_view;
  sim::HashEngine prefill_engine, decode_engine;
  prefill::PrefillWorker prefill;
  decode::DecodeWorker decode;
  std::vector<Asked> requests;
  std::map<StreamId, size_t> by_stream;
  uint64_t streams = 0;
  uint64_t pushes = 0, retries = 0;
};

TEST_CASE("random requests and faults: right answers, nothing owned", "[worker_pair]") {
  uint64_t pushes = 0, retries = 0, answers = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    Pair pair(seed);
    pair.requests.reserve(16);
    for (int i = 0; i < 400; ++i) {
      if (pair.requests.size() < 16 && pair.random.Chance(0.1)) pair.Ask();
      pair.Turn(0.01);
    }
    for (int i = 0; i < 20000 && !pair.Over(); ++i) pair.Turn(0);  // when faults stop, all ends
    REQUIRE(pair.Over());
    for (int i = 0; i < 20; ++i) pair.Turn(0);
    for (const Asked& request : pair.requests) {
      if (request.asked.remaining_tokens == 0) continue;  // cancelled
      std::vector<TokenId> expected;
      for (const OutputToken& token : sim::Oracle(request.asked, kHashes, kTarget)) {
        expected.push_back(token.id);
      }
      REQUIRE(request.current.outputs == expected);
      ++answers;
    }
    const engine::BlockCounts source = pair.prefill.metrics().blocks;
    const engine::BlockCounts target = pair.decode.metrics().blocks;
    REQUIRE(source.free + source.cached == kSource.blocks);
    REQUIRE(target.free + target.cached == kTarget.blocks);
    pushes += pair.pushes;
    retries += pair.retries;
  }
  CHECK(pushes > 500);
  CHECK(retries > 300);
  CHECK(answers > 1000);
}

}  // namespace
}  // namespace baton
