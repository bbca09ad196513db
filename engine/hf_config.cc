// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// config.json under GGUF's keys.  Ranges are checked by whoever reads the keys; here, only
// what GGUF has no key for.
#include <cmath>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "engine/hf_folder.h"
#include "engine/hf_json.h"
#include "engine/model_loader.h"

namespace baton::engine {
namespace {

using nlohmann::json;

constexpr uint64_t kHeadDimMax = 1024;

absl::Status Refused(absl::string_view what) { return absl::InvalidArgumentError(what); }

// What Hugging Face calls a model, and GGUF.
struct Family {
  absl::string_view model_type;
  absl::string_view architecture;
};
constexpr Family kFamilies[] = {
    {"llama", "llama"}, {"mistral", "llama"}, {"qwen2", "qwen2"}, {"qwen3", "qwen3"}};

absl::StatusOr<std::string> Architecture(const json& config) {
  ASSIGN_OR_RETURN(const auto type, JsonString(config, "model_type"));
  if (!type.has_value()) return Refused("\"model_type\" is missing");
  for (const Family& family : kFamilies) {
    if (*type == family.model_type) return std::string(family.architecture);
  }
  return Refused(absl::StrCat("model_type '", absl::CHexEscape(type->substr(0, 80)),
                              "'; Baton runs: llama, mistral, qwen2, qwen3"));
}

// Switches that change the computation in a way that the forward pass does not know.
absl::Status CheckSwitches(const json& config) {
  ASSIGN_OR_RETURN(const auto activation, JsonString(config, "hidden_act"));
  if (activation.has_value() && *activation != "silu") {
    return Refused(absl::StrCat("hidden_act '", absl::CHexEscape(activation->substr(0, 80)),
                                "'; Baton runs silu"));
  }
  ASSIGN_OR_RETURN(const auto window, JsonUnsigned(config, "sliding_window"));
  ASSIGN_OR_RETURN(const auto use_window, JsonBool(config, "use_sliding_window"));
  ASSIGN_OR_RETURN(const auto context, JsonUnsigned(config, "max_position_embeddings"));
  // A window that holds the whole context is none.
  if (window.has_value() && use_window.value_or(true) && *window < context.value_or(0)) {
    return Refused(absl::StrCat("a sliding window of ", *window,
                                "; Baton runs models whose layers see everything"));
  }
  if (config.contains("quantization_config")) {
    return Refused("\"quantization_config\": Baton runs F32, F16 and BF16 safetensors, or GGUF");
  }
  return absl::OkStatus();
}

// One number of a scaling, which must be there and positive.
absl::StatusOr<double> Positive(const json& scaling, const char* key) {
  ASSIGN_OR_RETURN(const auto value, JsonNumber(scaling, key));
  if (!value.has_value() || !(*value > 0) || !std::isfinite(*value)) {
    return Refused(absl::StrCat("RoPE scaling: \"", key, "\" is missing or not positive"));
  }
  return *value;
}

// Llama 3's: high frequencies stay, low ones are divided by `factor`, a ramp in between.
absl::Status Llama3Factors(const json& scaling, double theta, uint64_t rope_dims,
                           std::vector<float>& factors) {
  ASSIGN_OR_RETURN(const double factor, Positive(scaling, "factor"));
  ASSIGN_OR_RETURN(const double low, Positive(scaling, "low_freq_factor"));
  ASSIGN_OR_RETURN(const double high, Positive(scaling, "high_freq_factor"));
  ASSIGN_OR_RETURN(const double original, Positive(scaling, "original_max_position_embeddings"));
  if (low >= high) return Refused("RoPE scaling: low_freq_factor is not below high_freq_factor");
  for (uint64_t i = 0; i < rope_dims / 2; ++i) {
    const double frequency =
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(rope_dims));
    const double turns = original * frequency / (2 * M_PI);  // in the original context
    double divisor = 1;
    if (turns < low) {
      divisor = factor;
    } else if (turns <= high) {
      const double smooth = (turns - low) / (high - low);
      divisor = 1 / ((1 - smooth) / factor + smooth);
    }
    factors.push_back(static_cast<float>(divisor));
  }
  return absl::OkStatus();
}

// RoPE's base and scaling: two top-level members, or one object in newer files.
absl::Status ReadRope(const json& config, const std::string& prefix, uint64_t head_dim,
                      MetadataWriter& out, std::vector<float>& factors) {
  ASSIGN_OR_RETURN(const json* scaling, JsonObject(config, "rope_scaling"));
  ASSIGN_OR_RETURN(const json* parameters, JsonObject(config, "rope_parameters"));
  if (scaling == nullptr) scaling = parameters;
  ASSIGN_OR_RETURN(auto theta, JsonNumber(config, "rope_theta"));
  if (!theta.has_value() && parameters != nullptr) {
    ASSIGN_OR_RETURN(theta, JsonNumber(*parameters, "rope_theta"));
  }
  if (theta.has_value()) out.Number(prefix + "rope.freq_base", *theta);
  ASSIGN_OR_RETURN(const auto part, JsonNumber(config, "partial_rotary_factor"));
  if (part.value_or(1) != 1) return Refused("\"partial_rotary_factor\": only 1 is supported");
  if (scaling == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(auto type, JsonString(*scaling, "rope_type"));
  if (!type.has_value()) {
    ASSIGN_OR_RETURN(type, JsonString(*scaling, "type"));
  }
  const std::string kind = type.value_or("default");
  if (kind == "default") return absl::OkStatus();
  if (kind != "llama3") {
    return Refused(absl::StrCat("RoPE scaling '", absl::CHexEscape(kind.substr(0, 80)),
                                "'; Baton knows llama3"));
  }
  return Llama3Factors(*scaling, theta.value_or(10000), head_dim, factors);
}

}  // namespace

absl::Status ReadConfig(const json& config, MetadataWriter& out, std::vector<float>& rope_factors) {
  ASSIGN_OR_RETURN(const std::string architecture, Architecture(config));
  RETURN_IF_ERROR(CheckSwitches(config));
  const std::string prefix = architecture + ".";
  out.String("general.architecture", architecture);
  const struct {
    const char* from;
    const char* to;
  } dimensions[] = {
      {"num_hidden_layers", "block_count"},
      {"hidden_size", "embedding_length"},
      {"intermediate_size", "feed_forward_length"},
      {"max_position_embeddings", "context_length"},
      {"num_attention_heads", "attention.head_count"},
      {"num_key_value_heads", "attention.head_count_kv"},
      {"vocab_size", "vocab_size"},
  };
  for (const auto& dimension : dimensions) {
    ASSIGN_OR_RETURN(const auto value, JsonUnsigned(config, dimension.from));
    if (value.has_value()) {
      out.Unsigned(prefix + dimension.to, *value);
    } else if (std::string(dimension.from) != "num_key_value_heads") {
      return Refused(absl::StrCat("\"", dimension.from, "\" is missing"));
    }
  }
  ASSIGN_OR_RETURN(const auto hidden, JsonUnsigned(config, "hidden_size"));
  ASSIGN_OR_RETURN(const auto heads, JsonUnsigned(config, "num_attention_heads"));
  ASSIGN_OR_RETURN(const auto head_dim, JsonUnsigned(config, "head_dim"));
  if (head_dim.has_value()) {
    out.Unsigned(prefix + "attention.key_length", *head_dim);
    out.Unsigned(prefix + "attention.value_length", *head_dim);
  }
  const uint64_t rotated = head_dim.value_or(*heads == 0 ? 0 : *hidden / *heads);
  if (rotated > kHeadDimMax) return Refused(absl::StrCat("heads of ", rotated, " elements"));
  ASSIGN_OR_RETURN(const auto epsilon, JsonNumber(config, "rms_norm_eps"));
  if (!epsilon.has_value()) return Refused("\"rms_norm_eps\" is missing");
  out.Number(prefix + "attention.layer_norm_rms_epsilon", *epsilon);
  out.Bool(kRopeInterleavedKey, false);
  return ReadRope(config, prefix, rotated, out, rope_factors);
}

}  // namespace baton::engine
