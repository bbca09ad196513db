// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

#include "decode_worker/step_pace.h"

#include <algorithm>
#include <cmath>

#include "base/ensure.h"
#include "base/ids.h"

namespace baton::decode {
namespace {

// Sequences come, go and grow within tens of steps; one step says little.
constexpr double kUsualMemory = 1.0 / 16;
// A step that was held up from outside is no news of the usual one.
constexpr double kOutlier = 2;
constexpr double kPromptMemory = 7.0 / 8;
constexpr uint32_t kNoLimit = 1u << 30;

}  // namespace

StepPace::StepPace(uint32_t percent) : stretch_((percent - 100.0) / 100) { ENSURE(percent > 100); }

void StepPace::Took(uint32_t decoding, uint32_t prompt_tokens, absl::Duration took) {
  took = std::max(took, absl::ZeroDuration());
  if (prompt_tokens > 0) {
    // Fewer rows than usual take less, on some devices in proportion.
    const double part = usual_rows_ > 0 ? std::min(1.0, decoding / usual_rows_) : 0;
    const absl::Duration alone = std::min(part * usual_, took);
    prompt_seconds_ = kPromptMemory * prompt_seconds_ + absl::ToDoubleSeconds(took - alone);
    prompt_tokens_ = kPromptMemory * prompt_tokens_ + prompt_tokens;
  } else if (usual_ == absl::ZeroDuration()) {
    usual_ = took;
    usual_rows_ = decoding;
  } else {
    usual_ += kUsualMemory * (std::min(took, kOutlier * usual_) - usual_);
    usual_rows_ += kUsualMemory * (decoding - usual_rows_);
  }
}

uint32_t StepPace::PromptTokensMax() const {
  if (usual_ == absl::ZeroDuration() || prompt_tokens_ == 0) return kBlockTokens;
  const double tokens =
      stretch_ * absl::ToDoubleSeconds(usual_) * prompt_tokens_ / std::max(prompt_seconds_, 1e-9);
  return static_cast<uint32_t>(std::clamp(std::round(tokens), 1.0, double{kNoLimit}));
}

}  // namespace baton::decode
