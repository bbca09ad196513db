// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// What the front end knows of the model: its name, its context and its text side; and how a
// client's words become the ids and rules of an answer.
//
// Thread:  immutable after Load; any.
// Failure: Load: what is wrong with the file.  The rest: an ApiError for the client.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/text/text_model.h"
#include "server/answer.h"
#include "server/openai_request.h"

namespace baton::server {

class FrontendModel {
 public:
  static absl::StatusOr<std::unique_ptr<FrontendModel>> Load(const std::string& path,
                                                             const std::string& name,
                                                             uint32_t context_max);

  const std::string& name() const { return name_; }
  uint32_t context_max() const { return context_max_; }
  const text::TextModel& text() const { return text_; }
  const text::Tokenizer& tokenizer() const { return text_.tokenizer(); }

  // Empty, or the served name; else model_not_found.
  std::optional<ApiError> CheckName(const std::string& asked) const;

  std::optional<ApiError> EncodeText(const std::string& text, bool add_special,
                                     std::vector<TokenId>* ids) const;
  std::optional<ApiError> EncodeChat(const std::vector<ChatMessage>& messages,
                                     std::vector<TokenId>* ids) const;
  std::optional<ApiError> CheckIds(const std::vector<TokenId>& ids, const char* param) const;

  // The rules that every front end shares: context, stop strings, ids, ranges.  `request`
  // holds what was asked; sequence.prompt is set; max_tokens absent: what the context leaves.
  struct Rules {
    std::optional<uint32_t> max_tokens;
    uint32_t min_tokens = 0;
    SamplingParams sampling;
    bool seeded = false;
    std::vector<std::string> stops;
    std::vector<TokenId> stop_ids;
    bool ignore_eos = false;
    bool include_stop = false;
    std::string cache_salt;
    const char* prompt_param = "prompt";
  };
  std::optional<ApiError> Complete(const Rules& rules, AnswerRequest* request) const;

 private:
  FrontendModel(std::string name, uint32_t context_max, text::TextModel text)
      : name_(std::move(name)), context_max_(context_max), text_(std::move(text)) {}

  const std::string name_;
  const uint32_t context_max_;
  const text::TextModel text_;
};

}  // namespace baton::server
