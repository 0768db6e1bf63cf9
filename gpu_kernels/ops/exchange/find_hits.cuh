// What the card takes of a layer by itself, found in its own table (card_claims.h): entries of one
// expert, wherever they stand, become items of at most kExpertRowsMax rows, in the order of their
// first entries.
#pragma once

#include "gpu_kernels/ops/exchange/layer_words.cuh"

namespace hearth {

// Where that is found.
struct HitSearch {
  const uint64_t* table;  // of the layer; null: the host finds the hits
  uint32_t ranks;
  ListTarget target;
};

// What the threads of a block know of each other's entries.
struct HitScratch {
  alignas(16) uint32_t expert[kExchangeEntriesMax];  // then kNoExpert up to a multiple of 4
  uint16_t begin[kExchangeEntriesMax];   // first entry of the item that this entry leads
  uint8_t streams[kExchangeEntriesMax];  // whether the expert that this entry begins is streamed
  uint32_t warp_total[kExchangeEntriesMax / 32];
};
inline constexpr uint32_t kNoExpert = UINT32_MAX;

// Where an entry stands among those of its expert, in order.
struct SameExpert {
  uint32_t before = 0;  // entries before it
  uint32_t count = 0;   // of all
  uint32_t first = 0;   // of all
  uint32_t leader = 0;  // the entry that begins its item, of at most kExpertRowsMax
};
__device__ inline SameExpert FindSameExpert(const uint32_t* experts, uint32_t entry,
                                            uint32_t entry_count) {
  SameExpert same;
  same.first = entry;
  const uint32_t id = experts[entry];
  const auto* quads = reinterpret_cast<const uint4*>(experts);
#pragma unroll 4
  for (uint32_t quad = 0; quad < (entry_count + 3) / 4; ++quad) {
    const uint4 four = quads[quad];
    const uint32_t other[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
      const uint32_t at = quad * 4 + i;
      const bool equal = other[i] == id;
      same.count += equal ? 1 : 0;
      same.before += equal && at < entry ? 1 : 0;
      same.first = equal ? min(same.first, at) : same.first;
    }
  }
  same.leader = same.first;
  // Beyond the rows of one item, which is rare: walk to the first of its own.
  for (uint32_t skip = same.before / kExpertRowsMax * kExpertRowsMax; skip != 0; --skip) {
    do {
      ++same.leader;
    } while (experts[same.leader] != id);
  }
  return same;
}

// Sum of `value` over the threads before this one, and over all in *total. All threads call.
__device__ inline uint32_t SumBefore(uint32_t value, uint32_t* warp_total, uint32_t* total) {
  const uint32_t lane = threadIdx.x % 32;
  uint32_t sum = value;
  for (uint32_t step = 1; step < 32; step *= 2) {
    const uint32_t other = __shfl_up_sync(0xFFFFFFFFu, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) warp_total[threadIdx.x / 32] = sum;
  __syncthreads();
  uint32_t before = 0;
  *total = 0;
  for (uint32_t warp = 0; warp < blockDim.x / 32; ++warp) {
    if (warp < threadIdx.x / 32) before += warp_total[warp];
    *total += warp_total[warp];
  }
  return before + sum - value;
}

// Which of the missed experts are streamed, as ClaimFinder has it: leaves it in `scratch` for the
// entry that begins each. All threads call; `begins`: this thread's entry begins an expert, which
// the table has as `word`.
__device__ inline void ChooseStreams(bool begins, uint64_t word, CardState* state,
                                     HitScratch* scratch) {
  const bool misses = begins && (word == 0 || (word & kFromAfar) != 0);
  const bool readable = misses && word != 0;
  uint32_t total;  // missed experts in the upper half, those that can be read in the lower
  const uint32_t before =
      SumBefore((misses ? 1u << 16 : 0) + (readable ? 1 : 0), scratch->warp_total, &total);
  const uint32_t wanted = state->rule.count[min(total >> 16, StreamRule::kMissesMax)];
  const uint32_t streamed = min(min(wanted, state->streams_left), total & 0xFFFFu);
  if (begins) scratch->streams[threadIdx.x] = readable && (before & 0xFFFFu) < streamed ? 1 : 0;
  __syncthreads();  // also parts the reads of what is left from the write
  if (threadIdx.x == 0) state->streams_left -= streamed;
}

// One block with a thread for each entry; `id` is the expert of this thread's. Returns to all
// threads whether the host has something to compute.
__device__ inline bool FindHits(const HitSearch& search, uint32_t id, uint32_t entry_count,
                                HitScratch* scratch, CardState* state) {
  const uint32_t entry = threadIdx.x;
  const bool valid = entry < entry_count;
  const uint64_t word = valid ? search.table[id] : 0;
  if (entry < (entry_count + 3) / 4 * 4) scratch->expert[entry] = valid ? id : kNoExpert;
  __syncthreads();
  const SameExpert same =
      valid ? FindSameExpert(scratch->expert, entry, entry_count) : SameExpert{};
  ChooseStreams(valid && same.first == entry, word, state, scratch);
  const bool claimed = word != 0 && ((word & kFromAfar) == 0 || scratch->streams[same.first] != 0);
  const bool leads = claimed && same.leader == entry;
  const uint32_t rows = leads ? min(same.count - same.before, kExpertRowsMax) : 0;
  uint32_t total;  // items in the upper half, entries in the lower
  const uint32_t before = SumBefore(leads ? 1u << 16 | rows : 0, scratch->warp_total, &total);
  if (leads) {
    scratch->begin[entry] = static_cast<uint16_t>(before);
    search.target.items[before >> 16] = {
        .blob = reinterpret_cast<const std::byte*>(word & ~kFromAfar),
        .entry_begin = before & 0xFFFFu,
        .entry_count = rows};
  }
  __syncthreads();
  if (valid) {
    search.target.on_card[entry] = claimed ? 1 : 0;
    if (claimed) {
      search.target.entries[scratch->begin[same.leader] + same.before % kExpertRowsMax] = {
          .x_row = entry / search.ranks, .y_row = entry};
    }
  }
  const bool all_claimed = (total & 0xFFFFu) == entry_count;
  if (entry == 0) {
    *search.target.counts = {.items = total >> 16, .entries = total & 0xFFFFu};
    state->flags = all_claimed ? 0 : kListLateFollows | kListOutputsFollow;
  }
  return !all_claimed;
}

}  // namespace hearth
