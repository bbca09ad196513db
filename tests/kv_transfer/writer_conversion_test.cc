// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The writer's half where the owner's layout is another: what is converted, split and staged.
#include "base/crc32c.h"
#include "base/random.h"
#include "tests/kv_transfer/core_harness.h"
#include "tests/kv_transfer/naive_conversion.h"

namespace baton::kv {
namespace {

constexpr uint64_t kOwner = 100, kWriter = 200;

// Pieces of two blocks, two of them a link.
WriterCore::Options Converting() {
  WriterCore::Options options;
  options.link.pair.allow_conversion = true;
  options.staging = {.piece_bytes = 1, .per_link = 2};
  return options;
}

Hello Owner(uint64_t incarnation = kOwner, std::string name = "decode-0", uint32_t pid = 1) {
  Hello hello = MakeHello(Role::kDecode, std::move(name), incarnation, pid);
  hello.layout.element_type = ElementType::kInt8;
  hello.layout.scales = Scales::kPerRow;
  return hello;
}

struct Writer : Harness<WriterCore> {
  Writer()
      : Harness(Converting(), MakeHello(Role::kPrefill, "prefill-0", kWriter, 2), uint64_t{42}) {
    const Layout& layout = core.self().layout;
    Random random(7);
    for (uint64_t at = 0; at < layout.pool_bytes(); at += 2) {  // finite numbers, in bf16
      pool[at] = static_cast<uint8_t>(random.Next());
      pool[at + 1] = static_cast<uint8_t>(random.Below(0x7f) | (random.Next() & 0x80));
    }
  }
  // Layer `layer` of the ticket's blocks, from the blocks 0, 1, …
  void Write(uint64_t id, const Ticket& ticket, uint32_t layer) {
    std::vector<WritePiece> pieces;
    for (uint32_t i = 0; i < ticket.blocks.size(); ++i) pieces.push_back({i, i});
    core.Write(WriteId(id), ticket.key, layer, pieces);
  }
  void EndWrite(size_t index, const absl::Status& status = absl::OkStatus()) {
    core.WriteEnded(io.posted.at(index).second.header.write, status);
  }
  // What the owner should have of a layer of block `i`.
  std::vector<uint8_t> Expected(uint32_t layer, uint32_t i, const Layout& target) const {
    const Layout& source = core.self().layout;
    return naive::Converted(source, target, {pool.data() + source.offset(layer, i)},
                            std::vector<uint8_t>(target.block_bytes()));
  }
  // The bytes that a posted write would read now.
  std::vector<uint8_t> Read(const DataWrite& write) const {
    std::vector<uint8_t> bytes;
    for (const Copy& copy : write.copies) {
      const uint8_t* at = pool.data() + copy.source_offset;
      bytes.insert(bytes.end(), at, at + copy.size_bytes);
    }
    return bytes;
  }
  size_t PostedOn(LinkId link) const {
    size_t count = 0;
    for (const auto& [to, write] : io.posted) count += to == link;
    return count;
  }
};

TEST_CASE("a write to an owner of another layout is converted, in parts that fit a piece") {
  for (const char path : {'A', 'B'}) {
    INFO(path);
    Writer writer;
    const Layout target = Owner().layout;
    const uint64_t bytes = target.block_bytes();
    writer.Up(kLink1, Owner(), path);
    const Ticket ticket = MakeTicket(kOwner, 1, kWriter, {3, 4, 7, 1, 6});
    writer.core.Accept(ticket);
    writer.Write(1, ticket, 1);
    REQUIRE(writer.io.posted.size() == 2);  // the third waits for a piece
    CHECK(writer.core.staged() == 2);
    CHECK(writer.core.writes_waiting() == 1);
    CHECK(writer.core.bytes_in_flight() == 4 * bytes);
    size_t ended = 0, block = 0;
    std::vector<uint32_t> sums;
    for (size_t i = 0; i < 3; ++i) {
      REQUIRE(writer.io.posted.size() > i);
      const DataWrite write = writer.io.posted[i].second;
      std::vector<uint8_t> expected;
      for (const uint32_t index : write.header.targets) {
        CHECK(index == block);
        const std::vector<uint8_t> one = writer.Expected(1, static_cast<uint32_t>(block++), target);
        sums.push_back(Crc32c(one));
        expected.insert(expected.end(), one.begin(), one.end());
      }
      CHECK(writer.Read(write) == expected);
      CHECK(write.bytes == expected.size());
      if (path == 'B') {
        CHECK(write.header.sums == sums);
        writer.Frame(kLink1, WriteResult{write.header.write, true});
      }
      writer.io.Clear();
      writer.EndWrite(ended++);
      if (path == 'A') {
        const auto written = writer.io.Sent<WrittenFrame>(kLink1);
        REQUIRE(written.size() == 1);
        CHECK(written[0].header.sums == sums);
      }
      CHECK(writer.Take<WriteDone>().size() == (i < 2 ? 0 : 1));
      sums.clear();
    }
    // Blocks 3 and 4 are neighbours on both sides, 7 and 1 are not.
    CHECK(writer.io.posted[0].second.copies.size() == 1);
    CHECK(writer.io.posted[0].second.copies[0].target_offset == target.offset(1, 3));
    CHECK(writer.io.posted[1].second.copies.size() == 2);
    CHECK(writer.core.staged() == 0);
  }
}

TEST_CASE("bytes done are the owner's, and the Commit names them") {
  Writer writer;
  writer.Up(kLink1, Owner());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter, {3, 4, 7});
  writer.core.Accept(ticket);
  for (uint32_t layer = 0; layer < 2; ++layer) writer.Write(layer + 1, ticket, layer);
  for (size_t i = 0; i < 4; ++i) writer.EndWrite(i);
  const auto done = writer.Take<WriteDone>();
  REQUIRE(done.size() == 2);
  for (const WriteDone& one : done) CHECK(one.work.bytes == 3 * Owner().layout.block_bytes());
  writer.core.SendCommit(CommitOf(ticket, Owner().layout));
  CHECK(writer.io.Sent<Commit>(kLink1).size() == 1);
}

TEST_CASE("a part that fails makes its write fail, once, when all parts are over") {
  Writer writer;
  writer.Up(kLink1, Owner());
  const Ticket ticket = MakeTicket(kOwner, 1, kWriter, {0, 1, 2, 3, 4});
  writer.core.Accept(ticket);
  writer.Write(1, ticket, 0);
  SECTION("a write failed") {
    writer.EndWrite(0);
    writer.EndWrite(1, absl::UnavailableError("reset"));
    CHECK(writer.Take<WriteDone>().empty());
    writer.EndWrite(2);
  }
  SECTION("revoked: what waits is dropped, what is out drains before Quiet") {
    writer.Frame(kLink1, RevokeFrame{Generation(1), Generation(2)});
    CHECK(writer.Take<PushEnded>().size() == 1);
    writer.EndWrite(0);
    CHECK(writer.Take<WriteDone>().empty());
    CHECK(writer.io.Sent<QuietFrame>(kLink1).empty());
    writer.EndWrite(1);
    CHECK(writer.io.posted.size() == 2);
    CHECK(writer.io.Sent<QuietFrame>(kLink1).size() == 1);
  }
  const auto done = writer.Take<WriteDone>();
  REQUIRE(done.size() == 1);
  CHECK(!done[0].status.ok());
  CHECK(done[0].work.bytes == 0);
  CHECK(writer.core.staged() == 0);
}

TEST_CASE("K5: a link has its share of the staging area, and gets what others give back") {
  Writer writer;  // staging for two owners
  const LinkId links[] = {kLink1, kLink2, kLink3};
  std::vector<Ticket> tickets;
  for (uint32_t i = 0; i < 3; ++i) {
    writer.Up(links[i], Owner(kOwner + i, "decode-" + std::to_string(i), 10 + i));
    tickets.push_back(MakeTicket(kOwner + i, 1, kWriter, {0, 1, 2, 3, 4}));
    writer.core.Accept(tickets.back());
    writer.Write(i + 1, tickets.back(), 0);
  }
  CHECK(writer.PostedOn(kLink1) == 2);
  CHECK(writer.PostedOn(kLink2) == 2);
  CHECK(writer.PostedOn(kLink3) == 0);  // not configured for three: it waits
  CHECK(writer.core.staged() == 4);
  size_t ended = 0;
  while (ended < writer.io.posted.size()) {
    writer.EndWrite(ended++);
    CHECK(writer.core.staged() <= 4);
  }
  for (const LinkId link : links) CHECK(writer.PostedOn(link) == 3);
  CHECK(writer.Take<WriteDone>().size() == 3);
  CHECK(writer.core.staged() == 0);
}

TEST_CASE("the link says what is converted, and whether answers depend on it") {
  const auto up = [](const Hello& owner) {
    Writer writer;
    writer.Hi(kLink1, owner);
    writer.core.DataReady(kLink1, {.transport = "t", .data_path = 'A'});
    writer.Frame(kLink1, Ready{.transport = "t", .data_path = 'A'});
    return writer.Take<PeerUp>().at(0).link;
  };
  CHECK(up(Owner()).conversion == "bf16 to int8");
  CHECK(up(Owner()).mixed_numerics);
  Hello same = MakeHello(Role::kDecode, "decode-0", kOwner, 1);
  CHECK(up(same).conversion.empty());
  CHECK(!up(same).mixed_numerics);
  same.layout.row_order = RowOrder::kTokenMajor;
  CHECK(up(same).conversion == "other row order");
  CHECK(!up(same).mixed_numerics);  // the same numbers in other places: K8 holds
}

}  // namespace
}  // namespace baton::kv
