// The choice of a row's experts by one warp, its scores in the warp's registers: for the kernel of
// router.h, and for one that goes on with the routes.
#pragma once

#include <cstdint>

#include "gpu_kernels/ops/mixer/router.h"
#include "gpu_kernels/ops/mixer/row_vectors.cuh"

namespace hearth {

// Of the keys below.
constexpr uint32_t kTaken = 0;   // below every score
constexpr uint32_t kNanKey = 1;  // below every number and not taken

// Orders as the scores do, with -0 equal to +0.
__device__ inline uint32_t KeyOf(float score) {
  if (score != score) return kNanKey;
  const uint32_t bits = __float_as_uint(__fadd_rn(score, 0.0f));
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

__device__ inline float ScoreOf(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key & 0x7FFFFFFFu : ~key);
}

// By halves, so that few comparisons wait for each other.
template <uint32_t kCount>
__device__ inline uint32_t MostOf(const uint32_t* key) {
  if constexpr (kCount == 1) {
    return key[0];
  } else {
    return max(MostOf<kCount / 2>(key), MostOf<kCount / 2>(key + kCount / 2));
  }
}

// Larger is better: the score first, then the lower index. Keys of a warp's candidates, one a lane.
struct Candidate {
  uint32_t key;
  uint32_t expert;
};

// How many of the 32 lanes hold something better.
__device__ inline uint32_t RankAmongLanes(const Candidate& own) {
  uint32_t rank = 0;
#pragma unroll
  for (uint32_t i = 0; i < kWarpLanes; ++i) {
    const uint32_t key = __shfl_sync(kAllWarpLanes, own.key, i);
    const uint32_t expert = __shfl_sync(kAllWarpLanes, own.expert, i);
    rank += key > own.key || (key == own.key && expert < own.expert) ? 1 : 0;
  }
  return rank;
}

// Choice r in lane r, one after the other: the best of all, then the best of what is left.
template <uint32_t kPerLane>
__device__ inline Candidate ChooseOneByOne(uint32_t (&key)[kPerLane], uint32_t ranks) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  Candidate chosen = {kTaken, 0};
  for (uint32_t r = 0; r < ranks; ++r) {
    const uint32_t most = __reduce_max_sync(kAllWarpLanes, MostOf<kPerLane>(key));
    uint32_t ties = 0;  // bit i: key i of the lane
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) ties |= (key[i] == most ? 1u : 0u) << i;
    const uint32_t expert = __reduce_min_sync(
        kAllWarpLanes, ties != 0 ? (__ffs(ties) - 1) * kWarpLanes + lane : UINT32_MAX);
#pragma unroll
    for (uint32_t i = 0; i < kPerLane; ++i) {
      if (i * kWarpLanes + lane == expert) key[i] = kTaken;
    }
    if (lane == r) chosen = {most, expert};
  }
  return chosen;
}

// Choice r in lane r. The best of the ranks-th best lane bounds what can be chosen: what reaches it
// is compared all with all when it is no more than a warp has lanes.
template <uint32_t kPerLane>
__device__ inline Candidate Choose(uint32_t (&key)[kPerLane], uint32_t ranks, Candidate* room) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const Candidate best = {MostOf<kPerLane>(key), lane};
  const uint32_t holder = __ballot_sync(kAllWarpLanes, RankAmongLanes(best) == ranks - 1);
  const uint32_t bound = __shfl_sync(kAllWarpLanes, best.key, __ffs(holder) - 1);
  uint32_t count = 0;
#pragma unroll
  for (uint32_t i = 0; i < kPerLane; ++i) {
    const bool reaches = key[i] >= bound && key[i] != kTaken;
    const uint32_t lanes = __ballot_sync(kAllWarpLanes, reaches);
    const uint32_t at = count + __popc(lanes & ((1u << lane) - 1));
    if (reaches && at < kWarpLanes) room[at] = {key[i], i * kWarpLanes + lane};
    count += __popc(lanes);
  }
  __syncwarp();
  if (count > kWarpLanes || count < ranks) return ChooseOneByOne<kPerLane>(key, ranks);
  const Candidate own = lane < count ? room[lane] : Candidate{kTaken, kRouterExpertsMax + lane};
  const uint32_t rank = RankAmongLanes(own);
  __syncwarp();
  room[rank] = own;
  __syncwarp();
  return room[lane];
}

// What a warp has chosen: lane r the expert of rank r, and with what weight.
struct ChosenExpert {
  uint32_t expert;
  float weight;
};

// One warp, all lanes; `room` is its own (kWarpLanes). Leaves the row's routes where `args` says.
// Expert e lies in lane e % 32, at e / 32: kPerLane * 32 is at least expert_count.
template <uint32_t kPerLane>
__device__ inline ChosenExpert ChooseExperts(const GpuRouterArgs& args, uint32_t row,
                                             Candidate* room) {
  const uint32_t lane = threadIdx.x % kWarpLanes;
  const float* logits = args.logits + size_t{row} * args.expert_count;
  uint32_t key[kPerLane];
  bool nan = false;
#pragma unroll
  for (uint32_t i = 0; i < kPerLane; ++i) {
    const uint32_t e = i * kWarpLanes + lane;
    const float score = e < args.expert_count ? logits[e] : 0.0f;
    nan |= score != score;
    key[i] = e < args.expert_count ? KeyOf(score) : kTaken;
  }
  if (nan) *args.nan_flag = 1;
  const Candidate chosen = Choose<kPerLane>(key, args.ranks, room);
  const bool ranked = lane < args.ranks;
  const size_t to = size_t{row} * args.ranks + lane;
  if (ranked) args.expert[to] = chosen.expert;
  if (args.weight == nullptr) return {chosen.expert, 0.0f};
  const float score = ScoreOf(chosen.key);
  const float top = __shfl_sync(kAllWarpLanes, score, 0);
  const float value = ranked ? expf(__fsub_rn(score, top)) : 0.0f;
  float sum = 0;
  if (args.renormalise) {
    for (uint32_t r = 0; r < args.ranks; ++r) {
      sum = __fadd_rn(sum, __shfl_sync(kAllWarpLanes, value, r));
    }
  } else {
    for (uint32_t e = lane; e < args.expert_count; e += kWarpLanes) {
      sum = __fadd_rn(sum, expf(__fsub_rn(logits[e], top)));
    }
    sum = WarpSum(sum);
  }
  const float weight = __fdiv_rn(value, sum);
  if (ranked) args.weight[to] = weight;
  return {chosen.expert, weight};
}

}  // namespace hearth
