// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Values of a template as text: Python's str() and repr(), and JSON.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "engine/text/template_value.h"

namespace baton::text {
namespace {

// Collects text; remembers whether any of it stems from input, for a printed structure is
// then input as a whole.
class Printer {
 public:
  explicit Printer(Heap& heap) : heap_(heap) {}

  absl::Status Repr(const Value& value);
  absl::Status Json(const Value& value, int64_t level);
  void set_json_style(int64_t indent, bool sort_keys) {
    indent_ = indent;
    sort_keys_ = sort_keys;
  }
  MarkedText Take() const { return MarkedText(out_, input_); }

 private:
  absl::Status Put(absl::string_view text) {
    heap_.Spend(1 + text.size() / 64);
    out_.append(text.data(), text.size());
    return heap_.CheckRoom(out_.size());
  }
  absl::Status ReprString(const MarkedText& text);
  absl::Status JsonString(const MarkedText& text);
  absl::Status JsonKey(const Value& key);
  absl::Status JsonDict(const DictData& dict, int64_t level);
  absl::Status JsonList(const ListData& list, int64_t level);
  // Between items: a comma unless it is the first, and the line break of `level`.
  absl::Status Separate(bool first, int64_t level) {
    if (!first) RETURN_IF_ERROR(Put(indent_ < 0 ? ", " : ","));
    return Break(level);
  }
  absl::Status Break(int64_t level) {
    if (indent_ < 0) return absl::OkStatus();
    return Put(absl::StrCat("\n", std::string(static_cast<size_t>(indent_ * level), ' ')));
  }

  Heap& heap_;
  int64_t indent_ = -1;
  bool sort_keys_ = false;
  std::string out_;
  bool input_ = false;
};

std::string Simple(const Value& value) {
  switch (value.kind) {
    case ValueKind::kUndefined:
      return "";
    case ValueKind::kNone:
      return "None";
    case ValueKind::kBool:
      return value.boolean ? "True" : "False";
    case ValueKind::kInteger:
      return absl::StrCat(value.integer);
    case ValueKind::kFloat:
      return FloatText(value.number);
    default:
      return absl::StrCat("<", TypeName(value), ">");
  }
}

absl::Status Printer::ReprString(const MarkedText& text) {
  input_ |= text.any_input();
  const std::string& s = text.text();
  const bool double_quotes = s.find('\'') != std::string::npos && s.find('"') == std::string::npos;
  const char quote = double_quotes ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : s) {
    if (c == quote || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) {
      out += absl::StrFormat("\\x%02x", c);
    } else {
      out.push_back(c);
    }
  }
  out.push_back(quote);
  return Put(out);
}

absl::Status Printer::Repr(const Value& value) {
  if (value.Is(ValueKind::kString)) return ReprString(*value.text);
  if (value.IsSequence()) {
    const bool tuple = value.Is(ValueKind::kTuple);
    RETURN_IF_ERROR(Put(tuple ? "(" : "["));
    const std::vector<Value>& items = value.list->items;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) RETURN_IF_ERROR(Put(", "));
      RETURN_IF_ERROR(Repr(items[i]));
    }
    return Put(!tuple ? "]" : items.size() == 1 ? ",)" : ")");
  }
  if (value.Is(ValueKind::kDict)) {
    RETURN_IF_ERROR(Put("{"));
    bool first = true;
    for (const auto& [key, item] : value.dict->items) {
      if (!first) RETURN_IF_ERROR(Put(", "));
      first = false;
      RETURN_IF_ERROR(Repr(key));
      RETURN_IF_ERROR(Put(": "));
      RETURN_IF_ERROR(Repr(item));
    }
    return Put("}");
  }
  return Put(value.Is(ValueKind::kUndefined) ? "Undefined" : Simple(value));
}

absl::Status Printer::JsonString(const MarkedText& text) {
  input_ |= text.any_input();
  static constexpr absl::string_view kSpecial = "\"\\\n\r\t\b\f";
  static constexpr absl::string_view kLetters = "\"\\nrtbf";
  std::string out = "\"";
  for (const char c : text.text()) {
    const size_t special = kSpecial.find(c);
    if (special != absl::string_view::npos) {
      out += {'\\', kLetters[special]};
    } else if (static_cast<uint8_t>(c) < 0x20) {
      out += absl::StrFormat("\\u%04x", c);
    } else {
      out.push_back(c);
    }
  }
  out.push_back('"');
  return Put(out);
}

absl::Status Printer::JsonKey(const Value& key) {
  if (key.Is(ValueKind::kString)) return JsonString(*key.text);
  const bool simple = key.IsNumber() || key.Is(ValueKind::kNone);
  if (!simple) return TypeError(absl::StrCat("a key of JSON cannot be '", TypeName(key), "'"));
  RETURN_IF_ERROR(Put("\""));
  RETURN_IF_ERROR(Json(key, 0));
  return Put("\"");
}

absl::Status Printer::JsonDict(const DictData& dict, int64_t level) {
  if (dict.items.empty()) return Put("{}");
  auto items = dict.items;
  if (sort_keys_) {
    heap_.Spend(items.size());
    for (const auto& [key, item] : items) {
      if (!key.Is(ValueKind::kString)) return TypeError("only string keys can be sorted");
    }
    std::stable_sort(items.begin(), items.end(), [](const auto& a, const auto& b) {
      return a.first.text->text() < b.first.text->text();
    });
  }
  RETURN_IF_ERROR(Put("{"));
  bool first = true;
  for (const auto& [key, item] : items) {
    RETURN_IF_ERROR(Separate(first, level + 1));
    first = false;
    RETURN_IF_ERROR(JsonKey(key));
    RETURN_IF_ERROR(Put(": "));
    RETURN_IF_ERROR(Json(item, level + 1));
  }
  RETURN_IF_ERROR(Break(level));
  return Put("}");
}

absl::Status Printer::JsonList(const ListData& list, int64_t level) {
  if (list.items.empty()) return Put("[]");
  RETURN_IF_ERROR(Put("["));
  bool first = true;
  for (const Value& item : list.items) {
    RETURN_IF_ERROR(Separate(first, level + 1));
    first = false;
    RETURN_IF_ERROR(Json(item, level + 1));
  }
  RETURN_IF_ERROR(Break(level));
  return Put("]");
}

absl::Status Printer::Json(const Value& value, int64_t level) {
  switch (value.kind) {
    case ValueKind::kNone:
      return Put("null");
    case ValueKind::kBool:
      return Put(value.boolean ? "true" : "false");
    case ValueKind::kInteger:
      return Put(Simple(value));
    case ValueKind::kFloat:
      if (std::isnan(value.number)) return Put("NaN");
      if (std::isinf(value.number)) return Put(value.number < 0 ? "-Infinity" : "Infinity");
      return Put(Simple(value));
    case ValueKind::kString:
      return JsonString(*value.text);
    case ValueKind::kList:
    case ValueKind::kTuple:
      return JsonList(*value.list, level);
    case ValueKind::kDict:
      return JsonDict(*value.dict, level);
    default:
      return TypeError(absl::StrCat("'", TypeName(value), "' cannot be written as JSON"));
  }
}

}  // namespace

// The shortest digits that read back as the same number, in Python's layout.
std::string FloatText(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), number, std::chars_format::scientific);
  const std::string text(buffer, end.ptr);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return text;
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c != '-' && c != '.') digits.push_back(c);
  }
  if (exponent < 0) {
    digits.insert(0, static_cast<size_t>(-exponent), '0');
    digits.insert(1, 1, '.');
  } else {
    const size_t whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() < whole + 1) digits.resize(whole + 1, '0');
    digits.insert(whole, 1, '.');
  }
  return std::signbit(number) ? "-" + digits : digits;
}

absl::StatusOr<MarkedText> ToText(Heap& heap, const Value& value) {
  if (value.Is(ValueKind::kString)) {
    heap.Spend(1 + value.text->size() / 64);
    return *value.text;
  }
  if (value.IsSequence() || value.Is(ValueKind::kDict)) {
    Printer printer(heap);
    RETURN_IF_ERROR(printer.Repr(value));
    return printer.Take();
  }
  return MarkedText(Simple(value), false);
}

absl::StatusOr<MarkedText> ToJson(Heap& heap, const Value& value, int64_t indent, bool sort_keys) {
  Printer printer(heap);
  printer.set_json_style(std::min<int64_t>(indent, 16), sort_keys);
  RETURN_IF_ERROR(printer.Json(value, 0));
  return printer.Take();
}

}  // namespace baton::text
