// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// `baton bench kv`: how fast the production transport moves a request's KV cache from one
// process to another on this machine, beside what one thread copies.
//
// The work: a request owns 64 of a pool's 128 blocks in every layer, scattered differently on
// the two sides.  Layer after layer is pushed (in flight 1: when the one before is complete;
// all: at once), then the Commit.  The clock runs from the first Write at the writer to
// CommitArrived at the owner; every byte is checked outside it, and so are the blocks that
// must not have changed.
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bell.h"
#include "base/clock.h"
#include "base/ensure.h"
#include "kv_transfer/ucx_transport.h"
#include "server/commands.h"

namespace baton::server {
namespace {

constexpr uint32_t kPoolBlocks = 128;
constexpr uint32_t kPushedBlocks = 64;
constexpr uint8_t kPoison = 0xee;
constexpr absl::Duration kPatience = absl::Seconds(30);
constexpr Incarnation kOwner{0xd0};
constexpr Incarnation kWriter{0xf0};

struct Shape {
  const char* name;
  const char* work;
  uint32_t layers, kv_heads, head_dim;
};
constexpr Shape kShapes[] = {{"smollm2", "W1", 30, 3, 64}, {"llama8b", "W2", 32, 8, 128}};

kv::Layout LayoutOf(const Shape& shape) {
  kv::Layout layout;
  layout.layers = shape.layers;
  layout.kv_heads = shape.kv_heads;
  layout.head_dim = shape.head_dim;
  layout.block_tokens = kBlockTokens;
  layout.blocks = kPoolBlocks;
  return layout;
}

constexpr uint32_t SourceBlock(uint32_t i) { return (37 * i + 5) % kPoolBlocks; }
constexpr uint32_t TargetBlock(uint32_t i) { return (53 * i + 11) % kPoolBlocks; }

double Now() { return absl::ToUnixNanos(RealClock().Now()) * 1e-9; }

double CpuSeconds() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return t.tv_sec + t.tv_usec * 1e-6; };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

uint64_t Word(uint32_t rep, uint32_t layer, uint32_t i, uint64_t at) {
  return (uint64_t{rep + 1} << 48) | (uint64_t{layer} << 40) | (uint64_t{i} << 32) | at;
}

// Every word of every pushed block has its own value.
void FillPool(uint8_t* pool, const kv::Layout& layout, uint32_t rep) {
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    for (uint32_t i = 0; i < kPushedBlocks; ++i) {
      auto* words = reinterpret_cast<uint64_t*>(pool + layout.offset(layer, SourceBlock(i)));
      for (uint64_t at = 0; at < layout.block_bytes() / 8; ++at) {
        words[at] = Word(rep, layer, i, at);
      }
    }
  }
}

bool CheckPool(const uint8_t* pool, const kv::Layout& layout, uint32_t rep) {
  for (uint32_t layer = 0; layer < layout.layers; ++layer) {
    std::vector<int> owner(kPoolBlocks, -1);
    for (uint32_t i = 0; i < kPushedBlocks; ++i) owner[TargetBlock(i)] = static_cast<int>(i);
    for (uint32_t block = 0; block < kPoolBlocks; ++block) {
      const uint8_t* bytes = pool + layout.offset(layer, block);
      const auto* words = reinterpret_cast<const uint64_t*>(bytes);
      for (uint64_t at = 0; at < layout.block_bytes() / 8; ++at) {
        const uint64_t expected = owner[block] >= 0
                                      ? Word(rep, layer, static_cast<uint32_t>(owner[block]), at)
                                      : uint64_t{kPoison} * 0x0101010101010101u;
        if (words[at] != expected) return false;
      }
    }
  }
  return true;
}

struct Spread {
  double median = 0, min = 0, max = 0;
};
Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  const double median = n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
  return {median, values.front(), values.back()};
}

// Fixed-size records between the two processes of a benchmark; never timed.
struct Note {
  double a = 0, b = 0, c = 0;
};
bool Tell(int fd, const Note& note) { return ::write(fd, &note, sizeof note) == sizeof note; }
bool Hear(int fd, Note& note) { return ::read(fd, &note, sizeof note) == sizeof note; }

kv::UcxTransportOptions OptionsFor(Role role, const kv::Layout& layout, kv::TransportChoice choice,
                                   bool sums, Bell* bell) {
  kv::UcxTransportOptions options;
  options.role = role;
  options.self = role == Role::kDecode ? WorkerRef{"owner", kOwner} : WorkerRef{"writer", kWriter};
  options.listen = "127.0.0.1:0";
  options.layout = layout;
  options.numeric_class = "bench";
  options.choice = choice;
  options.devices = {"lo"};
  options.seed = static_cast<uint64_t>(::getpid());
  options.bell = bell;
  options.check_one_in = sums ? 1 : 0;
  return options;
}

kv::Ticket TicketOf(uint32_t rep) {
  kv::Ticket ticket;
  ticket.key = {kOwner, Generation(rep + 1)};
  ticket.writer = kWriter;
  ticket.attempt = {{Incarnation(1), rep + 1}, 1};
  ticket.tokens = kPushedBlocks * kBlockTokens;
  for (uint32_t i = 0; i < kPushedBlocks; ++i) ticket.blocks.push_back(TargetBlock(i));
  return ticket;
}

template <typename Event>
bool Contains(const std::vector<kv::TransportEvent>& events) {
  return std::any_of(events.begin(), events.end(), [](const kv::TransportEvent& event) {
    return std::holds_alternative<Event>(event);
  });
}

// ── the owner's process ─────────────────────────────────────────────────────────────

// Spins, as the benchmarks of the peers do: sees the last word of the last block, then the Commit.
bool AwaitPush(kv::UcxTransport& transport, const kv::Layout& layout, uint32_t rep, Note& seen) {
  const uint64_t at = layout.block_bytes() / 8 - 1;
  const auto* words = reinterpret_cast<volatile const uint64_t*>(
      transport.PoolBase() + layout.offset(layout.layers - 1, TargetBlock(kPushedBlocks - 1)));
  const uint64_t expected = Word(rep, layout.layers - 1, kPushedBlocks - 1, at);
  std::vector<kv::TransportEvent> events;
  const double give_up = Now() + absl::FDivDuration(kPatience, absl::Seconds(1));
  seen.a = 0;
  while (Now() < give_up) {
    if (seen.a == 0 && words[at] == expected) seen.a = Now();
    transport.Poll(events);
    if (Contains<kv::CommitArrived>(events)) {
      seen.b = Now();
      if (seen.a == 0) seen.a = seen.b;
      return true;
    }
    sched_yield();
  }
  return false;
}

int RunOwner(int channel, const kv::Layout& layout, kv::TransportChoice choice) {
  Bell bell;
  auto transport =
      kv::UcxTransport::Create(OptionsFor(Role::kDecode, layout, choice, false, &bell));
  if (!transport.ok()) {
    (void)Tell(channel, {});
    return Fail(transport.status());
  }
  kv::UcxTransport& owner = **transport;
  std::memset(owner.PoolBase(), kPoison, layout.pool_bytes());
  if (!Tell(channel, {static_cast<double>(owner.port())})) return kExitFailure;
  Note note;
  while (Hear(channel, note)) {
    const auto rep = static_cast<uint32_t>(note.a);
    owner.Grant(TicketOf(rep));
    const double cpu = CpuSeconds();
    if (!Tell(channel, {})) return kExitFailure;
    Note seen;
    if (!AwaitPush(owner, layout, rep, seen)) return kExitFailure;
    seen.c = CpuSeconds() - cpu;
    const bool right = CheckPool(owner.PoolBase(), layout, rep);
    if (!Tell(channel, seen) || !Tell(channel, {right ? 1.0 : 0.0})) return kExitFailure;
  }
  return kExitOk;
}

// ── the writer's process ────────────────────────────────────────────────────────────

class Writer {
 public:
  Writer(kv::UcxTransport& transport, Bell& bell, const kv::Layout& layout)
      : transport_(transport), bell_(bell), layout_(layout) {
    for (uint32_t i = 0; i < kPushedBlocks; ++i) pieces_.push_back({SourceBlock(i), i});
  }

  // OK when a link is up; else why there is none.
  absl::StatusOr<kv::LinkInfo> AwaitLink() {
    const double give_up = Now() + absl::FDivDuration(kPatience, absl::Seconds(1));
    while (Now() < give_up) {
      std::vector<kv::TransportEvent> events;
      transport_.Poll(events);
      for (const kv::TransportEvent& event : events) {
        if (const auto* up = std::get_if<kv::PeerUp>(&event)) return up->link;
        if (const auto* down = std::get_if<kv::PeerDown>(&event)) return down->why;
      }
      bell_.Wait(absl::Milliseconds(10));
    }
    return absl::UnavailableError("no link to the other process in 30 s");
  }

  // The seconds of each layer, if one is in flight at a time; false: the push failed.
  bool Push(uint32_t rep, bool one_at_a_time, std::vector<double>& layers) {
    const kv::Ticket ticket = TicketOf(rep);
    transport_.Accept(ticket);
    for (uint32_t layer = 0; layer < layout_.layers; ++layer) {
      const double start = Now();
      transport_.Write(kv::WriteId(++last_write_), ticket.key, layer, pieces_);
      if (!one_at_a_time) continue;
      if (!AwaitDone(layer + 1)) return false;
      layers.push_back(Now() - start);
    }
    if (!AwaitDone(layout_.layers)) return false;
    done_ = 0;
    kv::Commit commit;
    commit.key = ticket.key;
    commit.writer = ticket.writer;
    commit.attempt = ticket.attempt;
    commit.blocks = kPushedBlocks;
    commit.layers = layout_.layers;
    commit.bytes = uint64_t{kPushedBlocks} * layout_.layers * layout_.block_bytes();
    commit.first_tokens.emplace_back();
    transport_.SendCommit(commit);
    return true;
  }

 private:
  bool AwaitDone(uint32_t count) {
    const double give_up = Now() + absl::FDivDuration(kPatience, absl::Seconds(1));
    while (done_ < count) {
      std::vector<kv::TransportEvent> events;
      transport_.Poll(events);
      for (const kv::TransportEvent& event : events) {
        if (Contains<kv::PushEnded>({event})) return false;
        const auto* done = std::get_if<kv::WriteDone>(&event);
        if (done == nullptr) continue;
        if (!done->status.ok()) return false;
        ++done_;
      }
      if (done_ >= count) break;
      if (Now() > give_up) return false;
      bell_.Wait(absl::Milliseconds(10));
    }
    return true;
  }

  kv::UcxTransport& transport_;
  Bell& bell_;
  const kv::Layout& layout_;
  std::vector<kv::WritePiece> pieces_;
  uint64_t last_write_ = 0;
  uint32_t done_ = 0;
};

struct Row {
  std::string peer = "baton", transport, depth, work;
  bool sums = false;  // every block is compared with its CRC32C before the Commit counts
  uint64_t bytes = 0;
  std::vector<double> ms, layer_us, notify_us, cpu;
  bool verified = true;
};

void Print(const Row& row, bool json) {
  const Spread ms = SpreadOf(row.ms);
  const double rate = static_cast<double>(row.bytes) / ms.median / 1e6;
  const double layer = SpreadOf(row.layer_us).median;
  const double notify = SpreadOf(row.notify_us).median;
  const double cpu = SpreadOf(row.cpu).median;
  const auto optional = [](const std::vector<double>& values, double value, int digits) {
    return values.empty() ? std::string(digits == 0 ? "null" : "-")
                          : absl::StrFormat("%.*f", digits == 0 ? 1 : digits, value);
  };
  if (json) {
    std::printf(
        "{\"peer\": \"%s\", \"transport\": \"%s\", \"depth\": \"%s\", \"work\": \"%s\", "
        "\"sums\": %s, "
        "\"bytes\": %llu, \"reps\": %zu, \"ms\": %.4f, \"ms_min\": %.4f, \"ms_max\": %.4f, "
        "\"gb_s\": %.3f, \"layer_us\": %s, \"notify_us\": %s, \"cpu_s_per_gib\": %.3f, "
        "\"verified\": %s}\n",
        row.peer.c_str(), row.transport.c_str(), row.depth.c_str(), row.work.c_str(),
        row.sums ? "true" : "false", static_cast<unsigned long long>(row.bytes), row.ms.size(),
        ms.median, ms.min, ms.max, rate, optional(row.layer_us, layer, 0).c_str(),
        optional(row.notify_us, notify, 0).c_str(), cpu, row.verified ? "true" : "false");
  } else {
    std::printf("%-6s %-10s %-9s %-4s %-4s %9.2f %9.2f %9.2f %7.2f %9s %9s %10.3f %9s\n",
                row.peer.c_str(), row.transport.c_str(), row.depth.c_str(), row.work.c_str(),
                row.sums ? "yes" : "no", ms.median, ms.min, ms.max, rate,
                optional(row.layer_us, layer, 1).c_str(),
                optional(row.notify_us, notify, 1).c_str(), cpu, row.verified ? "yes" : "NO");
  }
  std::fflush(stdout);
}

// All repetitions of one depth; the first is a warm-up.
absl::Status Measure(int channel, Writer& writer, uint8_t* pool, const kv::Layout& layout,
                     uint32_t reps, uint32_t first_rep, bool one_at_a_time, Row& row) {
  for (uint32_t i = 0; i <= reps; ++i) {
    const uint32_t rep = first_rep + i;
    FillPool(pool, layout, rep);
    Note note;
    if (!Tell(channel, {static_cast<double>(rep)}) || !Hear(channel, note)) {
      return absl::UnavailableError("the owner's process is gone");
    }
    ::usleep(2000);  // the owner is polling
    std::vector<double> layers;
    const double cpu = CpuSeconds();
    const double start = Now();
    if (!writer.Push(rep, one_at_a_time, layers)) return absl::UnavailableError("a push failed");
    Note seen, right;
    if (!Hear(channel, seen) || !Hear(channel, right)) {
      return absl::UnavailableError("the owner's process is gone");
    }
    row.verified = row.verified && right.a == 1;
    if (i == 0) continue;
    row.ms.push_back((seen.b - start) * 1e3);
    for (const double seconds : layers) row.layer_us.push_back(seconds * 1e6);
    row.notify_us.push_back((seen.b - seen.a) * 1e6);
    row.cpu.push_back((CpuSeconds() - cpu + seen.c) / static_cast<double>(row.bytes) * (1u << 30));
  }
  return row.verified ? absl::OkStatus() : absl::DataLossError("wrong bytes at the owner");
}

absl::Status RunWriter(int channel, const Shape& shape, kv::TransportChoice choice, bool sums,
                       uint32_t reps, bool json) {
  const kv::Layout layout = LayoutOf(shape);
  Note port;
  if (!Hear(channel, port) || port.a == 0) return absl::UnavailableError("the owner did not start");
  Bell bell;
  auto options = OptionsFor(Role::kPrefill, layout, choice, sums, &bell);
  options.peers = {{"owner", absl::StrCat("127.0.0.1:", static_cast<int>(port.a))}};
  auto transport = kv::UcxTransport::Create(options);
  if (!transport.ok()) return transport.status();
  Writer writer(**transport, bell, layout);
  const absl::StatusOr<kv::LinkInfo> link = writer.AwaitLink();
  if (!link.ok()) return link.status();
  uint32_t first_rep = 0;
  for (const bool one_at_a_time : {true, false}) {
    Row row;
    row.transport = link->transport;
    row.depth = one_at_a_time ? "1" : "all";
    row.work = shape.work;
    row.sums = sums;
    row.bytes = uint64_t{kPushedBlocks} * layout.layers * layout.block_bytes();
    const absl::Status measured = Measure(channel, writer, (*transport)->PoolBase(), layout, reps,
                                          first_rep, one_at_a_time, row);
    if (!measured.ok()) return measured;
    Print(row, json);
    first_rep += reps + 1;
  }
  return absl::OkStatus();
}

// The same blocks copied by one thread into a shared map: what shared memory cannot beat.
void MeasureMemcpy(const Shape& shape, uint32_t reps, bool json) {
  const kv::Layout layout = LayoutOf(shape);
  const auto map = [&](int flags) {
    void* mapped =
        ::mmap(nullptr, layout.pool_bytes(), PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    ENSURE(mapped != MAP_FAILED);
    std::memset(mapped, kPoison, layout.pool_bytes());
    return static_cast<uint8_t*>(mapped);
  };
  uint8_t* source = map(MAP_PRIVATE);
  uint8_t* target = map(MAP_SHARED);
  Row row;
  row.peer = "limit";
  row.transport = "memcpy";
  row.depth = "1";
  row.work = shape.work;
  row.bytes = uint64_t{kPushedBlocks} * layout.layers * layout.block_bytes();
  for (uint32_t rep = 0; rep <= reps; ++rep) {
    FillPool(source, layout, rep);
    const double cpu = CpuSeconds();
    const double start = Now();
    for (uint32_t layer = 0; layer < layout.layers; ++layer) {
      for (uint32_t i = 0; i < kPushedBlocks; ++i) {
        std::memcpy(target + layout.offset(layer, TargetBlock(i)),
                    source + layout.offset(layer, SourceBlock(i)), layout.block_bytes());
      }
    }
    const double seconds = Now() - start;
    const double used = CpuSeconds() - cpu;
    row.verified = CheckPool(target, layout, rep) && row.verified;
    if (rep == 0) continue;
    row.ms.push_back(seconds * 1e3);
    row.cpu.push_back(used / static_cast<double>(row.bytes) * (1u << 30));
  }
  Print(row, json);
  ::munmap(source, layout.pool_bytes());
  ::munmap(target, layout.pool_bytes());
}

absl::Status RunPair(const Shape& shape, kv::TransportChoice choice, bool sums, uint32_t reps,
                     bool json) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
    return absl::ResourceExhaustedError("no socket pair");
  }
  const pid_t child = ::fork();
  if (child < 0) return absl::ResourceExhaustedError("cannot fork");
  if (child == 0) {
    ::close(ends[0]);
    ::_exit(RunOwner(ends[1], LayoutOf(shape), choice));
  }
  ::close(ends[1]);
  const absl::Status status = RunWriter(ends[0], shape, choice, sums, reps, json);
  ::close(ends[0]);
  int result = 0;
  ::waitpid(child, &result, 0);
  return status;
}

absl::StatusOr<std::vector<kv::TransportChoice>> ChoicesOf(const CommandLine& line) {
  const std::string word = line.Get("transport");
  if (word.empty()) return {{kv::TransportChoice::kShm, kv::TransportChoice::kTcp}};
  if (word == "auto") return {{kv::TransportChoice::kAuto}};
  if (word == "shm") return {{kv::TransportChoice::kShm}};
  if (word == "tcp") return {{kv::TransportChoice::kTcp}};
  if (word == "ucx_tcp") return {{kv::TransportChoice::kUcxTcp}};
  return absl::InvalidArgumentError(
      absl::StrCat("--transport ", word, ": auto, shm, tcp or ucx_tcp"));
}

absl::StatusOr<std::vector<Shape>> ShapesOf(const CommandLine& line) {
  const std::string word = line.Get("shape");
  std::vector<Shape> shapes;
  for (const Shape& shape : kShapes) {
    if (word.empty() || word == shape.name) shapes.push_back(shape);
  }
  if (!shapes.empty()) return shapes;
  return absl::InvalidArgumentError(absl::StrCat("--shape ", word, ": smollm2 or llama8b"));
}

int UsageError(const absl::Status& status) {
  std::fprintf(stderr, "baton: %s\n", std::string(status.message()).c_str());
  return kExitUsage;
}

int BenchKv(const CommandLine& line) {
  const auto choices = ChoicesOf(line);
  if (!choices.ok()) return UsageError(choices.status());
  const auto shapes = ShapesOf(line);
  if (!shapes.ok()) return UsageError(shapes.status());
  const auto reps = line.Integer("reps", 7);
  if (!reps.ok()) return UsageError(reps.status());
  if (*reps < 1 || *reps > 1000) {
    return UsageError(absl::InvalidArgumentError("--reps: from 1 to 1000"));
  }
  const bool json = line.Has("json");
  if (!json) {
    std::printf("%-6s %-10s %-9s %-4s %-4s %9s %9s %9s %7s %9s %9s %10s %9s\n", "peer", "transport",
                "in flight", "work", "sums", "ms", "min", "max", "GB/s", "layer us", "notify us",
                "CPU s/GiB", "bytes ok");
    std::fflush(stdout);
  }
  for (const Shape& shape : *shapes) {
    MeasureMemcpy(shape, static_cast<uint32_t>(*reps), json);
    for (const kv::TransportChoice choice : *choices) {
      for (const bool sums : {false, true}) {
        const absl::Status status =
            RunPair(shape, choice, sums, static_cast<uint32_t>(*reps), json);
        if (!status.ok()) return Fail(status);
      }
    }
  }
  return kExitOk;
}

}  // namespace

std::vector<Command> BenchKvCommands() {
  return {{"bench kv",
           "",
           "move a request's KV cache between two processes and measure it",
           {{"transport", "WAY", "auto, shm, tcp or ucx_tcp (default: shm, then tcp)"},
            {"shape", "NAME", "smollm2 or llama8b (default: both)"},
            {"reps", "N", "repetitions after one warm-up (default 7)"},
            {"json", "", "one JSON object per measurement"}},
           &BenchKv}};
}

}  // namespace baton::server
