// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Filters of the template language: `value | name(arguments)`.
#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "engine/text/template_interpreter.h"
#include "engine/text/template_strings.h"

namespace baton::text {
namespace {

using Result = absl::StatusOr<Value>;

// Texts ----------------------------------------------------------------------------------

Result CaseFilter(Interpreter& in, const Arguments& args, Case to) {
  ASSIGN_OR_RETURN(const MarkedText text, ToText(in.heap(), args.self));
  return in.heap().String(ChangeCase(text, to));
}
Result Upper(Interpreter& in, const Arguments& args) { return CaseFilter(in, args, Case::kUpper); }
Result Lower(Interpreter& in, const Arguments& args) { return CaseFilter(in, args, Case::kLower); }
Result Title(Interpreter& in, const Arguments& args) { return CaseFilter(in, args, Case::kWords); }
Result Capitalize(Interpreter& in, const Arguments& args) {
  return CaseFilter(in, args, Case::kCapitalize);
}

Result Trim(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const MarkedText text, ToText(in.heap(), args.self));
  std::optional<absl::string_view> set;
  const Value* chars = args.Get(0, "chars");
  if (chars != nullptr && !chars->Is(ValueKind::kNone)) {
    ASSIGN_OR_RETURN(const MarkedText* given, args.Text(0, "chars"));
    set = given->text();
  }
  return in.heap().String(Strip(text, set, true, true));
}

Result String(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(MarkedText text, ToText(in.heap(), args.self));
  return in.heap().String(std::move(text));
}

Result ReplaceFilter(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const MarkedText text, ToText(in.heap(), args.self));
  ASSIGN_OR_RETURN(const MarkedText* from, args.Text(0, "old"));
  ASSIGN_OR_RETURN(const MarkedText* to, args.Text(1, "new"));
  ASSIGN_OR_RETURN(const int64_t count, args.Integer(2, "count", -1));
  ASSIGN_OR_RETURN(MarkedText out, Replace(in.heap(), text, *from, *to, count));
  return in.heap().String(std::move(out));
}

Result Escape(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(MarkedText text, ToText(in.heap(), args.self));
  static constexpr std::pair<absl::string_view, absl::string_view> kEscapes[] = {
      {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
  for (const auto& [from, to] : kEscapes) {
    ASSIGN_OR_RETURN(text,
                     Replace(in.heap(), text, MarkedText(from, false), MarkedText(to, false), -1));
  }
  return in.heap().String(std::move(text));
}

Result Indent(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(MarkedText text, ToText(in.heap(), args.self));
  MarkedText margin;
  const Value* width = args.Get(0, "width");
  if (width != nullptr && width->Is(ValueKind::kString)) {
    margin = *width->text;
  } else {
    ASSIGN_OR_RETURN(const int64_t count, args.Integer(0, "width", 4));
    ASSIGN_OR_RETURN(margin, Repeat(in.heap(), MarkedText(" ", false), count));
  }
  const bool first = args.Flag(1, "first");
  const bool blank = args.Flag(2, "blank");
  text.Append("\n", false);
  MarkedText out;
  bool at_first = true;
  for (const MarkedText& line : SplitLines(text)) {
    in.heap().Spend(1 + (margin.size() + line.size()) / 64);
    RETURN_IF_ERROR(in.heap().CheckRoom(out.size() + margin.size() + line.size()));
    if (!at_first) out.Append("\n", false);
    if (at_first ? first : blank || line.size() > 0) out.Append(margin);
    out.Append(line);
    at_first = false;
  }
  return in.heap().String(std::move(out));
}

Result WordCount(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const MarkedText text, ToText(in.heap(), args.self));
  return Value::Integer(static_cast<int64_t>(SplitOnSpace(text, -1).size()));
}

Result Json(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const int64_t indent, args.Integer(1, "indent", -1));
  ASSIGN_OR_RETURN(MarkedText text,
                   ToJson(in.heap(), args.self, indent, args.Flag(3, "sort_keys")));
  return in.heap().String(std::move(text));
}

// Numbers --------------------------------------------------------------------------------

Result Integer(Interpreter& in, const Arguments& args) {
  const Value* given = args.Get(0, "default");
  const Value otherwise = given == nullptr ? Value::Integer(0) : *given;
  const Value& self = args.self;
  if (self.Is(ValueKind::kBool)) return Value::Integer(self.boolean ? 1 : 0);
  if (self.Is(ValueKind::kInteger)) return self;
  double number = 0;
  if (self.Is(ValueKind::kString)) {
    const MarkedText text = Strip(*self.text, std::nullopt, true, true);
    in.heap().Spend(1 + text.size() / 64);
    int64_t integer = 0;
    if (absl::SimpleAtoi(text.text(), &integer)) return Value::Integer(integer);
    if (!absl::SimpleAtod(text.text(), &number)) return otherwise;
  } else if (self.Is(ValueKind::kFloat)) {
    number = self.number;
  } else {
    return otherwise;
  }
  if (!(std::fabs(number) < 9.2e18)) return otherwise;
  return Value::Integer(static_cast<int64_t>(number));
}

Result Float(Interpreter& in, const Arguments& args) {
  const Value* given = args.Get(0, "default");
  const Value& self = args.self;
  if (self.Is(ValueKind::kFloat)) return self;
  if (self.Is(ValueKind::kInteger)) return Value::Float(static_cast<double>(self.integer));
  if (self.Is(ValueKind::kBool)) return Value::Float(self.boolean ? 1 : 0);
  double number = 0;
  if (self.Is(ValueKind::kString)) {
    in.heap().Spend(1 + self.text->size() / 64);
    if (absl::SimpleAtod(self.text->text(), &number)) return Value::Float(number);
  }
  return given == nullptr ? Value::Float(0) : *given;
}

Result Abs(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const bool negative, Less(in.heap(), args.self, Value::Integer(0)));
  return Calculate(in.heap(), negative ? "-" : "+", Value::Integer(0), args.self);
}

Result Round(Interpreter&, const Arguments& args) {
  if (!args.self.IsNumber()) return TypeError("round needs a number");
  ASSIGN_OR_RETURN(const int64_t places, args.Integer(0, "precision", 0));
  const double value = args.self.Is(ValueKind::kFloat)  ? args.self.number
                       : args.self.Is(ValueKind::kBool) ? (args.self.boolean ? 1.0 : 0.0)
                                                        : static_cast<double>(args.self.integer);
  std::string method = "common";
  if (args.Get(1, "method") != nullptr) {
    ASSIGN_OR_RETURN(const MarkedText* given, args.Text(1, "method"));
    method = given->text();
  }
  const double scale = std::pow(10.0, static_cast<double>(places));
  const double scaled = value * scale;
  const double rounded = method == "ceil"    ? std::ceil(scaled)
                         : method == "floor" ? std::floor(scaled)
                                             : std::nearbyint(scaled);
  return Value::Float(rounded / scale);
}

// Lists ----------------------------------------------------------------------------------

Result Default(Interpreter& in, const Arguments& args) {
  const bool missing =
      args.self.Is(ValueKind::kUndefined) || (args.Flag(1, "boolean") && !Truthy(args.self));
  if (!missing) return args.self;
  const Value* otherwise = args.Get(0, "default_value");
  return otherwise == nullptr ? in.heap().String("", false) : *otherwise;
}

Result LengthFilter(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const int64_t length, Length(in.heap(), args.self));
  return Value::Integer(length);
}

Result List(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(std::vector<Value> items, Items(in.heap(), args.self));
  return in.heap().List(std::move(items));
}

Result First(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Items(in.heap(), args.self));
  return items.empty() ? in.heap().Undefined("the first of no items") : items.front();
}

Result Last(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Items(in.heap(), args.self));
  return items.empty() ? in.heap().Undefined("the last of no items") : items.back();
}

Result Reverse(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(std::vector<Value> items, Items(in.heap(), args.self));
  std::reverse(items.begin(), items.end());
  if (!args.self.Is(ValueKind::kString)) return in.heap().List(std::move(items));
  MarkedText text;
  for (const Value& item : items) text.Append(*item.text);
  return in.heap().String(std::move(text));
}

Result ItemsFilter(Interpreter& in, const Arguments& args) {
  std::vector<Value> pairs;
  if (args.self.Is(ValueKind::kUndefined)) return in.heap().List({});
  if (!args.self.Is(ValueKind::kDict)) return TypeError("items needs a mapping");
  for (const auto& [key, value] : args.self.dict->items) {
    pairs.push_back(in.heap().List({key, value}, ValueKind::kTuple));
  }
  return in.heap().List(std::move(pairs));
}

// The value at a path such as "function.name" or "0.id".
Result AtPath(Interpreter& in, Value value, const Value& path) {
  if (path.Is(ValueKind::kInteger)) return in.Item(value, path);
  if (!path.Is(ValueKind::kString)) return TypeError("an attribute's name is a string");
  for (const absl::string_view part : absl::StrSplit(path.text->text(), '.')) {
    int64_t index = 0;
    if (absl::SimpleAtoi(part, &index)) {
      ASSIGN_OR_RETURN(value, in.Item(value, Value::Integer(index)));
    } else {
      ASSIGN_OR_RETURN(value, in.Item(value, in.heap().String(part, false)));
    }
  }
  return value;
}

// The items, each replaced by its `attribute` if that argument is given.
absl::StatusOr<std::vector<Value>> Keys(Interpreter& in, const std::vector<Value>& items,
                                        const Value* attribute) {
  if (attribute == nullptr || attribute->Is(ValueKind::kNone)) return items;
  std::vector<Value> keys;
  for (const Value& item : items) {
    in.heap().Spend(1);
    RETURN_IF_ERROR(in.heap().Check());
    ASSIGN_OR_RETURN(const Value key, AtPath(in, item, *attribute));
    keys.push_back(key);
  }
  return keys;
}

Result Join(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Items(in.heap(), args.self));
  ASSIGN_OR_RETURN(const std::vector<Value> parts, Keys(in, items, args.Get(1, "attribute")));
  MarkedText separator;
  if (const Value* given = args.Get(0, "d")) {
    ASSIGN_OR_RETURN(separator, ToText(in.heap(), *given));
  }
  MarkedText out;
  for (size_t i = 0; i < parts.size(); ++i) {
    ASSIGN_OR_RETURN(const MarkedText part, ToText(in.heap(), parts[i]));
    in.heap().Spend(1 + separator.size() / 64);
    RETURN_IF_ERROR(in.heap().CheckRoom(out.size() + separator.size() + part.size()));
    if (i > 0) out.Append(separator);
    out.Append(part);
  }
  return in.heap().String(std::move(out));
}

Result Map(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Items(in.heap(), args.self));
  std::vector<Value> mapped;
  for (const auto& [name, value] : args.named) {
    if (name != "attribute") continue;
    ASSIGN_OR_RETURN(mapped, Keys(in, items, &value));
    const Value* otherwise = args.Get(SIZE_MAX, "default");
    for (Value& item : mapped) {
      if (otherwise != nullptr && item.Is(ValueKind::kUndefined)) item = *otherwise;
    }
    return in.heap().List(std::move(mapped));
  }
  ASSIGN_OR_RETURN(const MarkedText* filter, args.Text(0, "name"));
  for (const Value& item : items) {
    in.heap().Spend(1);
    RETURN_IF_ERROR(in.heap().Check());
    ASSIGN_OR_RETURN(const Value value, ApplyFilter(in, filter->text(), args.Behind(item, 1)));
    mapped.push_back(value);
  }
  return in.heap().List(std::move(mapped));
}

// select, reject (`by_attribute` false) and selectattr, rejectattr.
Result Choose(Interpreter& in, const Arguments& args, bool by_attribute, bool keep) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Items(in.heap(), args.self));
  const size_t test_place = by_attribute ? 1 : 0;
  const Value* attribute = by_attribute ? args.Get(0, "attribute") : nullptr;
  if (by_attribute && attribute == nullptr) return TypeError("an attribute's name is missing");
  ASSIGN_OR_RETURN(const std::vector<Value> keys, Keys(in, items, attribute));
  std::vector<Value> chosen;
  for (size_t i = 0; i < items.size(); ++i) {
    in.heap().Spend(1);
    RETURN_IF_ERROR(in.heap().Check());
    bool holds = Truthy(keys[i]);
    if (test_place < args.list.size()) {
      ASSIGN_OR_RETURN(const MarkedText* test, args.Text(test_place, "test"));
      ASSIGN_OR_RETURN(holds, ApplyTest(in, test->text(), args.Behind(keys[i], test_place + 1)));
    }
    if (holds == keep) chosen.push_back(items[i]);
  }
  return in.heap().List(std::move(chosen));
}
Result Select(Interpreter& in, const Arguments& args) { return Choose(in, args, false, true); }
Result Reject(Interpreter& in, const Arguments& args) { return Choose(in, args, false, false); }
Result SelectAttr(Interpreter& in, const Arguments& args) { return Choose(in, args, true, true); }
Result RejectAttr(Interpreter& in, const Arguments& args) { return Choose(in, args, true, false); }

// The order of `keys`, stably; strings without regard to case unless told.
absl::StatusOr<std::vector<size_t>> Order(Interpreter& in, std::vector<Value> keys,
                                          bool case_sensitive, bool reverse) {
  std::vector<size_t> order;
  for (size_t i = 0; i < keys.size(); ++i) {
    order.push_back(i);
    if (case_sensitive || !keys[i].Is(ValueKind::kString)) continue;
    keys[i] = in.heap().String(ChangeCase(*keys[i].text, Case::kLower));
  }
  // Every pair must have an order before they are sorted by it.
  for (const Value& key : keys) RETURN_IF_ERROR(Less(in.heap(), keys[0], key).status());
  in.heap().Spend(keys.size() * 4);
  const auto less = [&](size_t a, size_t b) {
    return reverse ? Less(in.heap(), keys[b], keys[a]).value_or(false)
                   : Less(in.heap(), keys[a], keys[b]).value_or(false);
  };
  std::stable_sort(order.begin(), order.end(), less);
  return order;
}

Result Sort(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Items(in.heap(), args.self));
  ASSIGN_OR_RETURN(std::vector<Value> keys, Keys(in, items, args.Get(2, "attribute")));
  ASSIGN_OR_RETURN(
      const std::vector<size_t> order,
      Order(in, std::move(keys), args.Flag(1, "case_sensitive"), args.Flag(0, "reverse")));
  std::vector<Value> sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  return in.heap().List(std::move(sorted));
}

Result DictSort(Interpreter& in, const Arguments& args) {
  if (!args.self.Is(ValueKind::kDict)) return TypeError("dictsort needs a mapping");
  const Value* by = args.Get(1, "by");
  const bool by_value = by != nullptr && by->Is(ValueKind::kString) && by->text->text() == "value";
  std::vector<Value> keys;
  for (const auto& [key, value] : args.self.dict->items) keys.push_back(by_value ? value : key);
  ASSIGN_OR_RETURN(
      const std::vector<size_t> order,
      Order(in, std::move(keys), args.Flag(0, "case_sensitive"), args.Flag(2, "reverse")));
  std::vector<Value> sorted;
  for (const size_t i : order) {
    const auto& [key, value] = args.self.dict->items[i];
    sorted.push_back(in.heap().List({key, value}, ValueKind::kTuple));
  }
  return in.heap().List(std::move(sorted));
}

Result Unique(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Items(in.heap(), args.self));
  ASSIGN_OR_RETURN(std::vector<Value> keys, Keys(in, items, args.Get(1, "attribute")));
  std::vector<Value> kept;
  std::vector<Value> seen;
  for (size_t i = 0; i < items.size(); ++i) {
    RETURN_IF_ERROR(in.heap().Check());
    if (keys[i].Is(ValueKind::kString) && !args.Flag(0, "case_sensitive")) {
      keys[i] = in.heap().String(ChangeCase(*keys[i].text, Case::kLower));
    }
    const bool known = std::any_of(seen.begin(), seen.end(), [&](const Value& key) {
      return Equals(in.heap(), key, keys[i]);
    });
    if (known) continue;
    seen.push_back(keys[i]);
    kept.push_back(items[i]);
  }
  return in.heap().List(std::move(kept));
}

Result Extreme(Interpreter& in, const Arguments& args, bool reverse) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Items(in.heap(), args.self));
  if (items.empty()) return in.heap().Undefined("the extreme of no items");
  ASSIGN_OR_RETURN(std::vector<Value> keys, Keys(in, items, args.Get(1, "attribute")));
  ASSIGN_OR_RETURN(const std::vector<size_t> order,
                   Order(in, std::move(keys), args.Flag(0, "case_sensitive"), reverse));
  return items[order[0]];
}
Result Min(Interpreter& in, const Arguments& args) { return Extreme(in, args, false); }
Result Max(Interpreter& in, const Arguments& args) { return Extreme(in, args, true); }

Result Sum(Interpreter& in, const Arguments& args) {
  ASSIGN_OR_RETURN(const std::vector<Value> items, Items(in.heap(), args.self));
  ASSIGN_OR_RETURN(const std::vector<Value> parts, Keys(in, items, args.Get(0, "attribute")));
  const Value* start = args.Get(1, "start");
  Value sum = start == nullptr ? Value::Integer(0) : *start;
  for (const Value& part : parts) {
    RETURN_IF_ERROR(in.heap().Check());
    ASSIGN_OR_RETURN(sum, Calculate(in.heap(), "+", sum, part));
  }
  return sum;
}

Result Same(Interpreter&, const Arguments& args) { return args.self; }

struct Filter {
  absl::string_view name;
  Result (*apply)(Interpreter&, const Arguments&);
};
constexpr Filter kFilters[] = {
    {"abs", Abs},
    {"capitalize", Capitalize},
    {"count", LengthFilter},
    {"d", Default},
    {"default", Default},
    {"dictsort", DictSort},
    {"e", Escape},
    {"escape", Escape},
    {"first", First},
    {"float", Float},
    {"indent", Indent},
    {"int", Integer},
    {"items", ItemsFilter},
    {"join", Join},
    {"last", Last},
    {"length", LengthFilter},
    {"list", List},
    {"lower", Lower},
    {"map", Map},
    {"max", Max},
    {"min", Min},
    {"reject", Reject},
    {"rejectattr", RejectAttr},
    {"replace", ReplaceFilter},
    {"reverse", Reverse},
    {"round", Round},
    {"safe", Same},
    {"select", Select},
    {"selectattr", SelectAttr},
    {"sort", Sort},
    {"string", String},
    {"sum", Sum},
    {"title", Title},
    {"tojson", Json},
    {"trim", Trim},
    {"unique", Unique},
    {"upper", Upper},
    {"wordcount", WordCount},
};

}  // namespace

absl::StatusOr<Value> ApplyFilter(Interpreter& in, absl::string_view name, const Arguments& args) {
  for (const Filter& filter : kFilters) {
    if (filter.name == name) return filter.apply(in, args);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("TemplateAssertionError: no filter named '", name, "'"));
}

}  // namespace baton::text
