// The XT encoder on a GPU: the same symbols as pack/quant/xt_trellis.h and the same error feedback
// as pack/quant/xt_encoder.h, bit for bit, for many matrices of one shape at a time.
//
// Blocks of columns are encoded from the last to the first, the streams of a block all at once:
//   gather   target of every weight of the block, with what the errors of later columns ask
//   search   one thread block per stream: a Viterbi pass around the wrap, then one around the
//            circle; metrics in shared memory, two u16 to an instruction
//   scatter  symbols to code bytes, and the errors they leave
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/gpu_info.h"
#include "pack/format/xt_code.h"
#include "pack/format/xt_layout.h"

namespace hearth {

inline constexpr uint32_t kXtGpuStepsMax = kXtGroupBandsMax * kXtStepsPerChunk;
inline constexpr uint32_t kXtGpuAgesMax = 8;

// A code as the kernels read it. A hash stands in a basis of its phase, chosen so that neighbouring
// threads read neighbouring rows of the spread errors: by hash, never by value, so any basis will
// do.
struct XtGpuTables {
  uint32_t bits = 0;
  uint32_t phase_count = 0;
  std::array<std::array<uint8_t, 16>, 8> dropped_hash{};                      // [phase][dropped]
  std::array<std::array<uint8_t, 16>, 8> lane_hash{};                         // [phase][state % 16]
  std::array<std::array<std::array<uint8_t, 4>, kXtGpuAgesMax>, 8> column{};  // [phase][age][bit]
  std::vector<uint8_t> row_hash;                                              // [phase][state / 16]
  std::vector<float> level;                                                   // [phase][hash]
};
// Pure. InvalidArgument when the window of the code is not one that the kernels are made for.
absl::StatusOr<XtGpuTables> MakeXtGpuTables(const XtCode& code);

class XtGpuEncoder {
 public:
  struct Job {
    std::span<const float> targets;   // (rows, cols) rotated weights in level units
    std::span<const float> feedback;  // factors of the blocks 0, 1, ...: (cols - 32 * (k + 1), 32)
                                      // each; empty: none
    std::span<std::byte> codes;       // shape.code_bytes(), written whole
    std::span<float> row_errors;      // (rows): squared errors in level units
  };

  // For at most `matrices_max` matrices of `shape` at a time. InvalidArgument when its streams are
  // too short; ResourceExhausted when the card has no room; Unimplemented without CUDA.
  static absl::StatusOr<std::unique_ptr<XtGpuEncoder>> Create(const GpuInfo& gpu,
                                                              const XtShape& shape,
                                                              uint32_t matrices_max);
  virtual ~XtGpuEncoder() = default;

  // Returns when the jobs are done. One thread at a time. Jobs that name the same feedback (the
  // same memory) share its copy.
  virtual absl::Status Encode(std::span<const Job> jobs) = 0;
};

}  // namespace hearth
