// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/hf_safetensors.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/hf_json.h"

namespace baton::engine {
namespace {

using nlohmann::json;

constexpr uint64_t kHeaderBytesMax = 16 << 20;
constexpr uint64_t kTensorsMax = 1 << 16;
constexpr size_t kDimensionsMax = 4;
constexpr uint64_t kDimensionMax = uint64_t{1} << 40;

struct Type {
  absl::string_view name;
  TensorType type;
};
constexpr Type kTypes[] = {
    {"F32", TensorType::kF32}, {"F16", TensorType::kF16}, {"BF16", TensorType::kBf16}};

absl::StatusOr<TensorType> ReadType(const json& entry) {
  ASSIGN_OR_RETURN(const auto name, JsonString(entry, "dtype"));
  if (!name.has_value()) return absl::InvalidArgumentError("\"dtype\" is missing");
  for (const Type& type : kTypes) {
    if (*name == type.name) return type.type;
  }
  return absl::InvalidArgumentError(absl::StrCat("Baton cannot run type ",
                                                 absl::CHexEscape(name->substr(0, 80)),
                                                 "; it runs F32, F16 and BF16"));
}

// Whole numbers below 2^63, `count` of them if that is not 0.
absl::StatusOr<std::vector<uint64_t>> ReadNumbers(const json& entry, const char* key,
                                                  size_t count) {
  ASSIGN_OR_RETURN(const json* list, JsonArray(entry, key));
  const auto error = [&] {
    return absl::InvalidArgumentError(absl::StrCat("\"", key, "\" is malformed"));
  };
  if (list == nullptr || (count != 0 && list->size() != count)) return error();
  std::vector<uint64_t> numbers;
  for (const json& item : *list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > INT64_MAX) return error();
    numbers.push_back(item.get<uint64_t>());
  }
  return numbers;
}

struct Place {
  uint64_t begin = 0, end = 0;
  std::string name;
};

absl::StatusOr<GgufTensor> ReadTensor(const json& entry, absl::Span<const uint8_t> data,
                                      Place& place) {
  if (!entry.is_object()) return absl::InvalidArgumentError("not an object");
  GgufTensor tensor;
  ASSIGN_OR_RETURN(tensor.view.type, ReadType(entry));
  ASSIGN_OR_RETURN(std::vector<uint64_t> shape, ReadNumbers(entry, "shape", 0));
  if (shape.empty() || shape.size() > kDimensionsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(shape.size(), " dimensions; 1 to ", kDimensionsMax, " are allowed"));
  }
  std::reverse(shape.begin(), shape.end());
  uint64_t elements = 1;
  for (const uint64_t size : shape) {
    if (size == 0 || size > kDimensionMax || __builtin_mul_overflow(elements, size, &elements)) {
      return absl::InvalidArgumentError(absl::StrCat("a dimension of ", size, " elements"));
    }
  }
  uint64_t size_bytes = 0;
  if (__builtin_mul_overflow(elements, InfoOf(tensor.view.type).block_bytes, &size_bytes)) {
    return absl::InvalidArgumentError("its size overflows");
  }
  ASSIGN_OR_RETURN(const std::vector<uint64_t> offsets, ReadNumbers(entry, "data_offsets", 2));
  place.begin = offsets[0];
  place.end = offsets[1];
  if (place.begin > place.end || place.end > data.size()) {
    return absl::InvalidArgumentError(absl::StrCat("bytes ", place.begin, " to ", place.end,
                                                   " are not in the data (", data.size(),
                                                   " bytes)"));
  }
  if (place.end - place.begin != size_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(place.end - place.begin, " bytes; its shape needs ", size_bytes));
  }
  tensor.view.columns = shape[0];
  tensor.view.rows = elements / shape[0];
  tensor.view.data = data.data() + place.begin;
  tensor.view.size_bytes = size_bytes;
  tensor.dimensions = std::move(shape);
  return tensor;
}

}  // namespace

absl::Status DecodeSafetensors(absl::Span<const uint8_t> bytes, absl::string_view name,
                               TensorTable& tensors) {
  const auto error = [&](absl::string_view what) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", what));
  };
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) return error("shorter than its length field");
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const auto rest = bytes.subspan(sizeof(header_bytes));
  if (header_bytes > kHeaderBytesMax || header_bytes > rest.size()) {
    return error(absl::StrCat("a header of ", header_bytes, " bytes; the file has ", rest.size(),
                              " and ", kHeaderBytesMax, " are allowed"));
  }
  const absl::string_view text(reinterpret_cast<const char*>(rest.data()), header_bytes);
  ASSIGN_OR_RETURN(const json header, ParseJsonObject(text, name));
  if (header.size() > kTensorsMax) return error(absl::StrCat(header.size(), " tensors"));
  std::vector<Place> places;
  for (const auto& [tensor_name, entry] : header.items()) {
    if (tensor_name == "__metadata__") continue;
    Place& place = places.emplace_back();
    place.name = tensor_name;
    const std::string shown = absl::CHexEscape(tensor_name.substr(0, 80));
    auto tensor = ReadTensor(entry, rest.subspan(header_bytes), place);
    if (!tensor.ok()) {
      return error(absl::StrCat("tensor ", shown, ": ", std::string(tensor.status().message())));
    }
    if (!tensors.emplace(tensor_name, *std::move(tensor)).second) {
      return error(absl::StrCat("tensor ", shown, " is in another file too"));
    }
  }
  std::sort(places.begin(), places.end(),
            [](const Place& a, const Place& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i - 1].end > places[i].begin) {
      return error(absl::StrCat("tensor ", absl::CHexEscape(places[i].name.substr(0, 80)),
                                " overlaps another"));
    }
  }
  return absl::OkStatus();
}

}  // namespace baton::engine
