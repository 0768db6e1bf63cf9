// What one warp of gpu_kernels/ops/expert_ffn_stream.h does from the first of its rounds to the
// last.
//
// Who waits for whom. A grain's sums are written by all warps that have a pair of it, and each of
// its rows is finished by one warp, before that warp writes sums of a later grain; a grain's place
// for sums is free when the last grain that had it is finished. So every wait is for earlier
// grains alone. Down waits for h that other blocks of threads finish before they wait for anything
// of other blocks: all blocks must be resident, and are, as one fits each multiprocessor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu_kernels/common/arithmetic.cuh"
#include "gpu_kernels/ops/expert_ffn_stream_multiply.cuh"
#include "gpu_kernels/ops/expert_ffn_stream_walk.cuh"

namespace hearth {

// About three seconds of looking at a counter: an error of the launch instead of a hang.
inline constexpr uint32_t kFfnLooksMax = 1u << 20;

// One output before its multiplier: the segments in order, `stride` floats apart.
__device__ inline float SumInOrder(const float* sums, uint32_t segments, uint32_t stride) {
  float total = *sums;
  for (uint32_t s = 1; s < segments; ++s) total = __fadd_rn(total, sums[s * stride]);
  return total;
}

// kRows: of x, at most.
template <int kRows>
class FfnWarp {
 public:
  // `shared` is laid out as expert_ffn_stream.h says.
  __device__ FfnWarp(const FfnKernelArgs& args, std::byte* shared, FfnControl* control)
      : args_(args), warp_(threadIdx.x / 32), shared_(shared), control_(control), duty_(warp_) {}

  __device__ void Run() {
    FfnX x;
    AskFor(0);
    for (uint32_t round = 0;; ++round) {
      // Read from shared memory wherever it is used: registers are for x and the products.
      const FfnJob& job = control_->jobs[warp_][round % kFfnJobSlots];
      FinishGrainsBefore(job.finish_before);
      if (job.ends) break;
      if (job.is_new) {
        if (!job.is_gate_up) AwaitHidden(job);
        if (job.rows > 0) LoadX(job, &x);
      }
      control_->arrived[warp_][round % kPairSlots].Wait(round / kPairSlots % 2);
      AskFor(round + 1);
      FfnSums<kRows> sums;
      if (job.rows > 0) {
        sums = MultiplyFfnPair<kRows>(SlotOf(round), Stage(), Lane(), x);
      }
      const auto* multipliers =
          reinterpret_cast<const float*>(SlotOf(round) + kPairCodeBytes + kPairScaleBytes);
      if (job.is_gate_up) {
        PutSums(job, sums);
        PassGrain(job, multipliers);
      } else {
        FinishDown(job, multipliers[2], sums);
      }
      __syncwarp();
      if (Lane() == 0) control_->done[warp_][round % kFfnJobSlots].Arrive();
    }
    Leave();
  }

 private:
  __device__ static uint32_t Lane() { return FfnLaneIndex(); }
  __device__ std::byte* SlotOf(uint32_t round) const {
    return shared_ + warp_ * kWarpRingBytes + round % kPairSlots * kPairBytes;
  }
  // Has the pair of a round copied, whose slot has been read.
  __device__ void AskFor(uint32_t round) {
    control_->posted[warp_][round % kFfnJobSlots].Wait(round / kFfnJobSlots % 2);
    __syncwarp();
    const FfnJob& job = control_->jobs[warp_][round % kFfnJobSlots];
    std::byte* to = SlotOf(round);
    const CopyRange ranges[] = {
        {to, job.codes, job.sub_blocks * kSubBlockCodeBytes},
        {to + kPairCodeBytes, job.scales, job.sub_blocks * kSubBlockScaleBytes},
        {to + kPairCodeBytes + kPairScaleBytes, job.multipliers,
         job.sub_blocks == 0 ? 0 : kMultiplierBytes}};
    CopyAhead(ranges, &control_->arrived[warp_][round % kPairSlots]);
  }
  __device__ std::byte* Stage() const {
    return shared_ + args_.warps.value * kWarpRingBytes + warp_ * kFfnXStageBytes;
  }
  __device__ uint32_t* YRows() const {
    return reinterpret_cast<uint32_t*>(Stage() + kFfnXStageLineBytes + kFfnXStageScaleBytes);
  }
  __device__ float* GrainSums(uint32_t slot) const {
    return reinterpret_cast<float*>(shared_ + args_.warps.value * kFfnWarpBytes) +
           slot * args_.grain_sum_floats;
  }

  // Until every grain of every row of the item's h is written.
  __device__ void AwaitHidden(const FfnJob& job) const {
    const uint32_t complete = args_.grains_per_item.value * job.rows;
    uint32_t looks = 0;
    while (LoadRelaxed(args_.done_entries + job.item) < complete) {
      if (++looks == kFfnLooksMax) __trap();
    }
    FenceAcquire();
  }

  __device__ void LoadX(const FfnJob& job, FfnX* x) {
    const uint32_t lane = Lane();
    const FfnPhase& phase = args_.phases[job.is_gate_up ? kGateUpPhase : kDownPhase];
    const ExpertFfnEntry* entries = args_.entries + job.entry_begin;
    if (!job.is_gate_up && lane < job.rows) YRows()[lane] = entries[lane].y_row;
    LoadFfnX<kRows>(
        phase.x_q, phase.x_scale, phase.cols, job.pair, lane, job.rows,
        [&](uint32_t t) { return job.is_gate_up ? entries[t].x_row : job.entry_begin + t; },
        Stage(), x);
  }

  // A pair of gate or up into the sums of its grain.
  __device__ void PutSums(const FfnJob& job, const FfnSums<kRows>& sums) {
    const uint32_t lane = Lane();
    control_->finished[job.sums_slot].Wait(job.sums_phase ^ 1);
    const uint32_t segments = args_.phases[kGateUpPhase].segments;
    const FfnLane place = Columns::SumPlace(lane);
    const uint32_t segment = job.pair * 2 + place.segment;
    float* to = GrainSums(job.sums_slot) +
                (job.grain_band * segments + segment) * args_.rows_max * kBandRows + place.p * 2;
#pragma unroll
    for (int i = 0; i < Columns::kLaneRows; ++i) {
      const uint32_t t = Columns::SumRow(lane, i);
      if (segment < segments && t < job.rows) {
        *reinterpret_cast<float2*>(to + t * kBandRows) = {sums.of[i][0], sums.of[i][1]};
      }
    }
  }

  // The warp's pair of the grain is in the sums.
  __device__ void PassGrain(const FfnJob& job, const float* multipliers) {
    const uint32_t lane = Lane();
    const uint32_t slot = job.sums_slot;
    if (job.is_first_of_grain && lane == 0) {
      control_->headers[slot] = {
          job.item, job.group, job.entry_begin, job.rows, {multipliers[0], multipliers[1]}};
    }
    __syncwarp();
    if (lane == 0) control_->summed[slot].Arrive();
  }

  // This warp's rows of the grains of the block before `end`. All rows of all grains, as many for
  // each grain, go round the warps.
  __device__ void FinishGrainsBefore(uint32_t end) {
    for (;; duty_ += args_.warps.value) {
      const uint32_t grain = args_.rows.Divide(duty_);
      if (grain >= end) return;
      const uint32_t slot = FfnSumsSlot(args_, grain);
      control_->summed[slot].Wait(FfnSumsPhase(args_, grain));
      const FfnGrainHeader& header = control_->headers[slot];
      const uint32_t t = duty_ - grain * args_.rows_max;
      if (t < header.rows) FinishGrain(header, t, GrainSums(slot));
      __syncwarp();
      if (Lane() == 0) control_->finished[slot].Arrive();
    }
  }

  // SwiGLU and the quantisation of 32 values of h.
  __device__ void FinishGrain(const FfnGrainHeader& header, uint32_t t, const float* sums) const {
    const uint32_t lane = Lane();
    const FfnPhase& phase = args_.phases[kGateUpPhase];
    const uint32_t stride = args_.rows_max * kBandRows;  // of segments
    const uint32_t band = lane / kBandRows;
    const bool valid = header.grain * 2 + band < phase.band_count;
    float h = 0;
    if (valid) {
      const float* gate_sums =
          sums + band * phase.segments * stride + t * kBandRows + lane % kBandRows;
      const float* up_sums = gate_sums + 2 * phase.segments * stride;
      const float gate =
          __fmul_rn(SumInOrder(gate_sums, phase.segments, stride), header.multipliers[0]);
      const float up =
          __fmul_rn(SumInOrder(up_sums, phase.segments, stride), header.multipliers[1]);
      h = __fmul_rn(SiluOf(gate), up);
    }
    const QuantizedLane quantized = QuantizeLane(h, valid);
    const size_t at = size_t{header.entry_begin + t} * args_.grains_per_item.value + header.grain;
    args_.h_q[at * kActivationBlockValues + lane] = static_cast<int8_t>(quantized.q);
    if (lane == 0) args_.h_scale[at] = quantized.scale;
    __syncwarp();
    if (lane == 0) AddRelease(args_.done_entries + header.item, 1);
  }

  // A pair of a band of down. What the pairs before it came to stands in y.
  __device__ void FinishDown(const FfnJob& job, float multiplier,
                             const FfnSums<kRows>& sums) const {
    const uint32_t lane = Lane();
    constexpr uint32_t kAllLanes = 0xFFFFFFFFu;
    const FfnLane place = Columns::SumPlace(lane);
    const FfnPhase& phase = args_.phases[kDownPhase];
    const bool has_second = job.pair * 2 + 1 < phase.segments;
    const bool is_last = job.pair + 1 == phase.pairs.value;
#pragma unroll
    for (int i = 0; i < Columns::kLaneRows; ++i) {
      asm volatile("" ::: "memory");
      const bool writes = place.segment == 0 && Columns::SumRow(lane, i) < job.rows;
      float* to = args_.y + size_t{YRows()[Columns::SumRow(lane, i)]} * args_.y_stride +
                  job.group * kBandRows + place.p * 2;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        // The same weight rows of the second segment, p ^ 4, in the other half of four lanes.
        const float second = __shfl_xor_sync(kAllLanes, sums.of[i][r], 18);
        if (!writes) continue;
        float total = sums.of[i][r];
        if (job.pair > 0) total = __fadd_rn(to[r], total);
        if (has_second) total = __fadd_rn(total, second);
        to[r] = is_last ? __fmul_rn(total, multiplier) : total;
      }
    }
  }

  // The last warp of the last block to come here has nobody behind it who reads a counter.
  __device__ void Leave() {
    const uint32_t lane = Lane();
    uint32_t last = 0;
    if (lane == 0 && atomicAdd(&control_->done_warps, 1u) + 1 == args_.warps.value) {
      last = atomicAdd(args_.done_blocks, 1u) + 1 == gridDim.x ? 1 : 0;
    }
    if (__shfl_sync(0xFFFFFFFFu, last, 0) == 0) return;
    const uint32_t items = FfnItemCount(args_);
    for (uint32_t i = lane; i < items; i += 32) args_.done_entries[i] = 0;
    if (lane == 0) *args_.done_blocks = 0;
  }

  using Columns = FfnColumns<kRows>;

  const FfnKernelArgs& args_;
  uint32_t warp_;
  std::byte* shared_;
  FfnControl* control_;
  uint32_t duty_;  // next row to finish: rows_max * grain of the block + row of its item
};

}  // namespace hearth
