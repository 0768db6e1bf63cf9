#include "runtime/model/sampling/acceptance.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

absl::StatusOr<Acceptance> AcceptWindow(const WindowRows& rows, Sampler& sampler,
                                        std::span<TokenId> emitted) {
  const size_t row_count = rows.logits.empty() ? rows.largest.size() : rows.logits.size();
  HEARTH_CHECK(row_count != 0 && rows.drafts.size() + 1 == row_count);
  HEARTH_CHECK(emitted.size() >= row_count);
  if (rows.token_budget == 0) return Acceptance{.finish = FinishReason::kLength};
  const uint32_t token_count_before = sampler.history().token_count();
  Acceptance result;
  for (size_t row = 0; row < row_count; ++row) {
    const absl::StatusOr<TokenId> chosen = rows.logits.empty()
                                               ? sampler.SampleLargest(rows.largest[row])
                                               : sampler.Sample(rows.logits[row]);
    if (!chosen.ok()) {
      sampler.PopTo(token_count_before);
      return chosen.status();
    }
    emitted[row] = *chosen;
    sampler.Push(*chosen);
    ++result.token_count;
    if (sampler.IsStopToken(*chosen)) {
      result.finish = FinishReason::kStop;
    } else if (result.token_count == rows.token_budget) {
      result.finish = FinishReason::kLength;
    }
    if (result.finish != FinishReason::kNone) break;
    if (row == rows.drafts.size() || rows.drafts[row] != *chosen) break;
  }
  result.commit_row_count = result.token_count;
  return result;
}

Acceptance CutAcceptance(const Acceptance& acceptance, uint32_t token_count_kept,
                         Sampler& sampler) {
  HEARTH_CHECK(token_count_kept >= 1);
  HEARTH_CHECK(token_count_kept <= acceptance.token_count);
  const uint32_t dropped = acceptance.token_count - token_count_kept;
  sampler.PopTo(sampler.history().token_count() - dropped);
  return {.token_count = token_count_kept,
          .commit_row_count = token_count_kept,
          .finish = FinishReason::kStop};
}

}  // namespace hearth
