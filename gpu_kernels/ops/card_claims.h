// What a card takes of a layer by itself: the experts that its table has in slots, and of the
// others some that it reads over the link. Host and card find the same by the rules below, so that
// neither waits for the other; ops/exchange/find_hits.cuh is the card's side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hearth {

// An entry of the card's table: the address of an expert in VRAM; with kFromAfar the card's address
// of it in host memory; 0: the card cannot read it.
inline constexpr uint64_t kFromAfar = 1;

// How many of a layer's missed experts the card streams: `count` by the number of distinct experts
// that are not in slots (more than kMissesMax: as the last), of those that it can read the ones
// that come first among the layer's entries.
struct StreamRule {
  static constexpr uint32_t kMissesMax = 127;
  uint32_t experts_max = 0;  // of one window
  uint32_t unused = 0;
  uint8_t count[kMissesMax + 1] = {};
  bool operator==(const StreamRule&) const = default;
};
static_assert(sizeof(StreamRule) == 136);  // whole words of the exchange

// Who computes an entry (row, rank) of a layer.
enum class EntryClaim : uint8_t {
  kHost,     // whoever the host says
  kSlot,     // the card, out of a slot
  kStreamed  // the card, over the link
};

// The host's side. Allocates at creation only. One thread at a time.
class ClaimFinder {
 public:
  ClaimFinder(uint32_t expert_count, uint32_t entries_max);

  void BeginWindow(const StreamRule& rule);
  // Once for each layer of the window in order. `table`: the layer's (expert_count) entries.
  // `expert` (rows * ranks), each below expert_count. Result: the claim of each, until the next
  // call.
  std::span<const EntryClaim> Find(std::span<const uint64_t> table,
                                   std::span<const uint32_t> expert);
  bool all_claimed() const { return all_claimed_; }  // of the last: nothing is left to the host

 private:
  StreamRule rule_;
  uint32_t streams_left_ = 0;      // of the window
  uint32_t layer_count_ = 0;       // found so far; marks `seen_`
  std::vector<uint32_t> seen_;     // by expert: last layer that had it
  std::vector<uint32_t> ordinal_;  // by expert: its place among those that can be streamed
  std::vector<EntryClaim> claims_;
  bool all_claimed_ = false;
};

}  // namespace hearth
