// What tokens are chosen from: the logits of a pass's rows, all of them or the largest where those
// suffice. Memory for the rows of one window, and one row for drafts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/ids.h"
#include "runtime/base/top_logit.h"
#include "runtime/engine/model_runner.h"

namespace hearth {

// Rows [begin, begin + count) of a pass, and how many of each row's largest logits suffice; 0: all.
struct HeadAsk {
  uint32_t begin = 0;
  uint32_t count = 0;
  uint32_t largest_needed = 0;
};

class HeadRows {
 public:
  // For at most `rows_max` rows at a time; `runner` outlives this.
  HeadRows(ModelRunner& runner, uint32_t rows_max);

  // How many largest logits can be told of a row at most; an ask for more needs all of them.
  uint32_t largest_max() const { return largest_max_; }

  // Reads rows of the pass at hand; begins anew, so the next Read() invalidates what this one gave.
  // Rows of asks that follow each other and want the same are read at once.
  absl::Status Read(std::span<const HeadAsk> asks);

  // Of the asks read, those of number `ask`: [count] rows of all logits, or else of
  // largest_needed; one of the two is empty.
  std::span<const std::span<const float>> logits(size_t ask) const;
  std::span<const std::span<const TopLogit>> largest(size_t ask) const;

  // The most likely token after `row` of a draft pass. What Read() gave stays.
  absl::StatusOr<TokenId> DraftChoice(uint32_t row);

 private:
  struct AskRows {
    uint32_t first = 0;  // of rows_, or of largest_rows_
    uint32_t count = 0;
    bool all = false;
  };
  absl::Status ReadRun(std::span<const HeadAsk> asks, uint32_t row_count);

  ModelRunner& runner_;
  uint32_t rows_max_ = 0;
  uint32_t largest_max_ = 0;
  uint32_t used_rows_ = 0;            // of memory, by the asks read so far
  std::vector<float> logits_memory_;  // where the backend has too little of its own
  std::span<float> logits_;           // (rows_max, vocab)
  std::span<float> draft_logits_;     // (vocab)
  std::vector<TopLogit> largest_;     // (rows_max, largest_max)
  std::vector<std::span<const float>> rows_;
  std::vector<std::span<const TopLogit>> largest_rows_;
  std::vector<AskRows> asks_;
};

}  // namespace hearth
