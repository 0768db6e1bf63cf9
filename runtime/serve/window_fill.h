// Who gets the rows of the next window: a row for each of as many sequences as there are rows, then
// drafts, while few decode.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hearth {

struct WindowFillRule {
  uint32_t rows_max = 1;                // of a window
  uint32_t drafts_max = 0;              // of a sequence
  uint32_t drafting_sequences_max = 1;  // more decode without drafts
};

struct WindowFill {
  uint32_t sequence_count = 0;  // the first so many of those that wait take part
  // Each of them may have this many drafts, and the first `extra_count` one more.
  uint32_t drafts = 0;
  uint32_t extra_count = 0;
  // The MTP layer goes on reading even where there are no drafts, so that there can be some again.
  bool keeps_drafting = true;
  uint32_t drafts_of(uint32_t index) const { return drafts + (index < extra_count ? 1 : 0); }
  bool operator==(const WindowFill&) const = default;
};

// For `decoding_count` sequences, at least one.
WindowFill FillWindow(const WindowFillRule& rule, uint32_t decoding_count);

}  // namespace hearth
