// Who waits for which expert, and in which order experts are to be read: demand first come, first
// served, per class; lookahead behind it, the latest hints only. Bookkeeping only: the owner locks.
// Allocates nothing after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/store/ram_blocks.h"
#include "runtime/base/ids.h"

namespace hearth {

// Askers that wait at one time; a prompt pass of eight engines over a layer of 512 is 4,096.
inline constexpr uint32_t kAskersMax = 1u << 14;
// Hints that wait at one time: two layers of a wide window.
inline constexpr uint32_t kHintsMax = 256;

class AskQueue {
 public:
  // `class_keys`: how many experts each class has.
  AskQueue(uint32_t key_count, const std::vector<uint32_t>& class_keys);

  // One more asker of `key`. False when there are too many; `arrival` is untouched then.
  bool AddAsker(uint32_t key, RamBlocks::Arrival& arrival);
  bool asked(uint32_t key) const { return first_asker_[key] != kNone; }
  // Appends the askers of `key` to `out`, first come first.
  void TakeAskers(uint32_t key, std::vector<RamBlocks::Arrival>& out);

  // Puts `key`, which has been asked for, in line to be read, unless it is there already.
  void PushDemand(uint32_t cls, uint32_t key, int64_t now_ns);
  // Those that are no longer asked for drop out by themselves.
  struct Demand {
    uint32_t key = 0;
    int64_t since_ns = 0;
  };
  bool FrontDemand(uint32_t cls, Demand* out);
  void PopDemand(uint32_t cls);
  bool demand_empty() const { return demand_count_ == 0; }

  // A hint replaces the oldest when there are too many.
  void PushHint(uint32_t key);
  bool PopHint(uint32_t* key);
  void ClearHints() { hint_count_ = 0; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Asker {
    RamBlocks::Arrival arrival;
    uint32_t next = kNone;
  };
  struct Line {  // a ring of keys
    std::vector<uint32_t> entries;
    uint32_t begin = 0;
    uint32_t count = 0;
  };

  std::vector<uint32_t> first_asker_, last_asker_;  // by key
  std::vector<uint8_t> in_line_;                    // by key
  std::vector<int64_t> since_ns_;                   // by key: since when it is asked for
  std::vector<Asker> askers_;
  uint32_t free_asker_ = 0;
  std::vector<Line> lines_;  // by class
  uint32_t demand_count_ = 0;
  std::vector<uint32_t> hints_;  // a ring
  uint32_t hint_begin_ = 0;
  uint32_t hint_count_ = 0;
};

}  // namespace hearth
