// Which part of the experts a block of threads and each of its warps has
// (gpu_kernels/ops/expert_ffn_stream.h), and what the kernel is told.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu_kernels/common/async_copy.cuh"
#include "gpu_kernels/ops/expert_ffn.h"
#include "gpu_kernels/ops/expert_ffn_stream.h"

namespace hearth {

// Division by a number that is known at launch; n * value < 2^32.
struct FfnDivisor {
  uint32_t value = 1;
  uint32_t reciprocal = 0;  // 2^32 / value, rounded up; 0 for 1

  static FfnDivisor Of(uint32_t value) {
    return {value,
            value == 1 ? 0 : static_cast<uint32_t>(((uint64_t{1} << 32) + value - 1) / value)};
  }
  __device__ uint32_t Divide(uint32_t n) const {
    return reciprocal == 0 ? n : __umulhi(n, reciprocal);
  }
};

inline constexpr uint32_t kGateUpPhase = 0;
inline constexpr uint32_t kDownPhase = 1;

struct FfnPhase {
  const int8_t* x_q;     // rows of cols rounded up to 32
  const float* x_scale;  // one for each 32
  uint32_t cols;         // reduction length
  uint32_t segments;
  uint32_t band_count;  // of each of its projections
  uint32_t band_bytes;
  FfnDivisor pairs;  // of a band
  uint32_t projection_offset_bytes[2];
};

struct FfnKernelArgs {
  const ExpertFfnItem* items;
  const uint32_t* item_count;  // or null: item_limit
  uint32_t item_limit;
  uint32_t rows_max;
  uint32_t multiplier_offset_bytes;  // of all projections, in the blob
  const ExpertFfnEntry* entries;
  FfnPhase phases[2];
  FfnDivisor grain_pairs;  // pairs of a grain
  FfnDivisor grains_per_item;
  FfnDivisor bands_per_item;  // of down
  FfnDivisor rows;            // rows_max
  FfnDivisor blocks;
  FfnDivisor warps;
  uint32_t grain_sum_floats;
  uint32_t grain_slots;  // for the sums of so many grains, 1 or 2
  int8_t* h_q;           // a row for each entry
  float* h_scale;
  float* y;
  uint32_t y_stride;
  uint32_t* done_entries;  // (item): h of one grain of one row, each
  uint32_t* done_blocks;
};

__device__ inline uint32_t FfnItemCount(const FfnKernelArgs& args) {
  return args.item_count == nullptr ? args.item_limit : min(*args.item_count, args.item_limit);
}

// Where the sums of a block's grain are, and the phase of that slot's barriers.
__device__ inline uint32_t FfnSumsSlot(const FfnKernelArgs& args, uint32_t grain) {
  return grain & (args.grain_slots - 1);
}
__device__ inline uint32_t FfnSumsPhase(const FfnKernelArgs& args, uint32_t grain) {
  return grain >> (args.grain_slots - 1) & 1;
}

// What a warp is to do in one round.
struct FfnJob {
  uint32_t item;
  uint32_t group;  // of the item: its grain, or its band of down
  uint32_t entry_begin;
  uint32_t rows;           // 0: nothing to multiply
  uint32_t pair;           // of the band
  uint32_t finish_before;  // grains of the block before this one may be finished by now
  uint8_t sums_slot;       // gate and up: of the grain
  uint8_t sums_phase;      // gate and up: of that slot's barriers
  uint8_t grain_band;      // gate and up: 2 * projection + band of the grain
  bool is_gate_up;
  bool is_first_of_grain;  // gate and up
  bool is_new;             // other rows of x, or another part of them, than in the round before
  bool ends;               // no round any more
  uint32_t sub_blocks;     // of the pair; 0: nothing to copy
  const std::byte* codes;
  const std::byte* scales;
  const std::byte* multipliers;
};
static_assert(sizeof(FfnJob) <= 64);

// What the warp that finishes a grain has to know of it.
struct FfnGrainHeader {
  uint32_t item;
  uint32_t grain;  // of the item
  uint32_t entry_begin;
  uint32_t rows;
  float multipliers[2];
};

// Shared memory behind the sums.
struct FfnControl {
  FfnJob jobs[kFfnWarpsMax][kFfnJobSlots];
  SharedBarrier posted[kFfnWarpsMax][kFfnJobSlots];  // the job
  SharedBarrier done[kFfnWarpsMax][kFfnJobSlots];
  SharedBarrier arrived[kFfnWarpsMax][kPairSlots];  // its pair
  SharedBarrier summed[kGrainSlotsMax];             // every pair of the grain
  SharedBarrier finished[kGrainSlotsMax];           // every row of x of the grain
  FfnGrainHeader headers[kGrainSlotsMax];
  uint32_t done_warps;

  // All threads of a block, kFfnWarpsMax * kFfnJobSlots at least.
  __device__ void Init(uint32_t thread, uint32_t grain_pairs, uint32_t rows_max) {
    if (thread < kFfnWarpsMax * kFfnJobSlots) {
      (&posted[0][0])[thread].Init(1);
      (&done[0][0])[thread].Init(1);
    }
    if (thread < kFfnWarpsMax * kPairSlots) (&arrived[0][0])[thread].Init(kCopyArrivals);
    if (thread < kGrainSlotsMax) {
      summed[thread].Init(grain_pairs);
      finished[thread].Init(rows_max);
    }
    if (thread == 0) done_warps = 0;
    PublishBarriers();
  }
};
static_assert(sizeof(FfnControl) <= kFfnControlBytes);

// What one block of threads has of all items' grains and of all items' bands of down: consecutive
// ones, and together an equal number of pairs.
struct FfnShare {
  uint32_t first_grain;
  uint32_t grains;
  uint32_t first_band;
  uint32_t bands;

  __device__ static FfnShare Of(const FfnKernelArgs& args, uint32_t items) {
    const uint32_t block = blockIdx.x;
    const uint32_t blocks = args.blocks.value;
    const uint32_t all_grains = items * args.grains_per_item.value;
    const uint32_t base = args.blocks.Divide(all_grains);
    const uint32_t more = all_grains - base * blocks;  // so many blocks have one grain more
    FfnShare share;
    share.first_grain = block * base + min(block, more);
    share.grains = base + (block < more ? 1 : 0);
    // In pairs: what an equal part of everything leaves for down to those with a grain more.
    const uint32_t band_pairs = args.phases[kDownPhase].pairs.value;
    const uint32_t all_bands = items * args.bands_per_item.value;
    const uint32_t grain_pairs = args.grain_pairs.value;
    const uint32_t equal =
        args.blocks.Divide(all_grains * grain_pairs + all_bands * band_pairs + blocks - 1);
    const uint32_t taken = (base + 1) * grain_pairs;
    const uint32_t left = args.phases[kDownPhase].pairs.Divide(equal > taken ? equal - taken : 0);
    const uint32_t bands_of_more = min(all_bands, left * more);
    if (block < more) {
      share.first_band = min(all_bands, left * block);
      share.bands = min(left, all_bands - share.first_band);
    } else {
      const uint32_t rest = all_bands - bands_of_more;
      const uint32_t each = rest / (blocks - more);
      const uint32_t odd = rest - each * (blocks - more);
      share.first_band = bands_of_more + (block - more) * each + min(block - more, odd);
      share.bands = each + (block - more < odd ? 1 : 0);
    }
    return share;
  }
};

// The rounds of one warp: the pairs of the block's grains go round the warps; then its bands of
// down do, with all pairs of a band in one warp.
class FfnWalk {
 public:
  __device__ FfnWalk(const FfnKernelArgs& args, const FfnShare& share, uint32_t warp)
      : args_(args) {
    const uint32_t warps = args.warps.value;
    const uint32_t pairs = share.grains * args.grain_pairs.value;
    gate_up_rounds_ = RoundsOf(pairs, warp);
    const uint32_t from = pairs - args.warps.Divide(pairs) * warps;
    const uint32_t down_place = warp >= from ? warp - from : warp + warps - from;
    first_band_ = share.first_band + down_place;
    rounds_ =
        gate_up_rounds_ + RoundsOf(share.bands, down_place) * args.phases[kDownPhase].pairs.value;
    if (gate_up_rounds_ == 0) {
      EnterDown();
      return;
    }
    ordinal_ = args.grain_pairs.Divide(warp);
    part_ = warp - ordinal_ * args.grain_pairs.value;
    const uint32_t grain = share.first_grain + ordinal_;
    item_ = args.grains_per_item.Divide(grain);
    group_ = grain - item_ * args.grains_per_item.value;
  }

  // The round that the walk stands at.
  __device__ uint32_t round() const { return round_; }
  __device__ bool ends() const { return round_ == rounds_; }
  __device__ bool is_gate_up() const { return round_ < gate_up_rounds_; }
  __device__ uint32_t item() const { return item_; }
  __device__ uint32_t group() const { return group_; }      // of the item: grain, or band of down
  __device__ uint32_t ordinal() const { return ordinal_; }  // gate and up: grain of the block
  __device__ uint32_t part() const { return part_; }  // pair of the grain, or of the band of down

  __device__ void Advance() {
    ++round_;
    if (round_ == gate_up_rounds_) {
      EnterDown();
    } else if (is_gate_up()) {
      for (part_ += args_.warps.value; part_ >= args_.grain_pairs.value;) {
        part_ -= args_.grain_pairs.value;
        ++ordinal_;
        if (++group_ == args_.grains_per_item.value) {
          group_ = 0;
          ++item_;
        }
      }
    } else if (++part_ == args_.phases[kDownPhase].pairs.value) {
      part_ = 0;
      for (group_ += args_.warps.value; group_ >= args_.bands_per_item.value;) {
        group_ -= args_.bands_per_item.value;
        ++item_;
      }
    }
  }

 private:
  __device__ uint32_t RoundsOf(uint32_t count, uint32_t place) const {
    return count > place ? args_.warps.Divide(count - place + args_.warps.value - 1) : 0;
  }
  __device__ void EnterDown() {
    item_ = args_.bands_per_item.Divide(first_band_);
    group_ = first_band_ - item_ * args_.bands_per_item.value;
    part_ = 0;
  }

  const FfnKernelArgs& args_;
  uint32_t gate_up_rounds_;
  uint32_t first_band_;
  uint32_t rounds_;
  uint32_t round_ = 0;
  uint32_t item_;
  uint32_t group_;
  uint32_t ordinal_ = 0;
  uint32_t part_;
};

// The warp that plans the rounds of the others: lane w for warp w.
class FfnPoster {
 public:
  __device__ FfnPoster(const FfnKernelArgs& args, uint32_t items, FfnControl* control)
      : FfnPoster(args, FfnShare::Of(args, items), control) {}

  __device__ void Run() {
    bool is_done = lane_ >= args_.warps.value;
    for (uint32_t naps = 0; __any_sync(kAllLanes, !is_done);) {
      const uint32_t slot = walk_.round() % kFfnJobSlots;
      const bool posts =
          !is_done && control_->done[lane_][slot].Has(walk_.round() / kFfnJobSlots % 2 ^ 1);
      if (!__any_sync(kAllLanes, posts)) {
        if (++naps == kNapsMax) __trap();
        __nanosleep(kNapNs);
        continue;
      }
      naps = 0;
      if (!posts) continue;
      FfnJob* job = &control_->jobs[lane_][slot];
      if (walk_.ends()) {
        job->ends = true;
        job->sub_blocks = 0;
        job->finish_before = grains_;
        is_done = true;
      } else {
        Post(job);
      }
      control_->posted[lane_][slot].Arrive();
      walk_.Advance();
    }
  }

 private:
  static constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
  static constexpr uint32_t kNone = ~0u;
  static constexpr uint32_t kNapNs = 100;
  static constexpr uint32_t kNapsMax = 1u << 23;

  __device__ FfnPoster(const FfnKernelArgs& args, const FfnShare& share, FfnControl* control)
      : args_(args),
        lane_(threadIdx.x % 32),
        control_(control),
        grains_(share.grains),
        walk_(args, share, lane_) {}

  __device__ void Post(FfnJob* job) {
    const bool is_gate_up = walk_.is_gate_up();
    const FfnPhase& phase = args_.phases[is_gate_up ? kGateUpPhase : kDownPhase];
    uint32_t grain_band = 0;
    uint32_t pair = walk_.part();
    uint32_t band = walk_.group();
    if (is_gate_up) {
      grain_band = phase.pairs.Divide(pair);
      pair -= grain_band * phase.pairs.value;
      band = band * 2 + grain_band % 2;
    }
    if (walk_.item() != item_index_) {
      item_index_ = walk_.item();
      item_ = args_.items[item_index_];
    }
    const uint32_t rows = min(item_.entry_count, args_.rows_max);
    // The last grain may lack its second band.
    const bool has_work = rows > 0 && band < phase.band_count;
    const uint32_t lag = args_.grain_slots - 1;
    const uint32_t x_key = (item_index_ * 2 + is_gate_up) * kFfnPairsMax + pair;
    const uint32_t all = phase.cols / kNvfp4BlockValues;
    const std::byte* from = item_.blob + phase.projection_offset_bytes[grain_band / 2] +
                            size_t{band} * phase.band_bytes;
    *job = {.item = item_index_,
            .group = walk_.group(),
            .entry_begin = item_.entry_begin,
            .rows = has_work ? rows : 0,
            .pair = pair,
            // With two slots, the grain before this job's may still be on its way in other warps.
            .finish_before = is_gate_up ? max(walk_.ordinal(), lag) - lag : grains_,
            .sums_slot = static_cast<uint8_t>(FfnSumsSlot(args_, walk_.ordinal())),
            .sums_phase = static_cast<uint8_t>(FfnSumsPhase(args_, walk_.ordinal())),
            .grain_band = static_cast<uint8_t>(grain_band),
            .is_gate_up = is_gate_up,
            .is_first_of_grain = walk_.part() == 0,
            .is_new = x_key != x_key_,
            .ends = false,
            .sub_blocks = has_work ? min(kPairSubBlocks, all - pair * kPairSubBlocks) : 0,
            .codes = from + pair * kPairCodeBytes,
            .scales = from + all * kSubBlockCodeBytes + pair * kPairScaleBytes,
            .multipliers = item_.blob + args_.multiplier_offset_bytes};
    if (has_work) x_key_ = x_key;
  }

  const FfnKernelArgs& args_;
  uint32_t lane_;
  FfnControl* control_;
  uint32_t grains_;  // of the block
  FfnWalk walk_;
  uint32_t item_index_ = kNone;
  ExpertFfnItem item_ = {};
  uint32_t x_key_ = kNone;
};

}  // namespace hearth
