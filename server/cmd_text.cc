// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// `baton tokenize`, `detokenize` and `render`: what the front end does to text, by itself.
//
// With --jsonl each line of stdin is a JSON object and gives one line on stdout; a line that
// cannot be worked on gives {"error": …} and the next one goes on.  Without it the first
// error ends the command.
#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "engine/gguf.h"
#include "engine/model_loader.h"
#include "engine/text/text_model.h"
#include "engine/text/utf8_stream.h"
#include "server/chat_json.h"
#include "server/commands.h"

namespace baton::server {
namespace {

using Json = nlohmann::ordered_json;

const FlagSpec kModelFlag = {"model", "FILE", "the model: a GGUF file or a Hugging Face folder"};
const FlagSpec kJsonlFlag = {"jsonl", "", "a JSON object a line in, one a line out"};

// Does `work` with the model that --model names.
int WithModel(const CommandLine& line, int (*work)(const CommandLine&, const text::TextModel&)) {
  if (!line.Has("model")) {
    std::fprintf(stderr, "baton: --model FILE is required\n");
    return kExitUsage;
  }
  const auto file = engine::OpenModel(line.Get("model"));
  if (!file.ok()) return Fail(file.status());
  const auto model = text::TextModel::Load(*file);
  if (!model.ok()) return Fail(model.status());
  return work(line, *model);
}

// The text or the request is at fault, not the model file.
int FailInput(const absl::Status& status) {
  std::fprintf(stderr, "baton: %s\n", std::string(status.message()).c_str());
  return kExitFailure;
}

// In ASCII, so that a line is one line to every reader: some also end lines at U+2028.
void PrintLine(const Json& json) {
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fputc('\n', stdout);
}

std::string ReadStdin() {
  return std::string(std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>());
}

absl::StatusOr<Json> ParseJson(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return absl::InvalidArgumentError("not JSON, or not UTF-8");
  return json;
}

// Calls `answer` for the object of each line of stdin and prints what it returns.
template <typename Answer>
int ForEachLine(const Answer& answer) {
  for (std::string text; std::getline(std::cin, text);) {
    if (text.empty()) continue;
    const auto reply = [&]() -> absl::StatusOr<Json> {
      ASSIGN_OR_RETURN(const Json request, ParseJson(text));
      if (!request.is_object()) return absl::InvalidArgumentError("not a JSON object");
      return answer(request);
    }();
    PrintLine(reply.ok() ? *reply : Json{{"error", std::string(reply.status().message())}});
  }
  return std::fflush(stdout) == 0 ? kExitOk : kExitFailure;
}

// tokenize -------------------------------------------------------------------------------

absl::StatusOr<Json> TokenizeRequest(const text::TextModel& model, const Json& request,
                                     bool parse_special) {
  const auto text = request.find("text");
  if (text == request.end() || !text->is_string()) {
    return absl::InvalidArgumentError("text: a string is required");
  }
  if (const auto flag = request.find("parse_special"); flag != request.end()) {
    if (!flag->is_boolean()) return absl::InvalidArgumentError("parse_special: not true or false");
    parse_special = flag->get<bool>();
  }
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                   model.tokenizer().Encode(text->get_ref<const std::string&>(), parse_special));
  return Json{{"ids", ids}};
}

int Tokenize(const CommandLine& line, const text::TextModel& model) {
  const bool parse_special = line.Has("parse-special");
  if (line.Has("jsonl")) {
    return ForEachLine(
        [&](const Json& request) { return TokenizeRequest(model, request, parse_special); });
  }
  const std::string given = line.Get("text", "-");
  const auto ids = model.tokenizer().Encode(given == "-" ? ReadStdin() : given, parse_special);
  if (!ids.ok()) return FailInput(ids.status());
  PrintLine(Json(*ids));
  return kExitOk;
}

// detokenize -----------------------------------------------------------------------------

absl::StatusOr<std::vector<TokenId>> IdsOf(const text::TextModel& model, const Json& json) {
  if (!json.is_array()) return absl::InvalidArgumentError("ids: an array is required");
  std::vector<TokenId> ids;
  for (const Json& item : json) {
    const bool known = item.is_number_integer() && item.get<int64_t>() >= 0 &&
                       item.get<int64_t>() < model.tokenizer().size();
    if (!known) {
      return absl::InvalidArgumentError(absl::StrCat(
          "ids: ", item.dump(), " is no token; ids go from 0 to ", model.tokenizer().size() - 1));
    }
    ids.push_back(item.get<TokenId>());
  }
  return ids;
}

absl::StatusOr<Json> DetokenizeRequest(const text::TextModel& model, const Json& request,
                                       bool stream) {
  ASSIGN_OR_RETURN(const std::vector<TokenId> ids,
                   IdsOf(model, request.contains("ids") ? request["ids"] : Json()));
  std::string bytes;
  Json pieces = Json::array();
  text::Utf8Stream utf8;
  for (const TokenId id : ids) {
    std::string piece;
    utf8.Push(model.tokenizer().Bytes(id), piece);
    absl::StrAppend(&bytes, model.tokenizer().Bytes(id));
    pieces.push_back(std::move(piece));
  }
  Json reply = {{"hex", absl::BytesToHexString(bytes)}, {"text", text::LossyText(bytes)}};
  if (stream) {
    std::string flush;
    utf8.Flush(flush);
    reply["pieces"] = std::move(pieces);
    reply["flush"] = std::move(flush);
  }
  return reply;
}

// `[1, 2]`, or numbers with blanks or commas between them.
absl::StatusOr<Json> ParseIds(const std::string& text) {
  if (text.find('[') != std::string::npos) return ParseJson(text);
  Json ids = Json::array();
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(", \t\r\n"), absl::SkipEmpty())) {
    int64_t id = 0;
    if (!absl::SimpleAtoi(word, &id)) {
      return absl::InvalidArgumentError(absl::StrCat("'", word, "' is not an id"));
    }
    ids.push_back(id);
  }
  return ids;
}

int Detokenize(const CommandLine& line, const text::TextModel& model) {
  if (line.Has("jsonl")) {
    const bool stream = line.Has("stream");
    return ForEachLine(
        [&](const Json& request) { return DetokenizeRequest(model, request, stream); });
  }
  std::string given;
  for (const std::string& word : line.words()) absl::StrAppend(&given, word, " ");
  const auto reply = [&]() -> absl::StatusOr<Json> {
    ASSIGN_OR_RETURN(Json ids, ParseIds(line.words().empty() ? ReadStdin() : given));
    return DetokenizeRequest(model, Json{{"ids", std::move(ids)}}, false);
  }();
  if (!reply.ok()) return FailInput(reply.status());
  std::printf("%s\n", (*reply)["text"].get_ref<const std::string&>().c_str());
  return kExitOk;
}

// render ---------------------------------------------------------------------------------

absl::StatusOr<Json> RenderRequest(const text::TextModel& model, const Json& request) {
  ASSIGN_OR_RETURN(const text::ChatInput chat, ToChatInput(request));
  ASSIGN_OR_RETURN(text::RenderedChat rendered, model.RenderChat(chat));
  return Json{{"text", std::move(rendered.text)}, {"ids", std::move(rendered.ids)}};
}

int Render(const CommandLine& line, const text::TextModel& model) {
  if (line.Has("jsonl")) {
    return ForEachLine([&](const Json& request) { return RenderRequest(model, request); });
  }
  const auto reply = [&]() -> absl::StatusOr<Json> {
    ASSIGN_OR_RETURN(const Json request, ParseJson(ReadStdin()));
    return RenderRequest(model, request);
  }();
  if (!reply.ok()) {
    PrintLine(Json{{"error", std::string(reply.status().message())}});
    return FailInput(reply.status());
  }
  PrintLine(*reply);
  return kExitOk;
}

}  // namespace

std::vector<Command> TextCommands() {
  const FlagSpec special = {"parse-special", "", "markers such as <|im_end|> become their tokens"};
  const FlagSpec text = {"text", "TEXT", "the text; - or left out: stdin"};
  const FlagSpec stream = {"stream", "", "with --jsonl: also the text after each token"};
  return {
      {"tokenize",
       "",
       "token ids of a text, as a JSON array",
       {kModelFlag, special, text, kJsonlFlag},
       [](const CommandLine& line) { return WithModel(line, Tokenize); }},
      {"detokenize",
       "[ID…]",
       "the text of token ids, given or on stdin",
       {kModelFlag, kJsonlFlag, stream},
       [](const CommandLine& line) { return WithModel(line, Detokenize); }},
      {"render",
       "",
       "a conversation (JSON on stdin) as the model gets it",
       {kModelFlag, kJsonlFlag},
       [](const CommandLine& line) { return WithModel(line, Render); }},
  };
}

}  // namespace baton::server
