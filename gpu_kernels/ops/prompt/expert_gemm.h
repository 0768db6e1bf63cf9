// Routed NVFP4 experts over the rows of a prompt on tensor cores: y = down(quantise(silu(gate(x)) *
// up(x))) for a list of experts, each with the rows that chose it. Blobs:
// pack/format/expert_layout.h.
//
// Arithmetic: canonical (cpu_kernels/ops/expert.h), the bits of every other implementation. A
// tensor core multiplies fp16 weights with their E4M3 scales in them (six significant bits) by int8
// activations as fp16, over one sub-block of 16: all products are multiples of one power of two and
// their sum is below 2^24 of it, so the sum is exact in whatever order it is formed. One fma by the
// activation's scale adds it to the segment's accumulator; that this is the canonical fma is what
// cpu_kernels/ops/activation.h restricts scales for. It holds for scales below 2^112; larger ones,
// of activations above 2^118, may overflow where the canonical order does not.
//
// Bound by the fp32 pipe: four fma of 32 lanes for 2,048 products, next to the decoding of weights,
// which the columns of a tile share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/expert_ffn.h"
#include "pack/format/expert_layout.h"

namespace hearth {

// Whose kernels multiply: warps (every card), or warpgroups (compute capability 9.0, in a build for
// it). The same bits.
enum class ExpertGemmKind : uint8_t { kWarp, kWarpgroup };
ExpertGemmKind ExpertGemmKindFor(const GpuLimits& gpu);

// Columns (rows of x) of one block of threads, by class of kernel.
inline constexpr uint32_t kGemmClassColumns[] = {16, 32, 48, 64, 80, 96, 112, 128};
inline constexpr uint32_t kGemmClassCount = 8;
inline constexpr uint32_t kGemmWarpColumnsMax = 96;  // of kWarp: more would not stay in registers
inline constexpr uint32_t kGemmClassStep = kGemmClassColumns[0];

// Up to kGemmClassColumns[class] entries of one expert.
struct ExpertGemmTile {
  uint32_t item = 0;
  uint32_t entry_begin = 0;
  uint32_t columns = 0;
};

// Where each class begins among tiles that lie by class, and where the last one ends.
using ExpertGemmClasses = std::array<uint32_t, kGemmClassCount + 1>;

// Tiles of all items, those of one class after the other.
struct ExpertGemmTiles {
  std::vector<ExpertGemmTile> tiles;
  ExpertGemmClasses class_begin = {};
};

// Shared memory of a block of threads of a class, of kWarp.
uint32_t ExpertGemmSharedBytes(uint32_t gemm_class);
// Columns of the largest class that such kernels have, on this card; 0: it has shared memory for
// none.
uint32_t ExpertGemmColumnsMax(ExpertGemmKind kind, const GpuLimits& gpu);

// Cuts every item into the fewest tiles of at most `columns_max`, of nearly equal columns. Tiles
// count items from the first of `items`. Pure; reuses the vector's memory.
void CutExpertGemm(std::span<const ExpertFfnItem> items, uint32_t columns_max,
                   ExpertGemmTiles& tiles);
// Tiles of `item_count` experts with `entry_count` rows together, at most.
uint64_t ExpertGemmTileBound(uint64_t item_count, uint64_t entry_count, uint32_t columns_max);

struct ExpertGemmDesc {
  ExpertGemmKind kind = ExpertGemmKind::kWarp;
  ExpertLayout layout;       // kNvfp4
  uint32_t row_count = 0;    // of x
  uint32_t entry_count = 0;  // of all experts together, at most
};

// Workspace: x of every row and h of every entry as fp16, each with their scales.
struct ExpertGemmPlan {
  uint64_t x_scale_offset_bytes = 0;  // x itself starts at 0
  uint64_t h_offset_bytes = 0;
  uint64_t h_scale_offset_bytes = 0;
  uint64_t workspace_bytes = 0;
};

// Blocks of 32 values from row to row of x or h of `cols` values: whole stages of the kernels.
uint32_t ExpertGemmPitchBlocks(uint32_t cols);
// InvalidArgument names what does not fit.
absl::StatusOr<ExpertGemmPlan> PlanExpertGemm(const ExpertGemmDesc& desc);

// Device addresses, valid until the stream has passed the launch.
struct ExpertGemmRowsArgs {
  const int8_t* q = nullptr;  // x as QuantizedRows: (row_count, hidden up to 32)
  const float* scale = nullptr;
  std::byte* workspace = nullptr;  // workspace_bytes, 256-byte aligned
};
struct ExpertGemmArgs {
  const ExpertFfnItem* items = nullptr;
  const ExpertFfnEntry* entries = nullptr;  // x_row below row_count
  const ExpertGemmTile* tiles = nullptr;    // as CutExpertGemm() made them
  float* y = nullptr;                       // rows named by the entries, row stride y_stride
  uint32_t y_stride = 0;
  std::byte* workspace = nullptr;
};

// Both enqueue and return. First the rows, once for any number of calls of the other...
absl::Status LaunchExpertGemmRows(const ExpertGemmDesc& desc, const ExpertGemmPlan& plan,
                                  const ExpertGemmRowsArgs& args, CudaStreamView stream);
// ...then the two products of the experts whose tiles, by `classes`, are args.tiles.
absl::Status LaunchExpertGemm(const ExpertGemmDesc& desc, const ExpertGemmPlan& plan,
                              const ExpertGemmClasses& classes, const ExpertGemmArgs& args,
                              CudaStreamView stream);

}  // namespace hearth
