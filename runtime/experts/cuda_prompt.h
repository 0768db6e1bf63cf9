// A prompt's NVFP4 experts on a card, by the product on tensor cores: lists of experts with any
// number of rows, which become tiles of the kernels. Enqueues only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/ops/gpu_expert_io.h"
#include "gpu_kernels/ops/prompt/expert_gemm.h"
#include "pack/format/expert_layout.h"
#include "runtime/plan/window_plan.h"

namespace hearth {

// Passes of fewer rows are left to the kernels of windows, which decode a weight once for eight
// rows where this product does for a tile of at least sixteen. A layer's 512 experts on an H200,
// us: 664 and 761 for 256 rows, 1117 and 772 for 512.
inline constexpr uint32_t kCudaPromptRowsMin = 320;

class CudaPrompt {
 public:
  struct Shape {
    uint32_t rows_max = 0;  // of one pass
    uint32_t ranks = 0;
  };
  // Whether such passes ever need it, on such a card.
  static bool IsNeeded(std::span<const ExpertLayout> layouts, const GpuLimits& limits,
                       const Shape& shape);
  // Device memory of one.
  static absl::StatusOr<uint64_t> BufferBytes(std::span<const ExpertLayout> layouts,
                                              const GpuLimits& limits, const Shape& shape);
  // `gpu` and `io`, of the backend on the same card, outlive it.
  static absl::StatusOr<std::unique_ptr<CudaPrompt>> Create(std::span<const ExpertLayout> layouts,
                                                            const GpuInfo& gpu,
                                                            const GpuExpertIo& io,
                                                            const Shape& shape);

  bool Takes(LayerId layer, uint32_t rows) const {
    return rows >= kCudaPromptRowsMin && rows <= shape_.rows_max &&
           layouts_[layer.value].format == ExpertFormat::kNvfp4;
  }
  // A new layer of a pass of so many rows, once the card has passed the one before.
  void Begin(LayerId layer, const WindowPlan& plan, uint32_t rows);
  // A list: experts, each with the place where the card reads its blob, in parts that are launched
  // apart. Lists of one layer do not share experts.
  void BeginList();
  void Add(const WindowPlan& plan, uint32_t index, const std::byte* blob);
  void EndPart();
  absl::Status PutList();  // what the list says goes to the card
  // Computes part `part` of the list.
  absl::Status Launch(uint32_t part);

 private:
  struct Part {
    uint32_t tile_begin = 0;
    ExpertGemmClasses class_begin = {};
  };
  // Items, entries and tiles of a layer, in pinned memory and at the same offsets on the card.
  struct ListPlaces {
    uint64_t entries_offset_bytes = 0;
    uint64_t tiles_offset_bytes = 0;
    uint64_t bytes = 0;
    uint64_t tile_count = 0;
  };
  static ListPlaces PlaceLists(const Shape& shape, const GpuLimits& limits);
  static absl::StatusOr<uint64_t> WorkspaceBytes(std::span<const ExpertLayout> layouts,
                                                 const Shape& shape);

  CudaPrompt(std::span<const ExpertLayout> layouts, const GpuInfo& gpu, const GpuExpertIo& io,
             const Shape& shape);
  absl::Status Allocate();
  template <class T>
  absl::Status Put(uint64_t offset_bytes, std::span<const T> all, uint32_t begin, uint32_t end);

  const std::vector<ExpertLayout> layouts_;
  const GpuInfo& gpu_;
  const GpuExpertIo& io_;
  const Shape shape_;
  const ListPlaces places_;
  std::optional<PinnedBuffer> pinned_;
  std::optional<DeviceBuffer> lists_;
  std::optional<DeviceBuffer> workspace_;
  std::span<ExpertFfnItem> items_;  // pinned, for all lists of a layer
  std::span<ExpertFfnEntry> entries_;
  std::span<ExpertGemmTile> tiles_;
  ExpertGemmTiles cut_;  // of the part at hand

  // Of the layer at hand: how much of each array there is, and how much the card has.
  struct Counts {
    uint32_t items = 0;
    uint32_t entries = 0;
    uint32_t tiles = 0;
  };
  LayerId layer_;
  uint32_t rows_ = 0;
  ExpertGemmKind kind_ = ExpertGemmKind::kWarp;
  bool rows_ready_ = false;  // as the product reads them
  Counts made_;
  Counts sent_;
  uint32_t part_item_begin_ = 0;
  std::vector<Part> parts_;  // of the list at hand
};

}  // namespace hearth
