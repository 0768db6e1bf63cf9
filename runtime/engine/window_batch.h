// Windows of several sequences: drafts for each, one pass of the trunk over all their rows, one
// reading of the head, and each keeps what its own sampler chooses. The memory that a window needs
// is here and not in the generations.
//
// A row has the same bits in a window of any width, so what a generation emits does not depend on
// who else is in its windows, nor on how many drafts it is given.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/clock.h"
#include "runtime/engine/head_rows.h"
#include "runtime/engine/model_runner.h"

namespace hearth {

class Generation;

// One sequence's part in a window.
struct WindowShare {
  Generation* generation = nullptr;  // of the batch; has emitted a token and is not finished
  uint32_t drafts_max = 0;           // in this window; the request's own limit holds, too
  // False: the MTP layer reads no further, which saves its passes; there are no drafts from then
  // on.
  bool keeps_drafting = true;
  absl::Status status;  // out: of this generation; no other is touched by it
};

// Where the time of a batch's thread went, since it was made.
struct BatchTimes {
  int64_t pass_ns = 0;    // in passes, heads and commits: the model's work
  int64_t choose_ns = 0;  // choosing tokens and turning them into text
};

// Used by the thread that runs the passes alone.
class WindowBatch {
 public:
  // `runner` and `clock` outlive the batch, and the batch outlives the generations made with it.
  WindowBatch(ModelRunner& runner, Clock& clock);
  ~WindowBatch();
  WindowBatch(const WindowBatch&) = delete;
  WindowBatch& operator=(const WindowBatch&) = delete;

  uint32_t rows_max() const { return rows_max_; }  // of a window, over all its sequences

  // Runs one window. Each generation is there once, and the sum of 1 + drafts_max is at most
  // rows_max(). When the pass over all fails, each runs in one of its own, so that only those fail
  // that cannot go on. Allocates nothing while all goes well.
  void Run(std::span<WindowShare> shares);

  uint32_t last_rows() const { return last_rows_; }  // of the last window
  const BatchTimes& times() const { return times_; }

 private:
  friend class Generation;

  void DraftAll(std::span<WindowShare> shares);
  // One window of those in taking_part_[begin, end); errors are the pass's, not a generation's own.
  absl::Status RunPass(size_t begin, size_t end);
  void AcceptAll(size_t begin, size_t end);
  // Drops the rows of a pass that failed.
  void Abandon(size_t begin, size_t end);

  ModelRunner& runner_;
  Clock& clock_;
  uint32_t rows_max_ = 0;
  uint32_t last_rows_ = 0;
  HeadRows heads_;
  BatchTimes times_;
  std::vector<WindowShare*> taking_part_;
  std::vector<Segment> segments_;
  std::vector<RequestCounts> served_;
  std::vector<HeadAsk> asks_;
};

}  // namespace hearth
