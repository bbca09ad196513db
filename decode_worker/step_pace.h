// SPDX-FileCopyrightText: Baton developers
// SPDX-License-Identifier: Apache-2.0

// How many prompt tokens a step carries beside running sequences: as many as keep it from
// taking much longer than a step without.
//
// Every running sequence waits for the whole step, so a prompt computed in one piece beside
// them is a gap in each of their streams.  What a prompt token costs depends on the model, the
// device and what else runs there, so it is measured: the usual duration of steps without
// prompts, and what prompts added to steps that had some.  A prompt's share of the time is then
// the same whatever the batch is, and it always progresses.
//
// Pure: durations are handed in, so that it is tested as a function.
#pragma once

#include <cstdint>

#include "absl/time/time.h"

namespace baton::decode {

class StepPace {
 public:
  // A step with prompts may take `percent` of the usual one; above 100.
  explicit StepPace(uint32_t percent);

  // A step with so many decoding rows and prompt tokens took this long.
  void Took(uint32_t decoding, uint32_t prompt_tokens, absl::Duration took);

  // The most that the next step should carry beside decoding rows; at least 1.  A block's worth
  // as long as nothing is known.
  uint32_t PromptTokensMax() const;

 private:
  const double stretch_;   // of the usual step, by prompts
  absl::Duration usual_;   // zero: not known
  double usual_rows_ = 0;  // of those steps
  // Of recent prompt tokens, older ones counting less: what they added, and their number.
  double prompt_seconds_ = 0;
  double prompt_tokens_ = 0;
};

}  // namespace baton::decode
