// A set of numbers below a bound, as a tree of 64-bit words: insert, erase and the largest member
// in one word per level, four levels for 16 million numbers.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace hearth {

class IndexSet {
 public:
  explicit IndexSet(uint64_t bound) {
    do {
      bound = (bound + 63) / 64;
      levels_.emplace_back(bound == 0 ? 1 : bound);
    } while (bound > 1);
  }

  bool Contains(uint64_t index) const { return (levels_[0][index / 64] >> index % 64 & 1) != 0; }
  uint64_t count() const { return count_; }

  void Insert(uint64_t index) {  // not a member
    ++count_;
    for (std::vector<uint64_t>& level : levels_) {
      uint64_t& word = level[index / 64];
      const bool had_members = word != 0;
      word |= uint64_t{1} << index % 64;
      if (had_members) return;
      index /= 64;
    }
  }

  void Erase(uint64_t index) {  // a member
    --count_;
    for (std::vector<uint64_t>& level : levels_) {
      uint64_t& word = level[index / 64];
      word &= ~(uint64_t{1} << index % 64);
      if (word != 0) return;
      index /= 64;
    }
  }

  uint64_t Largest() const {  // of at least one
    uint64_t index = 0;
    for (std::size_t i = levels_.size(); i-- > 0;) {
      index = index * 64 + 63 - static_cast<uint64_t>(std::countl_zero(levels_[i][index]));
    }
    return index;
  }

 private:
  std::vector<std::vector<uint64_t>> levels_;  // bit i of a level: word i of the one below is not 0
  uint64_t count_ = 0;
};

}  // namespace hearth
