// A card that computes NVFP4 and XT experts out of its slots. Either every call enqueues copies of
// a list and kernels on the backend's stream, so that what follows there finds the outputs; or, in
// a window that is a graph, kernels were recorded beforehand and compute what the card finds in its
// table, and what is in a later list if it takes one. What is streamed is then read over the link
// by the kernels that compute it: that takes as long as copies and needs no word of the host.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/exchange/window_exchange.h"
#include "gpu_kernels/ops/gpu_expert_io.h"
#include "pack/format/expert_layout.h"
#include "runtime/base/clock.h"
#include "runtime/experts/cuda_prompt.h"
#include "runtime/experts/cuda_slots.h"
#include "runtime/experts/expert_card.h"
#include "runtime/experts/expert_items.h"
#include "runtime/experts/stream_ring.h"

namespace hearth {

struct CudaCardOptions {
  uint32_t rows_max = 0;  // of one pass
  uint32_t ranks = 0;
  uint32_t expert_count = 0;         // of each layer
  uint32_t arrivals_max = 0;         // uploads into slots, of one layer
  bool takes_late = true;            // in recorded windows, which takes each layer some time
  int64_t wait_ns = 10'000'000'000;  // for the card to pass a layer
};

class CudaCard final : public ExpertCard, public GpuExpertRecorder {
 public:
  struct Deps {                             // all outlive the card
    std::span<const ExpertLayout> layouts;  // of each layer's experts; copied
    const CudaSlots& slots;
    const GpuInfo& gpu;
    const GpuExpertIo& io;  // of the backend on the same card
    Clock& clock;
  };
  // Takes device memory for lists, hidden rows and what is streamed: BufferBytes(). Unimplemented
  // in a build without CUDA, InvalidArgument for experts that are too large for the card's kernels.
  static absl::StatusOr<std::unique_ptr<CudaCard>> Create(const Deps& deps,
                                                          const CudaCardOptions& options);
  static absl::StatusOr<uint64_t> BufferBytes(std::span<const ExpertLayout> layouts,
                                              const GpuLimits& gpu, const CudaCardOptions& options);
  ~CudaCard() override;

  std::string_view name() const override { return name_; }
  bool Computes(LayerId layer, const ExpertRows& rows) const override;
  absl::Status Begin(LayerId layer, const WindowPlan& plan, const ExpertRows& rows,
                     std::span<const CardExpert> experts) override;
  bool FollowsRoutes() const override { return deps_.io.lists != nullptr && is_recorded_; }
  std::span<const EntryClaim> Claims(LayerId layer, std::span<const uint32_t> expert) override;
  bool TakesLate() const override { return options_.takes_late; }
  void SetSlot(ExpertKey key, SlotRef slot) override;
  void SetHostBytes(ExpertKey key, std::span<const std::byte> bytes) override;
  void SetStreamRule(const StreamRule& rule) override;
  bool Streams(std::span<const std::byte> bytes) const override;
  absl::Status Stream(std::span<const StreamedExpert> experts) override;
  void Arrive(const CardExpert& expert) override;
  absl::Status Finish() override;
  // Of a recorded window no times are known.
  absl::StatusOr<CardTimes> Retire() override;

  absl::Status RecordExperts(LayerId layer, uint32_t rows, const CardList& list) override;

 private:
  // Where a list lies in pinned memory and, at the same offset, on the card: numbers of items of
  // its parts, the items, the entries.
  struct ListPlace {
    uint64_t offset_bytes = 0;
    uint64_t bytes = 0;
  };
  // What one launch computes: items of a list on the card.
  struct Part {
    const uint32_t* item_count_word = nullptr;  // on the card; null: item_count of them
    const ExpertFfnItem* items = nullptr;       // on the card
    const ExpertFfnEntry* entries = nullptr;    // on the card, of this part
    uint32_t item_count = 0;                    // at most
    uint32_t entry_count = 0;                   // likewise
    uint32_t rows_max = 0;                      // of an item
  };
  struct WorkspaceBytes {  // the largest of any layer
    uint64_t nvfp4 = 0;
    uint64_t xt = 0;
  };
  static uint64_t ListBytes(uint64_t parts, uint64_t items, uint64_t entries);
  static absl::StatusOr<WorkspaceBytes> PlanWorkspaces(std::span<const ExpertLayout> layouts,
                                                       const GpuLimits& gpu,
                                                       const CudaCardOptions& options);
  static uint64_t BlobBytesMax(std::span<const ExpertLayout> layouts);
  static std::vector<ListPlace> PlaceLists(const CudaCardOptions& options, uint64_t* bytes);

  CudaCard(const Deps& deps, const CudaCardOptions& options);
  absl::Status Allocate();
  // With the mutex held. A list that is nobody's yet.
  void BeginList();
  // The items so far become a part of the list.
  void EndPart();
  // What is in items_ goes to the card, as list `list`; its parts are in parts_ then.
  absl::Status PutList(uint32_t list);
  absl::Status LaunchPart(uint32_t part);  // of the list at hand
  absl::Status Launch(LayerId layer, const Part& part);
  absl::Status LaunchNvfp4(const ExpertLayout& layout, const Part& part);
  absl::Status LaunchXt(const ExpertLayout& layout, const Part& part);
  bool ComputesFormat(LayerId layer) const;
  absl::Status BeginRecorded();
  absl::Status PostLate();
  void Add(uint32_t index, const std::byte* blob);

  const Deps deps_;
  const CudaCardOptions options_;
  const std::string name_;
  const std::vector<ExpertLayout> layouts_;
  std::vector<uint64_t> host_entries_;  // of the table, by layer and expert: outside of slots
  std::vector<ListPlace> lists_;        // of the hits, of what is streamed, one for each arrival
  // The list at hand, and where its parts end.
  std::vector<ExpertFfnItem> item_memory_;
  std::vector<ExpertFfnEntry> entry_memory_;
  ExpertItems items_;
  std::vector<Part> parts_;
  std::optional<PinnedBuffer> pinned_lists_;
  std::optional<DeviceBuffer> card_lists_;
  // Apart from each other: XT's kernels find their sums as they left them.
  std::optional<DeviceBuffer> nvfp4_workspace_;
  std::optional<DeviceBuffer> xt_workspace_;
  std::optional<UniqueEvent> begin_;
  std::optional<UniqueEvent> end_;
  std::optional<StreamRing> ring_;
  std::unique_ptr<CudaPrompt> prompt_;  // null: passes are too small for it

  // Of the layer at hand.
  LayerId layer_;
  const WindowPlan* plan_ = nullptr;
  GpuListSink* sink_ = nullptr;  // where its lists go in a recorded window
  uint32_t window_ = 0;          // the sink's number of that window
  bool is_recorded_ = false;     // some window has been
  bool is_prompt_ = false;       // its lists are prompt_'s
  std::mutex mutex_;             // guards what follows
  bool has_begun_ = false;       // something was enqueued
  uint32_t arrival_count_ = 0;
  uint32_t streamed_count_ = 0;
  bool claims_streams_ = false;    // of a recorded window: what is streamed was the card's choice
  uint32_t late_left_ = 0;         // and: experts that the late list still lacks
  bool late_follows_ = false;      // and the card waits for that list
  bool xt_sums_are_zero_ = false;  // as XT's kernels leave them
  absl::Status status_;
};

}  // namespace hearth
