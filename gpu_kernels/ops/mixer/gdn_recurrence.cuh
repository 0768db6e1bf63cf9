// The recurrence of the delta rule on eight columns of one head's state, which a warp keeps in
// registers: sixteen lanes to a column, no barrier between rows. A warp issues in order and few
// share a scheduler, so that latency counts: a row's operands are loaded during the row before, and
// the sums over the lanes of its two products go side by side.
#pragma once

#include <cstdint>

#include "gpu_kernels/ops/mixer/row_vectors.cuh"

namespace hearth {

inline constexpr uint32_t kWarpColumns = 8;

// Lane l holds rows (l / 2) * kKeyRows ... of the state, columns (l % 2) * 4 ... of the warp's
// eight.
template <uint32_t kKeyRows>
struct StateTile {
  float4 of[kKeyRows];
};

// One row in shared memory.
struct RowInputs {
  const float* k;
  const float* q;  // null: the row is pending, only the state is wanted
  const float* v;  // of the warp's eight columns
  const float* decay;
  const float* beta;
  const float* query_key;  // q . k
};

// The same as a lane needs it.
template <uint32_t kKeyRows>
struct LaneRow {
  float key[kKeyRows];
  float query[kKeyRows];
  float4 value;  // of the lane's columns
  float decay;
  float beta;
  float query_key;
};

// The lane's rows of a key or query, 16-byte aligned.
template <uint32_t kKeyRows>
__device__ inline void LoadKeys(const float* from, uint32_t lane, float (&values)[kKeyRows]) {
  if constexpr (kKeyRows == 2) {
    const float2 two = reinterpret_cast<const float2*>(from)[lane / 2];
    values[0] = two.x;
    values[1] = two.y;
  } else {
#pragma unroll
    for (uint32_t i = 0; i < kKeyRows; i += 4) {
      const float4 four = LoadVector(from, (lane / 2 * kKeyRows + i) / 4);
      values[i] = four.x;
      values[i + 1] = four.y;
      values[i + 2] = four.z;
      values[i + 3] = four.w;
    }
  }
}

template <uint32_t kKeyRows, bool kWithQuery>
__device__ inline LaneRow<kKeyRows> LoadRow(const RowInputs& from, uint32_t lane) {
  LaneRow<kKeyRows> row;
  LoadKeys<kKeyRows>(from.k, lane, row.key);
  if (kWithQuery) LoadKeys<kKeyRows>(from.q, lane, row.query);
  row.value = LoadVector(from.v, lane % 2);
  row.decay = *from.decay;
  row.beta = *from.beta;
  row.query_key = kWithQuery ? *from.query_key : 0.0f;
  return row;
}

template <uint32_t kKeyRows>
__device__ inline float4 TimesState(const StateTile<kKeyRows>& s, const float (&x)[kKeyRows]) {
  float4 acc = {0, 0, 0, 0};
#pragma unroll
  for (uint32_t i = 0; i < kKeyRows; ++i) {
    acc = {__fmaf_rn(s.of[i].x, x[i], acc.x), __fmaf_rn(s.of[i].y, x[i], acc.y),
           __fmaf_rn(s.of[i].z, x[i], acc.z), __fmaf_rn(s.of[i].w, x[i], acc.w)};
  }
  return acc;
}

// The column of the warp's eight whose output the lane has.
__device__ inline uint32_t ColumnOf(uint32_t lane) {
  return (lane & 1) * 4 + (lane & 16) / 8 + (lane & 8) / 8;
}

__device__ inline float ShuffleXor(float v, uint32_t bit) {
  return __shfl_xor_sync(kAllWarpLanes, v, bit);
}
__device__ inline float4 AddAcross(float4 v, uint32_t bit) {
  const float4 other = {ShuffleXor(v.x, bit), ShuffleXor(v.y, bit), ShuffleXor(v.z, bit),
                        ShuffleXor(v.w, bit)};
  return {v.x + other.x, v.y + other.y, v.z + other.z, v.w + other.w};
}

// Sums over the sixteen lanes of each column: of `read` all four to every lane, of `out` that of
// ColumnOf(lane).
struct ColumnSums {
  float4 read;
  float out;
};
template <bool kWithQuery>
__device__ inline ColumnSums SumOverLanes(float4 read, float4 out, uint32_t lane) {
  const bool upper16 = (lane & 16) != 0;
  const bool upper8 = (lane & 8) != 0;
  if (!kWithQuery) {
    for (const uint32_t bit : {16u, 8u, 4u, 2u}) read = AddAcross(read, bit);
    return {read, 0.0f};
  }
  const float sent0 = ShuffleXor(upper16 ? out.x : out.z, 16);
  const float sent1 = ShuffleXor(upper16 ? out.y : out.w, 16);
  read = AddAcross(read, 16);
  const float half0 = (upper16 ? out.z : out.x) + sent0;
  const float half1 = (upper16 ? out.w : out.y) + sent1;
  const float sent = ShuffleXor(upper8 ? half0 : half1, 8);
  read = AddAcross(read, 8);
  float column = (upper8 ? half1 : half0) + sent;
  const float four = ShuffleXor(column, 4);
  read = AddAcross(read, 4);
  column = column + four;
  const float two = ShuffleXor(column, 2);
  read = AddAcross(read, 2);
  return {read, column + two};
}

// One row of the recurrence. With a query, returns the output of column ColumnOf(lane), from the
// state before the row: q (decay S + k d) = decay (q S) + (q . k) d.
template <uint32_t kKeyRows, bool kWithQuery>
__device__ inline float RunRow(const LaneRow<kKeyRows>& row, uint32_t lane,
                               StateTile<kKeyRows>* s) {
  const float4 read_part = TimesState(*s, row.key);
  float4 out_part = {0, 0, 0, 0};
  if (kWithQuery) out_part = TimesState(*s, row.query);
  const float decay = row.decay;
#pragma unroll
  for (uint32_t i = 0; i < kKeyRows; ++i) {
    s->of[i] = MapVector(s->of[i], [decay](float v) { return __fmul_rn(decay, v); });
  }
  const ColumnSums sums = SumOverLanes<kWithQuery>(read_part, out_part, lane);
  const float beta = row.beta;
  const float4 d = MapVector(row.value, sums.read, [decay, beta](float v, float read) {
    return __fmul_rn(beta, __fsub_rn(v, __fmul_rn(decay, read)));
  });
#pragma unroll
  for (uint32_t i = 0; i < kKeyRows; ++i) {
    const float key = row.key[i];
    s->of[i] = MapVector(d, s->of[i], [key](float x, float v) { return __fmaf_rn(key, x, v); });
  }
  const float d01 = (lane & 8) != 0 ? d.y : d.x;
  const float d23 = (lane & 8) != 0 ? d.w : d.z;
  const float own = (lane & 16) != 0 ? d23 : d01;
  return __fmaf_rn(row.query_key, own, __fmul_rn(decay, sums.out));
}

}  // namespace hearth
