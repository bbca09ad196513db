// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "engine/text/template_lexer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/text/unicode.h"

namespace baton::text {
namespace {

using Token = TemplateToken;

bool IsNameStart(char c) { return absl::ascii_isalpha(c) || c == '_' || (c & 0x80) != 0; }
bool IsNamePart(char c) { return IsNameStart(c) || absl::ascii_isdigit(c); }
bool IsBlank(char c) { return absl::ascii_isspace(c); }

// One newline character everywhere, and none at the end.
std::string NormalNewlines(absl::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) RETURN_IF_ERROR(NextTag());
    Push(Token::kEnd, "");
    return std::move(tokens_);
  }

 private:
  absl::Status Error(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", what));
  }
  bool Follows(absl::string_view text) const {
    return absl::StartsWith(absl::string_view(source_).substr(at_), text);
  }
  void Push(Token::Kind kind, absl::string_view text) {
    tokens_.push_back({kind, std::string(text), line_});
  }
  // Moves on to `end`, counting lines.
  void MoveTo(size_t end) {
    line_ += static_cast<uint32_t>(std::count(source_.begin() + static_cast<ptrdiff_t>(at_),
                                              source_.begin() + static_cast<ptrdiff_t>(end), '\n'));
    at_ = end;
  }
  void SkipBlanks() {
    size_t end = at_;
    while (end < source_.size() && IsBlank(source_[end])) ++end;
    MoveTo(end);
  }

  // The text up to the next tag, and the tag.
  absl::Status NextTag() {
    size_t tag = source_.find('{', at_);
    while (tag != std::string::npos && tag + 1 < source_.size() &&
           absl::string_view("{%#").find(source_[tag + 1]) == absl::string_view::npos) {
      tag = source_.find('{', tag + 1);
    }
    if (tag == std::string::npos || tag + 1 >= source_.size()) tag = source_.size();
    absl::string_view data = absl::string_view(source_).substr(at_, tag - at_);
    if (tag == source_.size()) {
      if (!data.empty()) Push(Token::kData, data);
      MoveTo(tag);
      return absl::OkStatus();
    }
    const char type = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    const bool has_sign = sign == '-' || sign == '+';
    if (sign == '-') {
      data = StripEnd(data);
    } else if (sign != '+' && type != '{') {
      data = StripLine(data);
    }
    if (!data.empty()) Push(Token::kData, data);
    MoveTo(tag + 2 + (has_sign ? 1 : 0));
    line_starts_ = false;
    if (type == '#') return Comment();
    if (type == '%' && IsRaw()) return Raw();
    return Tag(type == '{');
  }

  static absl::string_view StripEnd(absl::string_view data) {
    return absl::StripTrailingAsciiWhitespace(data);
  }
  // Without the blanks behind the last newline, if there is nothing else behind it.
  absl::string_view StripLine(absl::string_view data) const {
    const size_t newline = data.rfind('\n');
    if (newline == absl::string_view::npos && !line_starts_) return data;
    const size_t start = newline == absl::string_view::npos ? 0 : newline + 1;
    const bool blank = std::all_of(data.begin() + start, data.end(), IsBlank);
    return blank ? data.substr(0, start) : data;
  }

  // Behind the end of a tag whose sign is `sign` (a blank: none).
  void AfterTag(char sign, bool trims_newline) {
    if (sign == '-') {
      SkipBlanks();
    } else if (sign != '+' && trims_newline && Follows("\n")) {
      MoveTo(at_ + 1);
    }
    line_starts_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  absl::Status Comment() {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return Error("TemplateSyntaxError: a comment has no end");
    const char sign = end > at_ ? source_[end - 1] : ' ';
    MoveTo(end + 2);
    AfterTag(sign, true);
    return absl::OkStatus();
  }

  // A position behind blanks.
  size_t PastBlanks(size_t at) const {
    while (at < source_.size() && IsBlank(source_[at])) ++at;
    return at;
  }
  // The end of `word` and of a tag's end behind `at`; npos if something else is there.
  size_t EndOfWordTag(size_t at, absl::string_view word, char& sign) const {
    at = PastBlanks(at);
    if (!absl::StartsWith(absl::string_view(source_).substr(at), word)) return std::string::npos;
    at = PastBlanks(at + word.size());
    sign = at < source_.size() ? source_[at] : ' ';
    if (sign == '-' || sign == '+') ++at;
    return absl::StartsWith(absl::string_view(source_).substr(at), "%}") ? at + 2
                                                                         : std::string::npos;
  }
  bool IsRaw() const {
    char sign = ' ';
    return EndOfWordTag(at_, "raw", sign) != std::string::npos;
  }

  // {% raw %}…{% endraw %}: text as it stands.
  absl::Status Raw() {
    char sign = ' ';
    MoveTo(EndOfWordTag(at_, "raw", sign));
    if (sign == '-') SkipBlanks();
    line_starts_ = source_[at_ - 1] == '\n';
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      const char before = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
      const bool has_sign = before == '-' || before == '+';
      const size_t end = EndOfWordTag(tag + (has_sign ? 3 : 2), "endraw", sign);
      if (end == std::string::npos) continue;
      absl::string_view data = absl::string_view(source_).substr(at_, tag - at_);
      data = before == '-' ? StripEnd(data) : before == '+' ? data : StripLine(data);
      if (!data.empty()) Push(Token::kData, data);
      MoveTo(end);
      AfterTag(sign, true);
      return absl::OkStatus();
    }
    return Error("TemplateSyntaxError: a raw block has no end");
  }

  // The inside of {{ }} or {% %}, and its end.
  absl::Status Tag(bool output) {
    Push(output ? Token::kOutputBegin : Token::kBlockBegin, "");
    const absl::string_view close = output ? "}}" : "%}";
    std::string open;  // brackets
    while (true) {
      SkipBlanks();
      if (at_ == source_.size()) return Error("TemplateSyntaxError: a tag has no end");
      const char c = source_[at_];
      const bool signed_end = (c == '-' || (c == '+' && !output)) &&
                              absl::StartsWith(absl::string_view(source_).substr(at_ + 1), close);
      if (open.empty() && (signed_end || Follows(close))) {
        MoveTo(at_ + (signed_end ? 3 : 2));
        Push(output ? Token::kOutputEnd : Token::kBlockEnd, "");
        AfterTag(signed_end ? c : ' ', !output);
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(Inside(open));
    }
  }

  absl::Status Inside(std::string& open) {
    const char c = source_[at_];
    if (c == '\'' || c == '"') return String(c);
    if (absl::ascii_isdigit(c)) return Number();
    if (IsNameStart(c)) {
      size_t end = at_;
      while (end < source_.size() && IsNamePart(source_[end])) ++end;
      Push(Token::kName, absl::string_view(source_).substr(at_, end - at_));
      at_ = end;
      return absl::OkStatus();
    }
    return Operator(open);
  }

  absl::Status Operator(std::string& open) {
    for (const absl::string_view two : {"==", "!=", ">=", "<=", "//", "**"}) {
      if (!Follows(two)) continue;
      Push(Token::kOperator, two);
      at_ += 2;
      return absl::OkStatus();
    }
    const char c = source_[at_];
    if (absl::string_view("+-/*%~[](){}<>=.:|,").find(c) == absl::string_view::npos) {
      return Error("TemplateSyntaxError: an unexpected character in a tag");
    }
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty() || open.back() != c) {
        return Error(absl::StrCat("TemplateSyntaxError: an unexpected '", std::string(1, c), "'"));
      }
      open.pop_back();
    }
    Push(Token::kOperator, absl::string_view(source_).substr(at_, 1));
    ++at_;
    return absl::OkStatus();
  }

  absl::Status Number() {
    const auto digits = [this](size_t at) {
      while (at < source_.size() && (absl::ascii_isdigit(source_[at]) || source_[at] == '_')) ++at;
      return at;
    };
    const auto digit_at = [this](size_t at) {
      return at < source_.size() && absl::ascii_isdigit(source_[at]);
    };
    // Behind a dot a number is an index: a.0.1
    const bool index =
        !tokens_.empty() && tokens_.back().kind == Token::kOperator && tokens_.back().text == ".";
    size_t end = digits(at_);
    Token::Kind kind = Token::kInteger;
    if (!index && end < source_.size() && source_[end] == '.' && digit_at(end + 1)) {
      kind = Token::kFloat;
      end = digits(end + 1);
    }
    if (!index && end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) {
        ++exponent;
      }
      if (digit_at(exponent)) {
        kind = Token::kFloat;
        end = digits(exponent);
      }
    }
    std::string text = source_.substr(at_, end - at_);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    Push(kind, text);
    at_ = end;
    return absl::OkStatus();
  }

  absl::Status String(char quote) {
    std::string value;
    size_t at = at_ + 1;
    while (at < source_.size() && source_[at] != quote) {
      if (source_[at] != '\\') {
        value.push_back(source_[at++]);
        continue;
      }
      RETURN_IF_ERROR(Escape(at, value));
    }
    if (at >= source_.size()) return Error("TemplateSyntaxError: a string has no end");
    Push(Token::kString, value);
    MoveTo(at + 1);
    return absl::OkStatus();
  }

  // One escape of a string at `at`, which it moves behind it.
  absl::Status Escape(size_t& at, std::string& value) {
    if (at + 1 >= source_.size()) return Error("TemplateSyntaxError: a string has no end");
    const char c = source_[at + 1];
    at += 2;
    static constexpr absl::string_view kLetters = "abfnrtv\\'\"";
    static constexpr absl::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    const size_t letter = kLetters.find(c);
    if (letter != absl::string_view::npos) {
      value.push_back(kMeanings[letter]);
      return absl::OkStatus();
    }
    if (c == '\n') return absl::OkStatus();
    const size_t size = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (size == 0) {
      value.push_back('\\');
      value.push_back(c);
      return absl::OkStatus();
    }
    uint32_t point = 0;
    const std::string digits = source_.substr(at, size);
    const bool all_hex =
        digits.size() == size && std::all_of(digits.begin(), digits.end(), absl::ascii_isxdigit);
    if (!all_hex || !absl::SimpleHexAtoi(digits, &point) || point > 0x10FFFF ||
        (point >= 0xD800 && point <= 0xDFFF)) {
      return Error("TemplateSyntaxError: an escape in a string is no character");
    }
    AppendUtf8(point, value);
    at += size;
    return absl::OkStatus();
  }

  const std::string source_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  bool line_starts_ = true;  // at_ is at the start of a line
  std::vector<Token> tokens_;
};

}  // namespace

absl::StatusOr<std::vector<TemplateToken>> LexTemplate(absl::string_view source) {
  if (FirstInvalidUtf8(source).has_value()) {
    return absl::InvalidArgumentError("the template is not UTF-8");
  }
  return Lexer(NormalNewlines(source)).Run();
}

}  // namespace baton::text
