// The dense tensors of a made-up model, straight in the bytes of dense.bin and mtp.bin: noise of
// the size that trained weights have, so that activations stay finite however long a text runs, and
// routers that choose as trained ones do: some experts often, most of them seldom, and much the
// same ones for a token and the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "pack/format/directory.h"
#include "pack/format/geometry.h"

namespace hearth {

// What the trunk (dense.bin) or the MTP head (mtp.bin) of the model holds, with the formats that
// `hearth pack build` gives by default: projections Q8_0, small and sensitive matrices BF16,
// vectors and convolutions fp32.
std::vector<TensorInfo> SyntheticDenseTensors(const ModelGeometry& geometry);
std::vector<TensorInfo> SyntheticMtpTensors(const ModelGeometry& geometry);

// A part of one tensor that is made on its own.
struct SyntheticRange {
  uint32_t tensor = 0;
  uint32_t row_begin = 0;  // Q8: a multiple of 16
  uint32_t row_count = 0;
};
inline constexpr uint64_t kSyntheticRangeBytes = uint64_t{4} << 20;  // a range has about that

// All tensors in ranges, in file order.
std::vector<SyntheticRange> SyntheticRanges(std::span<const TensorInfo> tensors);

// The values of one tensor, worked out once.
class SyntheticTensor {
 public:
  SyntheticTensor(const ModelGeometry& geometry, const TensorInfo& info, uint64_t seed);
  // The stored bytes of the range, padding rows included. Thread-safe.
  void Fill(const SyntheticRange& range, std::vector<std::byte>& out) const;

 private:
  float RowFactor(uint32_t row) const;
  void FillFloats(const SyntheticRange& range, std::vector<std::byte>& out) const;
  void FillBf16(const SyntheticRange& range, std::vector<std::byte>& out) const;
  void FillQ8(const SyntheticRange& range, std::vector<std::byte>& out) const;

  TensorInfo info_;
  uint64_t stream_ = 0;
  float center_ = 0;                     // of every value
  float deviation_ = 0;                  // around it
  uint32_t quiet_col_ = UINT32_MAX;      // from here on, convolutions are weak
  bool is_decay_ = false;                // A_log: logarithms of rates between 1 and 16
  bool is_step_ = false;                 // dt_bias: of time steps between 0.001 and 0.1
  std::vector<float> row_factors_ = {};  // empty: all 1
};

}  // namespace hearth
