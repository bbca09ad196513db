// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// The GGUF reader against files that this test writes: right, truncated, bit-flipped, lying.
#include "engine/gguf.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "tests/engine/gguf_writer.h"

namespace baton::engine {
namespace {

using test::GgufWriter;

absl::Status StatusOf(const std::vector<uint8_t>& bytes) {
  return Gguf::Decode(bytes, "file").status();
}

void CheckRefused(const GgufWriter& writer, const std::string& why) {
  const absl::Status status = StatusOf(writer.Write());
  INFO(status.ToString());
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(status.message(), why));
}

GgufWriter Small() {
  GgufWriter writer;
  writer.AddString("name", "tiny");
  writer.AddUint("count", 7);
  writer.Add<int8_t>("minus", GgufType::kInt8, -3);
  writer.Add<uint64_t>("big", GgufType::kUint64, UINT64_MAX);
  writer.AddFloat("half", 0.5f);
  writer.AddBool("yes", true);
  writer.AddStrings("words", {"a", "", "long word"});
  writer.AddFloats("floats", {1.5f, -2.0f});
  writer.AddInts("ints", {4, -5, 6});
  writer.AddTensor("vector", {3}, {1, 2, 3});
  writer.AddTensor("matrix", {2, 3}, {1, 2, 3, 4, 5, 6});
  return writer;
}

// Touches everything that a user of a decoded file may touch.
uint64_t ReadAll(const Gguf& file) {
  uint64_t sum = 0;
  for (const auto& [key, value] : file.values()) {
    for (const uint8_t byte : value.bytes) sum += byte;
    if (const auto list = file.Strings(key); list.ok()) {
      for (const auto text : *list) sum += text.size();
    }
    if (const auto list = file.Floats(key); list.ok()) sum += list->size();
    if (const auto list = file.Integers(key); list.ok()) sum += list->size();
    if (const auto number = file.Unsigned(key); number.ok()) sum += *number;
    if (const auto number = file.Number(key); number.ok()) sum += *number > 0 ? 1 : 0;
    if (const auto text = file.String(key); text.ok()) sum += text->size();
    if (const auto yes = file.Bool(key); yes.ok()) sum += *yes ? 1 : 0;
  }
  for (const auto& [name, tensor] : file.tensors()) {
    sum += tensor.view.data[0] + tensor.view.data[tensor.view.size_bytes - 1];
  }
  return sum;
}

}  // namespace

TEST_CASE("an honest file's metadata comes back with its types") {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer = Small();
    writer.version = version;
    const auto bytes = writer.Write();
    const auto file = Gguf::Decode(bytes, "file");
    REQUIRE(file.status().ToString() == "OK");
    CHECK(*file->String("name") == "tiny");
    CHECK(*file->Unsigned("count") == 7);
    CHECK(*file->Unsigned("big") == UINT64_MAX);
    CHECK(*file->Number("minus") == -3);
    CHECK(*file->Number("half") == 0.5);
    CHECK(*file->Bool("yes"));
    CHECK(*file->Strings("words") == std::vector<absl::string_view>{"a", "", "long word"});
    CHECK(*file->Floats("floats") == std::vector<float>{1.5f, -2.0f});
    CHECK(*file->Integers("ints") == std::vector<int64_t>{4, -5, 6});
  }
}

TEST_CASE("a getter of another type or range names the file and the key") {
  const auto bytes = Small().Write();
  const auto file = Gguf::Decode(bytes, "file");
  REQUIRE(file.ok());
  CHECK(file->Unsigned("minus").status().message() == "file: metadata minus: is negative");
  CHECK(file->Unsigned("count", 6).status().message() == "file: metadata count: is larger than 6");
  CHECK(file->Unsigned("name").status().message() == "file: metadata name: is not an integer");
  CHECK(file->String("count").status().message() == "file: metadata count: is not a string");
  CHECK(file->Floats("ints").status().message() ==
        "file: metadata ints: is not an array of floats");
  CHECK(absl::IsNotFound(file->Bool("nothing").status()));
  CHECK(file->Bool("nothing").status().message() == "file: metadata nothing is missing");
}

TEST_CASE("tensors come back with shape and bytes") {
  const auto bytes = Small().Write();
  const auto file = Gguf::Decode(bytes, "file");
  REQUIRE(file.ok());
  const TensorView& matrix = file->tensors().find("matrix")->second.view;
  CHECK(matrix.rows == 3);
  CHECK(matrix.columns == 2);
  REQUIRE(matrix.size_bytes == 24);
  float last = 0;
  std::memcpy(&last, matrix.data + 20, sizeof(last));
  CHECK(last == 6);
  CHECK(file->tensors().find("vector")->second.view.rows == 1);
}

TEST_CASE("a file cut anywhere is refused, and says where") {
  const auto bytes = Small().Write();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + size);
    const absl::Status status = StatusOf(cut);
    INFO(size << " of " << bytes.size() << ": " << status);
    REQUIRE(status.code() == absl::StatusCode::kInvalidArgument);
    REQUIRE(absl::StrContains(status.message(), "file: at byte "));
  }
}

TEST_CASE("a file with any bit flipped is refused or safe to read") {
  const auto bytes = Small().Write();
  uint64_t refused = 0;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    auto flipped = bytes;
    flipped[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    const auto file = Gguf::Decode(flipped, "file");
    if (file.ok()) {
      ReadAll(*file);
    } else {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("files of another kind are refused by name") {
  auto bytes = Small().Write();
  bytes[0] = 'X';
  CHECK(StatusOf(bytes).message() == "file: at byte 0: not a GGUF file");
  GgufWriter old = Small();
  old.version = 1;
  CheckRefused(old, "at byte 4: GGUF version 1");
  GgufWriter swapped = Small();
  swapped.version = 0x03000000;
  CheckRefused(swapped, "at byte 4: a big-endian file");
}

TEST_CASE("lengths that the file cannot hold are refused before memory is taken") {
  GgufWriter writer;
  writer.AddString("key", "text");
  auto bytes = writer.Write();
  // Bytes 8 and 16: the counts; byte 24: the key's length; byte 39: the string's.
  for (const size_t at : {8, 16, 24, 39}) {
    for (const uint64_t lie : {UINT64_MAX, uint64_t{1} << 40, uint64_t{1} << 63, uint64_t{60000}}) {
      auto lying = bytes;
      std::memcpy(lying.data() + at, &lie, sizeof(lie));
      INFO(at << " " << lie);
      CHECK(StatusOf(lying).code() == absl::StatusCode::kInvalidArgument);
    }
  }
  GgufWriter array;
  array.AddArray<uint8_t>("list", GgufType::kUint8, {});
  bytes = array.Write();
  const uint64_t lie = UINT64_MAX / 2;
  std::memcpy(bytes.data() + 44, &lie, sizeof(lie));
  CHECK(absl::StrContains(StatusOf(bytes).message(), "at byte 44: an array of"));
}

TEST_CASE("metadata that is there twice, nested or no bool is refused") {
  GgufWriter twice;
  twice.AddUint("key", 1);
  twice.AddUint("key", 2);
  CheckRefused(twice, "metadata key is there twice");
  GgufWriter nested;
  nested.AddArray<uint64_t>("key", GgufType::kArray, {0});
  CheckRefused(nested, "an array of arrays");
  GgufWriter boolean;
  boolean.Add<uint8_t>("key", GgufType::kBool, 2);
  CheckRefused(boolean, "a bool of 2");
  GgufWriter type;
  type.Add<uint8_t>("key", static_cast<GgufType>(13), 0);
  CheckRefused(type, "unknown value type 13");
}

TEST_CASE("an alignment that is no power of two is refused") {
  for (const uint32_t bad : {0u, 33u, 1u << 30}) {
    GgufWriter writer = Small();
    writer.AddUint("general.alignment", bad);
    CheckRefused(writer, "general.alignment");
  }
  GgufWriter writer = Small();
  writer.AddUint("general.alignment", 64);
  writer.alignment = 64;
  CHECK(StatusOf(writer.Write()).ok());
}

TEST_CASE("tensors outside the file, off their alignment or over each other are refused") {
  const auto with = [](int64_t offset) {
    GgufWriter writer;
    writer.AddTensor("a", {8}, std::vector<float>(8));
    writer.AddTensor("b", {8}, std::vector<float>(8));
    writer.tensors[1].offset = offset;
    return writer;
  };
  CheckRefused(with(1 << 20), "pass the end of the data");
  CheckRefused(with(INT64_MAX & ~31), "pass the end of the data");
  CheckRefused(with(8), "not a multiple of 32");
  CheckRefused(with(0), "overlaps tensor a");
  GgufWriter twice;
  twice.AddTensor("a", {8}, std::vector<float>(8));
  twice.AddTensor("a", {8}, std::vector<float>(8));
  CheckRefused(twice, "tensor a is there twice");
}

TEST_CASE("shapes that overflow, are empty or do not fill blocks are refused") {
  const auto with = [](std::vector<uint64_t> dimensions, TensorType type) {
    GgufWriter writer;
    writer.tensors.push_back({"t", std::move(dimensions), type, std::vector<uint8_t>(64)});
    return writer;
  };
  CheckRefused(with({uint64_t{1} << 39, uint64_t{1} << 39}, TensorType::kF32), "dimension 1");
  CheckRefused(with({uint64_t{1} << 32, uint64_t{1} << 31}, TensorType::kF32), "overflows");
  CheckRefused(with({0}, TensorType::kF32), "dimension 0 of 0");
  CheckRefused(with({}, TensorType::kF32), "0 dimensions");
  CheckRefused(with({1, 1, 1, 1, 1}, TensorType::kF32), "5 dimensions");
  CheckRefused(with({33}, TensorType::kQ4_1), "rows of 33 elements do not fill blocks of Q4_1");
  CheckRefused(with({256}, static_cast<TensorType>(10)), "cannot run type Q2_K");
  CheckRefused(with({256}, static_cast<TensorType>(77)), "cannot run type type 77");
}

TEST_CASE("a path that is no file is an error that names it") {
  CHECK(absl::IsNotFound(Gguf::Open("/nonexistent/model.gguf").status()));
  CHECK(absl::StrContains(Gguf::Open("/").status().message(), "/: not a regular file"));
}

}  // namespace baton::engine
