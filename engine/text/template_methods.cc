// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Methods of values (`text.split(x)`) and global functions of the template language.
//
// Lists and dicts cannot be changed, as in Jinja's immutable sandbox.
#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "engine/text/template_interpreter.h"
#include "engine/text/template_strings.h"
#include "engine/text/unicode.h"

namespace baton::text {
namespace {

using Result = absl::StatusOr<Value>;
using Names = absl::Span<const absl::string_view>;

constexpr absl::string_view kTextMethods[] = {
    "capitalize",   "count",      "endswith", "find",   "index",  "isalpha",
    "isdigit",      "isspace",    "join",     "lower",  "lstrip", "removeprefix",
    "removesuffix", "replace",    "rfind",    "rsplit", "rstrip", "split",
    "splitlines",   "startswith", "strip",    "title",  "upper"};
constexpr absl::string_view kDictMethods[] = {"get", "items", "keys", "values"};
constexpr absl::string_view kListMethods[] = {"count", "index"};
// Methods that would change a list or a dict; to call one is an error.
constexpr absl::string_view kChangers[] = {"append", "clear",   "extend", "insert",     "pop",
                                           "remove", "reverse", "sort",   "setdefault", "update"};
constexpr absl::string_view kLoopMethods[] = {"cycle"};

Names MethodsOf(ValueKind kind) {
  switch (kind) {
    case ValueKind::kString:
      return kTextMethods;
    case ValueKind::kDict:
      return kDictMethods;
    case ValueKind::kList:
    case ValueKind::kTuple:
      return kListMethods;
    case ValueKind::kLoop:
      return kLoopMethods;
    default:
      return {};
  }
}

// A dict's own key of that name is meant where there is one.
bool IsChanger(const Value& value, absl::string_view name) {
  if (!value.IsSequence() && !value.Is(ValueKind::kDict)) return false;
  if (std::find(std::begin(kChangers), std::end(kChangers), name) == std::end(kChangers)) {
    return false;
  }
  if (!value.Is(ValueKind::kDict)) return true;
  return std::none_of(value.dict->items.begin(), value.dict->items.end(), [&](const auto& item) {
    return item.first.Is(ValueKind::kString) && item.first.text->text() == name;
  });
}

absl::Status NotFound() { return absl::InvalidArgumentError("ValueError: not found"); }

// Strings --------------------------------------------------------------------------------

Result Texts(Heap& heap, std::vector<MarkedText> parts) {
  heap.Spend(parts.size());
  std::vector<Value> values;
  for (MarkedText& part : parts) values.push_back(heap.String(std::move(part)));
  return heap.List(std::move(values));
}

Result StripMethod(Heap& heap, const Arguments& args, bool begin, bool end) {
  std::optional<absl::string_view> set;
  const Value* given = args.Get(0, "chars");
  if (given != nullptr && !given->Is(ValueKind::kNone)) {
    ASSIGN_OR_RETURN(const MarkedText* chars, args.Text(0, "chars"));
    set = chars->text();
  }
  return heap.String(Strip(*args.self.text, set, begin, end));
}

Result SplitMethod(Heap& heap, const Arguments& args, bool from_end) {
  ASSIGN_OR_RETURN(const int64_t count, args.Integer(1, "maxsplit", -1));
  const Value* given = args.Get(0, "sep");
  if (given == nullptr || given->Is(ValueKind::kNone)) {
    if (from_end && count >= 0) return TypeError("rsplit with a limit needs a separator");
    return Texts(heap, SplitOnSpace(*args.self.text, count));
  }
  ASSIGN_OR_RETURN(const MarkedText* separator, args.Text(0, "sep"));
  if (separator->size() == 0) return absl::InvalidArgumentError("ValueError: empty separator");
  return Texts(heap, SplitText(*args.self.text, separator->text(), count, from_end));
}

// startswith and endswith; a tuple gives alternatives.
Result StartsOrEnds(const Arguments& args, bool starts) {
  const Value* given = args.Get(0, "prefix");
  if (given == nullptr) return TypeError("startswith and endswith need an argument");
  const std::vector<Value> alternatives =
      given->Is(ValueKind::kTuple) ? given->list->items : std::vector<Value>{*given};
  for (const Value& part : alternatives) {
    if (!part.Is(ValueKind::kString)) return TypeError("startswith and endswith need a string");
    const std::string& text = args.self.text->text();
    const bool holds = starts ? absl::StartsWith(text, part.text->text())
                              : absl::EndsWith(text, part.text->text());
    if (holds) return Value::Bool(true);
  }
  return Value::Bool(false);
}

Result FindMethod(absl::string_view name, const Arguments& args) {
  ASSIGN_OR_RETURN(const MarkedText* part, args.Text(0, "sub"));
  const absl::string_view text = args.self.text->text();
  const size_t at = name == "rfind" ? text.rfind(part->text()) : text.find(part->text());
  if (at != absl::string_view::npos) {
    return Value::Integer(static_cast<int64_t>(CountCharacters(text.substr(0, at))));
  }
  if (name == "index") return NotFound();
  return Value::Integer(-1);
}

Result CountMethod(const Arguments& args) {
  ASSIGN_OR_RETURN(const MarkedText* part, args.Text(0, "sub"));
  const std::string& text = args.self.text->text();
  if (part->size() == 0) return Value::Integer(static_cast<int64_t>(CountCharacters(text)) + 1);
  int64_t count = 0;
  for (size_t at = text.find(part->text()); at != std::string::npos;
       at = text.find(part->text(), at + part->size())) {
    ++count;
  }
  return Value::Integer(count);
}

Result RemoveEnd(Heap& heap, absl::string_view name, const Arguments& args) {
  ASSIGN_OR_RETURN(const MarkedText* part, args.Text(0, "prefix"));
  const MarkedText& text = *args.self.text;
  if (name == "removeprefix" && absl::StartsWith(text.text(), part->text())) {
    return heap.String(text.Slice(part->size(), text.size()));
  }
  if (name == "removesuffix" && absl::EndsWith(text.text(), part->text())) {
    return heap.String(text.Slice(0, text.size() - part->size()));
  }
  return args.self;
}

Result ClassMethod(absl::string_view name, const Arguments& args) {
  const std::string& text = args.self.text->text();
  bool holds = !text.empty();
  for (size_t at = 0; at < text.size() && holds;) {
    const Utf8Step step = DecodeUtf8(text, at);
    const CharClass kind = ClassOf(step.code_point);
    holds = name == "isalpha"   ? kind == CharClass::kLetter
            : name == "isdigit" ? step.code_point >= '0' && step.code_point <= '9'
                                : IsPythonSpace(step.code_point);
    at += step.size;
  }
  return Value::Bool(holds);
}

Result TextMethod(Interpreter& in, absl::string_view name, const Arguments& args) {
  Heap& heap = in.heap();
  const MarkedText& text = *args.self.text;
  heap.Spend(1 + text.size() / 64);
  if (name == "upper") return heap.String(ChangeCase(text, Case::kUpper));
  if (name == "lower") return heap.String(ChangeCase(text, Case::kLower));
  if (name == "title") return heap.String(ChangeCase(text, Case::kTitle));
  if (name == "capitalize") return heap.String(ChangeCase(text, Case::kCapitalize));
  if (name == "strip") return StripMethod(heap, args, true, true);
  if (name == "lstrip") return StripMethod(heap, args, true, false);
  if (name == "rstrip") return StripMethod(heap, args, false, true);
  if (name == "split") return SplitMethod(heap, args, false);
  if (name == "rsplit") return SplitMethod(heap, args, true);
  if (name == "splitlines") return Texts(heap, SplitLines(text));
  if (name == "startswith") return StartsOrEnds(args, true);
  if (name == "endswith") return StartsOrEnds(args, false);
  if (name == "count") return CountMethod(args);
  if (name == "find" || name == "rfind" || name == "index") return FindMethod(name, args);
  if (name == "removeprefix" || name == "removesuffix") return RemoveEnd(heap, name, args);
  if (name == "replace") return ApplyFilter(in, "replace", args);
  if (name == "join") {
    Arguments joined;
    joined.list = {args.self};
    if (args.list.empty()) return TypeError("join needs a list");
    joined.self = args.list[0];
    return ApplyFilter(in, "join", joined);
  }
  return ClassMethod(name, args);
}

// Dicts and lists ------------------------------------------------------------------------

Result DictMethod(Interpreter& in, absl::string_view name, const Arguments& args) {
  Heap& heap = in.heap();
  const DictData& dict = *args.self.dict;
  if (name == "items") return ApplyFilter(in, "items", args);
  if (name == "get") {
    if (args.list.empty()) return TypeError("get needs a key");
    if (const Value* found = Find(heap, dict, args.list[0])) return *found;
    const Value* otherwise = args.Get(1, "default");
    return otherwise == nullptr ? Value::None() : *otherwise;
  }
  heap.Spend(dict.items.size() / 8);
  std::vector<Value> list;
  for (const auto& [key, value] : dict.items) list.push_back(name == "keys" ? key : value);
  return heap.List(std::move(list));
}

Result ListMethod(Heap& heap, absl::string_view name, const Arguments& args) {
  if (args.list.empty()) return TypeError("count and index need an argument");
  int64_t count = 0;
  const std::vector<Value>& items = args.self.list->items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!Equals(heap, items[i], args.list[0])) continue;
    if (name == "index") return Value::Integer(static_cast<int64_t>(i));
    ++count;
  }
  if (name == "index") return NotFound();
  return Value::Integer(count);
}

Result Cycle(const Arguments& args) {
  if (args.list.empty()) return TypeError("cycle needs items");
  return args.list[args.self.loop->index % args.list.size()];
}

// Functions ------------------------------------------------------------------------------

Result RaiseException(Interpreter& in, const Arguments& args) {
  std::string message = "raised by the template";
  if (!args.list.empty()) {
    ASSIGN_OR_RETURN(const MarkedText text, ToText(in.heap(), args.list[0]));
    message = text.text().substr(0, OffsetOfCharacter(text.text(), 500));
  }
  return absl::InvalidArgumentError(absl::StrCat("TemplateError: ", message));
}

Result Range(Heap& heap, const Arguments& args) {
  int64_t parts[3] = {0, 0, 1};
  if (args.list.empty() || args.list.size() > 3) return TypeError("range takes 1 to 3 numbers");
  for (size_t i = 0; i < args.list.size(); ++i) {
    ASSIGN_OR_RETURN(parts[i], args.Integer(i, "range", 0));
  }
  if (args.list.size() == 1) std::swap(parts[0], parts[1]);
  const auto [from, to, step] = parts;
  if (step == 0) return absl::InvalidArgumentError("ValueError: a step of zero");
  std::vector<Value> items;
  int64_t at = from;
  while (step > 0 ? at < to : at > to) {
    if (items.size() >= 100000) {
      return absl::InvalidArgumentError("OverflowError: a range of more than 100000");
    }
    items.push_back(Value::Integer(at));
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  heap.Spend(items.size());
  return heap.List(std::move(items));
}

// namespace(…) and dict(…): a dict to start from, and names.
Result MakeDict(Heap& heap, const Arguments& args, bool is_namespace) {
  std::vector<std::pair<Value, Value>> items;
  if (!args.list.empty()) {
    if (!args.list[0].Is(ValueKind::kDict)) return TypeError("a mapping is expected");
    items = args.list[0].dict->items;
  }
  for (const auto& [name, value] : args.named) items.emplace_back(heap.String(name, false), value);
  return is_namespace ? heap.Namespace(std::move(items)) : heap.Dict(std::move(items));
}

Result StrftimeNow(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const MarkedText* format, args.Text(0, "format"));
  if (format->size() > 200) return absl::InvalidArgumentError("ValueError: a long date format");
  return in.heap().String(absl::FormatTime(format->text(), *in.now(), absl::UTCTimeZone()),
                          format->any_input());
}

}  // namespace

bool HasMethod(const Value& value, absl::string_view name) {
  if (IsChanger(value, name)) return true;
  const Names names = MethodsOf(value.kind);
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::StatusOr<Value> CallMethod(Interpreter& in, absl::string_view name, const Arguments& args) {
  if (IsChanger(args.self, name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("SecurityError: '", name, "' would change a ", TypeName(args.self)));
  }
  switch (args.self.kind) {
    case ValueKind::kString:
      return TextMethod(in, name, args);
    case ValueKind::kDict:
      return DictMethod(in, name, args);
    case ValueKind::kLoop:
      return Cycle(args);
    default:
      return ListMethod(in.heap(), name, args);
  }
}

bool HasFunction(const Interpreter& in, absl::string_view name) {
  if (name == "strftime_now") return in.now().has_value();
  return name == "raise_exception" || name == "namespace" || name == "range" || name == "dict";
}

absl::StatusOr<Value> CallFunction(Interpreter& in, absl::string_view name, const Arguments& args) {
  if (name == "raise_exception") return RaiseException(in, args);
  if (name == "range") return Range(in.heap(), args);
  if (name == "strftime_now") return StrftimeNow(in, args);
  return MakeDict(in.heap(), args, name == "namespace");
}

}  // namespace baton::text
