// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/ensure.h"
#include "base/status_macros.h"

namespace baton::engine {
namespace {

constexpr uint64_t kValuesMax = 1 << 16;
constexpr uint64_t kTensorsMax = 1 << 16;
constexpr uint64_t kKeyBytesMax = (1 << 16) - 1;  // the format's own limit
constexpr uint64_t kTensorNameBytesMax = 256;
constexpr uint64_t kStringBytesMax = 16 << 20;
constexpr uint64_t kArrayElementsMax = 64 << 20;
constexpr uint32_t kDimensionsMax = 4;
constexpr uint64_t kDimensionMax = uint64_t{1} << 40;
constexpr uint64_t kAlignmentDefault = 32;
constexpr uint64_t kAlignmentMax = 1 << 20;

// Bytes of one value of a fixed-size type; 0 for strings, arrays and unknown types.
uint64_t FixedSize(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

template <typename T>
T Load(const uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

// What an error shows of a foreign name.
std::string Shown(absl::string_view text) { return absl::CHexEscape(text.substr(0, 80)); }

bool CheckedMultiply(uint64_t a, uint64_t b, uint64_t& product) {
  return !__builtin_mul_overflow(a, b, &product);
}

// Reads the header from front to back.  The first failure sticks and says where it was.
class Cursor {
 public:
  Cursor(absl::Span<const uint8_t> bytes, absl::string_view name) : bytes_(bytes), name_(name) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }
  const absl::Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

  void Fail(uint64_t at, absl::string_view what) {
    if (ok())
      status_ = absl::InvalidArgumentError(absl::StrCat(name_, ": at byte ", at, ": ", what));
  }

  absl::Span<const uint8_t> Take(uint64_t count, absl::string_view what) {
    if (!ok()) return {};
    if (count > left()) {
      Fail(at_, absl::StrCat("the file ends inside ", what, " (", count, " bytes wanted, ", left(),
                             " left)"));
      return {};
    }
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }

  template <typename T>
  T Get(absl::string_view what) {
    const auto taken = Take(sizeof(T), what);
    return taken.empty() ? T{} : Load<T>(taken.data());
  }

  absl::string_view Text(uint64_t bytes_max, absl::string_view what) {
    const uint64_t start = at_;
    const uint64_t size = Get<uint64_t>(what);
    if (size > bytes_max) {
      Fail(start, absl::StrCat(what, " of ", size, " bytes; ", bytes_max, " are allowed"));
      return {};
    }
    const auto taken = Take(size, what);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  absl::Span<const uint8_t> bytes_;
  absl::string_view name_;
  uint64_t at_ = 0;
  absl::Status status_;
};

GgufType ReadType(Cursor& in) {
  const uint64_t start = in.at();
  const uint32_t code = in.Get<uint32_t>("a value type");
  if (code > static_cast<uint32_t>(GgufType::kFloat64)) {
    in.Fail(start, absl::StrCat("unknown value type ", code));
  }
  return static_cast<GgufType>(code);
}

void CheckBools(Cursor& in, uint64_t start, absl::Span<const uint8_t> bytes) {
  const auto bad = std::find_if(bytes.begin(), bytes.end(), [](uint8_t b) { return b > 1; });
  if (bad != bytes.end()) {
    in.Fail(start + (bad - bytes.begin()), absl::StrCat("a bool of ", int{*bad}));
  }
}

void ReadArray(Cursor& in, GgufValue& value) {
  uint64_t start = in.at();
  value.element = ReadType(in);
  if (value.element == GgufType::kArray) in.Fail(start, "an array of arrays");
  start = in.at();
  value.count = in.Get<uint64_t>("an array's length");
  if (value.count > kArrayElementsMax) {
    in.Fail(start, absl::StrCat("an array of ", value.count, " elements; ", kArrayElementsMax,
                                " are allowed"));
  }
  if (!in.ok()) return;
  const uint64_t data = in.at();
  if (value.element == GgufType::kString) {
    const uint64_t before = in.left();
    const auto rest = in.Take(0, "an array");
    for (uint64_t i = 0; i < value.count && in.ok(); ++i) in.Text(kStringBytesMax, "a string");
    if (in.ok()) value.bytes = absl::MakeConstSpan(rest.data(), before - in.left());
    return;
  }
  value.bytes = in.Take(value.count * FixedSize(value.element), "an array");
  if (value.element == GgufType::kBool) CheckBools(in, data, value.bytes);
}

GgufValue ReadValue(Cursor& in) {
  GgufValue value;
  value.type = ReadType(in);
  if (!in.ok()) return value;
  if (value.type == GgufType::kArray) {
    ReadArray(in, value);
  } else if (value.type == GgufType::kString) {
    const auto text = in.Text(kStringBytesMax, "a string");
    value.bytes = {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
  } else {
    const uint64_t start = in.at();
    value.bytes = in.Take(FixedSize(value.type), "a value");
    if (value.type == GgufType::kBool) CheckBools(in, start, value.bytes);
  }
  return value;
}

// A tensor as its table row says; `offset` is relative to the data.
struct Row {
  std::string name;
  uint64_t at = 0;  // of the table row, for errors
  uint64_t offset = 0;
  uint64_t size_bytes = 0;
};

Row ReadTensor(Cursor& in, GgufTensor& tensor) {
  Row row;
  row.at = in.at();
  row.name = std::string(in.Text(kTensorNameBytesMax, "a tensor's name"));
  const auto fail = [&](uint64_t at, absl::string_view what) {
    in.Fail(at, absl::StrCat("tensor ", Shown(row.name), ": ", what));
  };
  uint64_t start = in.at();
  const uint32_t dimensions = in.Get<uint32_t>("a tensor's shape");
  if (in.ok() && (dimensions == 0 || dimensions > kDimensionsMax)) {
    fail(start, absl::StrCat(dimensions, " dimensions; 1 to ", kDimensionsMax, " are allowed"));
  }
  uint64_t elements = 1;
  for (uint32_t d = 0; d < dimensions && in.ok(); ++d) {
    start = in.at();
    const uint64_t size = in.Get<uint64_t>("a tensor's shape");
    if (in.ok() &&
        (size == 0 || size > kDimensionMax || !CheckedMultiply(elements, size, elements))) {
      fail(start, absl::StrCat("dimension ", d, " of ", size, " elements"));
    }
    tensor.dimensions.push_back(size);
  }
  start = in.at();
  const auto type = static_cast<TensorType>(in.Get<uint32_t>("a tensor's type"));
  const TensorTypeInfo info = InfoOf(type);
  if (in.ok() && info.block_elements == 0) {
    fail(start, absl::StrCat("Baton cannot run type ", TensorTypeName(type)));
  }
  if (in.ok() && tensor.dimensions[0] % info.block_elements != 0) {
    fail(start, absl::StrCat("rows of ", tensor.dimensions[0], " elements do not fill blocks of ",
                             TensorTypeName(type)));
  }
  if (in.ok() &&
      !CheckedMultiply(elements / info.block_elements, info.block_bytes, row.size_bytes)) {
    fail(start, "its size overflows");
  }
  row.offset = in.Get<uint64_t>("a tensor's offset");
  if (!in.ok()) return row;
  tensor.view.type = type;
  tensor.view.columns = tensor.dimensions[0];
  tensor.view.rows = elements / tensor.dimensions[0];
  tensor.view.size_bytes = row.size_bytes;
  return row;
}

// Every tensor lies in the data, aligned, and apart from the others.
absl::Status CheckPlaces(absl::string_view name, std::vector<const Row*> rows, uint64_t alignment,
                         uint64_t data_bytes) {
  std::sort(rows.begin(), rows.end(), [](const Row* a, const Row* b) {
    return a->offset != b->offset ? a->offset < b->offset : a->at < b->at;
  });
  const Row* before = nullptr;
  for (const Row* row : rows) {
    const auto error = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": at byte ", row->at, ": tensor ", Shown(row->name), ": ", what));
    };
    if (row->offset % alignment != 0) {
      return error(absl::StrCat("offset ", row->offset, " is not a multiple of ", alignment));
    }
    if (row->offset > data_bytes || row->size_bytes > data_bytes - row->offset) {
      return error(absl::StrCat("its ", row->size_bytes, " bytes at offset ", row->offset,
                                " pass the end of the data (", data_bytes, " bytes)"));
    }
    if (before != nullptr && before->offset + before->size_bytes > row->offset) {
      return error(absl::StrCat("overlaps tensor ", Shown(before->name)));
    }
    before = row;
  }
  return absl::OkStatus();
}

struct Counts {
  uint64_t tensors = 0;
  uint64_t values = 0;
};

Counts ReadPrologue(Cursor& in) {
  const auto magic = in.Take(4, "the magic");
  if (in.ok() && std::memcmp(magic.data(), "GGUF", 4) != 0) in.Fail(0, "not a GGUF file");
  const uint32_t version = in.Get<uint32_t>("the version");
  if (in.ok() && version != 2 && version != 3) {
    const uint32_t swapped = __builtin_bswap32(version);
    in.Fail(4, swapped >= 1 && swapped <= 3
                   ? std::string("a big-endian file; Baton reads little-endian ones")
                   : absl::StrCat("GGUF version ", version, "; Baton reads 2 and 3"));
  }
  Counts counts;
  counts.tensors = in.Get<uint64_t>("the number of tensors");
  counts.values = in.Get<uint64_t>("the number of metadata values");
  if (counts.tensors > kTensorsMax) {
    in.Fail(8, absl::StrCat(counts.tensors, " tensors; ", kTensorsMax, " are allowed"));
  }
  if (counts.values > kValuesMax) {
    in.Fail(16, absl::StrCat(counts.values, " metadata values; ", kValuesMax, " are allowed"));
  }
  return counts;
}

// The integer that `bytes` hold, wide enough for every type.
absl::StatusOr<__int128> LoadInteger(GgufType type, const uint8_t* at) {
  switch (type) {
    case GgufType::kUint8:
      return __int128{Load<uint8_t>(at)};
    case GgufType::kInt8:
      return __int128{Load<int8_t>(at)};
    case GgufType::kUint16:
      return __int128{Load<uint16_t>(at)};
    case GgufType::kInt16:
      return __int128{Load<int16_t>(at)};
    case GgufType::kUint32:
      return __int128{Load<uint32_t>(at)};
    case GgufType::kInt32:
      return __int128{Load<int32_t>(at)};
    case GgufType::kUint64:
      return __int128{Load<uint64_t>(at)};
    case GgufType::kInt64:
      return __int128{Load<int64_t>(at)};
    default:
      return absl::InvalidArgumentError("not an integer");
  }
}

}  // namespace

TensorTypeInfo InfoOf(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return {1, 4};
    case TensorType::kF16:
    case TensorType::kBf16:
      return {1, 2};
    case TensorType::kQ4_0:
      return {32, 18};
    case TensorType::kQ4_1:
      return {32, 20};
    case TensorType::kQ5_0:
      return {32, 22};
    case TensorType::kQ5_1:
      return {32, 24};
    case TensorType::kQ8_0:
      return {32, 34};
    case TensorType::kQ4_K:
      return {256, 144};
    case TensorType::kQ5_K:
      return {256, 176};
    case TensorType::kQ6_K:
      return {256, 210};
  }
  return {};
}

std::string TensorTypeName(TensorType type) {
  static constexpr const char* kNames[] = {
      "F32",     "F16",    "Q4_0",    "Q4_1",  "type 4", "type 5", "Q5_0",  "Q5_1",
      "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",   "Q6_K",  "Q8_K",
      "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",  "IQ2_S", "IQ4_XS",
      "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M",  "BF16"};
  const auto code = static_cast<uint32_t>(type);
  return code < std::size(kNames) ? kNames[code] : absl::StrCat("type ", code);
}

absl::StatusOr<Gguf> Gguf::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(Gguf gguf, Decode(file.bytes(), path));
  gguf.files_.push_back(std::move(file));
  return gguf;
}

absl::StatusOr<Gguf> Gguf::Assemble(ModelParts parts, absl::string_view name) {
  ASSIGN_OR_RETURN(Gguf gguf, Decode(parts.header, name));
  ENSURE(gguf.tensors_.empty());
  gguf.tensors_ = std::move(parts.tensors);
  gguf.files_ = std::move(parts.files);
  gguf.memory_ = std::move(parts.memory);
  gguf.memory_.push_back(std::move(parts.header));  // the buffer stays where it is
  return gguf;
}

absl::StatusOr<Gguf> Gguf::Decode(absl::Span<const uint8_t> bytes, absl::string_view name) {
  Gguf gguf;
  gguf.name_ = std::string(name);
  gguf.bytes_ = bytes;
  Cursor in(bytes, gguf.name_);
  const Counts counts = ReadPrologue(in);
  for (uint64_t i = 0; i < counts.values && in.ok(); ++i) {
    const uint64_t start = in.at();
    std::string key(in.Text(kKeyBytesMax, "a metadata key"));
    const GgufValue value = ReadValue(in);
    if (in.ok() && !gguf.values_.emplace(key, value).second) {
      in.Fail(start, absl::StrCat("metadata ", Shown(key), " is there twice"));
    }
  }
  std::vector<Row> rows;
  for (uint64_t i = 0; i < counts.tensors && in.ok(); ++i) {
    GgufTensor tensor;
    rows.push_back(ReadTensor(in, tensor));
    const Row& row = rows.back();
    if (in.ok() && !gguf.tensors_.emplace(row.name, std::move(tensor)).second) {
      in.Fail(row.at, absl::StrCat("tensor ", Shown(row.name), " is there twice"));
    }
  }
  RETURN_IF_ERROR(in.status());

  uint64_t alignment = kAlignmentDefault;
  if (gguf.Has("general.alignment")) {
    ASSIGN_OR_RETURN(alignment, gguf.Unsigned("general.alignment", kAlignmentMax));
    if (alignment == 0 || (alignment & (alignment - 1)) != 0) {
      return gguf.Error("general.alignment", absl::StrCat(alignment, " is not a power of two"));
    }
  }
  const uint64_t padded = (in.at() + alignment - 1) / alignment * alignment;
  gguf.data_offset_ = std::min<uint64_t>(padded, bytes.size());
  std::vector<const Row*> places;
  for (const Row& row : rows) places.push_back(&row);
  RETURN_IF_ERROR(CheckPlaces(name, places, alignment, bytes.size() - gguf.data_offset_));
  for (const Row& row : rows) {
    gguf.tensors_.find(row.name)->second.view.data = bytes.data() + gguf.data_offset_ + row.offset;
  }
  return gguf;
}

absl::Status Gguf::Error(absl::string_view key, absl::string_view what) const {
  return absl::InvalidArgumentError(absl::StrCat(name_, ": metadata ", key, ": ", what));
}

const GgufValue* Gguf::Find(absl::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

namespace {

absl::Status Missing(absl::string_view name, absl::string_view key) {
  return absl::NotFoundError(absl::StrCat(name, ": metadata ", key, " is missing"));
}

}  // namespace

absl::StatusOr<uint64_t> Gguf::Unsigned(absl::string_view key, uint64_t max) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(name_, key);
  const auto integer = LoadInteger(value->type, value->bytes.data());
  if (!integer.ok()) return Error(key, "is not an integer");
  if (*integer < 0 || *integer > max) {
    return Error(key, absl::StrCat(*integer < 0 ? "is negative" : "is larger than ",
                                   *integer < 0 ? "" : absl::StrCat(max)));
  }
  return static_cast<uint64_t>(*integer);
}

absl::StatusOr<double> Gguf::Number(absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(name_, key);
  double number = 0;
  if (value->type == GgufType::kFloat32) {
    number = Load<float>(value->bytes.data());
  } else if (value->type == GgufType::kFloat64) {
    number = Load<double>(value->bytes.data());
  } else {
    const auto integer = LoadInteger(value->type, value->bytes.data());
    if (!integer.ok()) return Error(key, "is not a number");
    number = static_cast<double>(*integer);
  }
  if (!std::isfinite(number)) return Error(key, "is not finite");
  return number;
}

absl::StatusOr<bool> Gguf::Bool(absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(name_, key);
  if (value->type != GgufType::kBool) return Error(key, "is not a bool");
  return value->bytes[0] == 1;
}

absl::StatusOr<absl::string_view> Gguf::String(absl::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(name_, key);
  if (value->type != GgufType::kString) return Error(key, "is not a string");
  return absl::string_view(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

absl::StatusOr<const GgufValue*> Gguf::Array(absl::string_view key, absl::string_view what) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(name_, key);
  if (value->type != GgufType::kArray) return Error(key, absl::StrCat("is not an array of ", what));
  return value;
}

absl::StatusOr<std::vector<absl::string_view>> Gguf::Strings(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Array(key, "strings"));
  if (value->element != GgufType::kString) return Error(key, "is not an array of strings");
  std::vector<absl::string_view> strings;
  strings.reserve(value->count);
  const uint8_t* at = value->bytes.data();
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto size = Load<uint64_t>(at);
    strings.emplace_back(reinterpret_cast<const char*>(at) + 8, size);
    at += 8 + size;
  }
  return strings;
}

absl::StatusOr<std::vector<float>> Gguf::Floats(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Array(key, "floats"));
  if (value->element != GgufType::kFloat32) return Error(key, "is not an array of floats");
  std::vector<float> floats(value->count);
  if (!floats.empty()) std::memcpy(floats.data(), value->bytes.data(), value->bytes.size());
  return floats;
}

absl::StatusOr<std::vector<int64_t>> Gguf::Integers(absl::string_view key) const {
  ASSIGN_OR_RETURN(const GgufValue* value, Array(key, "integers"));
  std::vector<int64_t> integers;
  integers.reserve(value->count);
  const uint64_t size = FixedSize(value->element);
  for (uint64_t i = 0; i < value->count; ++i) {
    const auto integer = LoadInteger(value->element, value->bytes.data() + i * size);
    if (!integer.ok()) return Error(key, "is not an array of integers");
    if (*integer > INT64_MAX) return Error(key, absl::StrCat("element ", i, " is too large"));
    integers.push_back(static_cast<int64_t>(*integer));
  }
  return integers;
}

}  // namespace baton::engine
