#include "runtime/serve/window_fill.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace hearth {

WindowFill FillWindow(const WindowFillRule& rule, uint32_t decoding_count) {
  HEARTH_CHECK(rule.rows_max >= 1 && decoding_count >= 1);
  WindowFill fill{.sequence_count = std::min(decoding_count, rule.rows_max)};
  if (decoding_count > rule.drafting_sequences_max) {
    // A pass of the MTP layer for each sequence and window: a few are worth the drafts to come.
    fill.keeps_drafting = decoding_count <= 2 * rule.drafting_sequences_max;
    return fill;
  }
  const uint32_t rows_left = rule.rows_max - fill.sequence_count;
  fill.drafts = std::min(rule.drafts_max, rows_left / fill.sequence_count);
  if (fill.drafts < rule.drafts_max) fill.extra_count = rows_left % fill.sequence_count;
  return fill;
}

}  // namespace hearth
