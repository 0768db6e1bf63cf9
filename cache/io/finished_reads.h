// Completions that wait to be handed out: a queue with room for a fixed number, so that nothing is
// allocated while reads run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "cache/io/reader.h"
#include "runtime/base/check.h"

namespace hearth {

class FinishedReads {
 public:
  explicit FinishedReads(size_t room_count) : reads_(room_count) {}

  size_t count() const { return count_; }
  void Push(ReadCompletion&& read) {
    HEARTH_CHECK(count_ < reads_.size());
    reads_[(first_ + count_) % reads_.size()] = std::move(read);
    ++count_;
  }
  ReadCompletion Pop() {
    HEARTH_CHECK(count_ > 0);
    ReadCompletion read = std::move(reads_[first_]);
    first_ = (first_ + 1) % reads_.size();
    --count_;
    return read;
  }
  // Moves as many as fit, oldest first; how many.
  size_t PopInto(std::span<ReadCompletion> out) {
    size_t n = 0;
    while (n < out.size() && count_ > 0) out[n++] = Pop();
    return n;
  }

 private:
  std::vector<ReadCompletion> reads_;
  size_t first_ = 0;
  size_t count_ = 0;
};

}  // namespace hearth
