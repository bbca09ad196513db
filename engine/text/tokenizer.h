// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// Text to token ids and back, by byte-level BPE.
//
// Who wrote a text decides what is special in it: a control marker such as <|im_end|> is
// one token only where a template wrote it (a trusted fragment); typed by a user it is
// plain characters.  Text between two markers is encoded as one piece, whoever wrote its
// parts.
//
// Bytes for which the vocabulary has no token vanish before anything is merged, as in the
// reference implementation.
//
// Thread: immutable after Create; any number of threads may call.
// Cost:   Encode is n log n in the worst case, about 100 ns a byte.
// Fails:  Create: InvalidArgument says what is wrong with the vocabulary.
//         Encode: InvalidArgument for text that is not UTF-8 or larger than kTextBytesMax.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/ids.h"
#include "engine/text/bpe.h"
#include "engine/text/marker_trie.h"
#include "engine/text/pre_tokenizer.h"

namespace baton::text {

inline constexpr size_t kTextBytesMax = 64u << 20;

// The numbers are GGUF's tokenizer.ggml.token_type.
enum class TokenType : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,      // a marker; has no text of its own
  kUserDefined = 4,  // matched by its text before merging, whoever wrote it
  kUnused = 5,
  kByte = 6,
};

// What a model file says about its tokenizer.
struct TokenizerData {
  std::string model;                // "gpt2": byte-level BPE
  std::string pre_tokenizer;        // tokenizer.ggml.pre
  std::vector<std::string> tokens;  // by id, in the file's spelling
  std::vector<TokenType> types;     // by id
  std::vector<std::string> merges;  // "LEFT RIGHT", best first
  std::optional<TokenId> bos;
  std::vector<TokenId> end_ids;  // end of text, of turn, of message: any ends an answer
  bool add_bos = false;          // a plain prompt (no template) starts with bos
};

// Part of a text, and who wrote it.
struct Fragment {
  std::string text;
  bool trusted = false;  // a template or the program; not a person
};

class Tokenizer {
 public:
  static absl::StatusOr<Tokenizer> Create(const TokenizerData& data);

  // `parse_special`: control markers in the text become their tokens.  Never adds bos.
  absl::StatusOr<std::vector<TokenId>> Encode(absl::string_view text, bool parse_special) const;
  absl::StatusOr<std::vector<TokenId>> Encode(absl::Span<const Fragment> fragments) const;

  // The bytes of a token; not always whole characters, and none for an id out of range.
  absl::string_view Bytes(TokenId id) const {
    return Has(id) ? absl::string_view(bytes_[id]) : absl::string_view();
  }
  bool Has(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < bytes_.size(); }
  // A marker, which is no part of an answer's text.
  bool IsControl(TokenId id) const { return Has(id) && control_[id]; }
  // The token whose marker is exactly `text`.
  std::optional<TokenId> MarkerId(absl::string_view text) const { return markers_.Exactly(text); }

  uint32_t size() const { return static_cast<uint32_t>(bytes_.size()); }
  std::optional<TokenId> bos() const { return bos_; }
  bool add_bos() const { return add_bos_; }
  // Ids that end an answer, ascending.
  const std::vector<TokenId>& end_ids() const { return end_ids_; }
  bool IsEnd(TokenId id) const;

 private:
  using Ranges = std::vector<std::pair<size_t, size_t>>;
  Tokenizer() = default;
  absl::Status ReadTokens(const TokenizerData& data);
  absl::Status ReadMerges(const TokenizerData& data);
  void ReadWholePieces(const TokenizerData& data);
  absl::StatusOr<std::vector<TokenId>> EncodeTrusting(absl::string_view text,
                                                      const Ranges& trusted) const;

  struct Scratch;
  // Text without markers.
  void EncodePlain(absl::string_view text, Scratch& scratch, std::vector<TokenId>& ids) const;

  PreTokenizer pre_tokenizer_ = PreTokenizer::kGpt2;
  std::vector<std::string> bytes_;       // by id
  std::vector<bool> control_;            // by id
  std::array<TokenId, 256> byte_ids_{};  // the token of one byte; -1: none
  BpeMerges merges_;
  absl::flat_hash_map<std::string, TokenId> whole_pieces_;  // by bytes; empty if merging decides
  MarkerTrie markers_;
  std::optional<TokenId> bos_;
  bool add_bos_ = false;
  std::vector<TokenId> end_ids_;
};

}  // namespace baton::text
