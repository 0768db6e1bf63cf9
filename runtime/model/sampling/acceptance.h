// Which tokens of a window are kept. A window has T rows: row 0 is the last emitted token,
// rows 1..T-1 are drafts, and the logits of row j are the model's for the token after row j.
//
// The rule: at each row the sampler makes its own choice, with the history and the random number of
// that position, just as it would without drafts; the choice is emitted; the window goes on while
// the next draft equals it. Nothing in the output depends on the drafts, so it is token for token
// what decoding one row at a time gives, greedy or sampled, with any penalty and any window length.
//
// It is also as good as rejection sampling. A draft d from the draft model's argmax is a point mass
// q; rejection sampling keeps d with probability min(1, p(d) / q(d)) = p(d) and otherwise draws
// from max(p - q, 0) normalised, which is p given "not d". Choosing s from p and keeping d when s
// == d keeps it with probability p(d), and given a refusal s follows p given "not d": the same law
// and the same acceptance, with one random number instead of two.
#pragma once

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/model/sampling/finish_reason.h"
#include "runtime/model/sampling/sampler.h"

namespace hearth {

struct Acceptance {
  uint32_t token_count = 0;  // emitted, from the front of the caller's `emitted`
  // Rows whose state the sequence keeps: row 0 and the accepted drafts. Equal to token_count: each
  // row kept emits one token, and the last one emitted is row 0 of the next window. So neither a
  // stop token nor anything after it enters the sequence state.
  uint32_t commit_row_count = 0;
  FinishReason finish = FinishReason::kNone;  // kStop when the last token is a stop token
};

struct WindowRows {
  std::span<const std::span<const float>> logits;  // [T][vocab_count]
  // [T][sampler.largest_needed()], see SampleLargest(): in place of logits, which are empty then.
  std::span<const std::span<const TopLogit>> largest;
  std::span<const TokenId> drafts;  // [T - 1]
  uint32_t token_budget = 0;  // output tokens that the request may still emit; 0 emits nothing
};

// Emits 1 to T tokens into `emitted` (at least T long) and pushes them to `sampler`, whose history
// ends with row 0. Stops at a stop token (which is emitted, as the last) and at the budget; at the
// token where both apply the reason is kStop. A draft that is a stop token counts for nothing by
// itself. On an error `sampler` is as it was.
absl::StatusOr<Acceptance> AcceptWindow(const WindowRows& rows, Sampler& sampler,
                                        std::span<TokenId> emitted);

// For a stop that only the text shows (a stop string): the same window cut after `token_count_kept`
// tokens, in [1, acceptance.token_count], with reason kStop. `sampler` forgets the rest.
Acceptance CutAcceptance(const Acceptance& acceptance, uint32_t token_count_kept, Sampler& sampler);

}  // namespace hearth
