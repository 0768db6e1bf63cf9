#include "runtime/experts/cuda_slots.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/device/gpu_memory.h"
#include "gpu_kernels/device/pinned_memory.h"
#include "gpu_kernels/device/stream.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {

// Everything of the card's. The queue uses its copies from one thread at a time.
class CudaCopyEngine final : public CopyEngine {
 public:
  static absl::StatusOr<std::unique_ptr<CudaCopyEngine>> Create(
      const CudaSlots::Deps& deps, std::span<const SlotPoolShape> pools,
      const CudaSlotsOptions& options);

  uint64_t ReadsInPlace(std::span<const std::byte> from) const override {
    return pinned_.PinnedBytes(from);
  }
  std::span<std::byte> staging() const override { return staging_.data(); }
  uint64_t staging_piece_bytes() const override { return staging_piece_bytes_; }
  absl::Status Copy(SlotRef slot, uint64_t offset_bytes, std::span<const std::byte> from) override {
    const Pool& pool = pools_[slot.pool];
    HEARTH_CHECK(offset_bytes + from.size() <= pool.slot_bytes);
    return CopyToDevice(from, *pool.memory, slot.slot.value * pool.slot_bytes + offset_bytes,
                        copies_.view());
  }
  absl::Status Mark(uint32_t mark) override { return marks_[mark].Record(copies_.view()); }
  absl::Status CopyBack(SlotRef slot, std::span<std::byte> into, uint32_t mark) override {
    const Pool& pool = pools_[slot.pool];
    HEARTH_CHECK(into.size() <= pool.slot_bytes);
    HEARTH_RETURN_IF_ERROR(
        CopyToHost(*pool.memory, slot.slot.value * pool.slot_bytes, into, reads_.view()));
    return marks_[mark].Record(reads_.view());
  }
  absl::StatusOr<bool> HasPassed(uint32_t mark) const override { return marks_[mark].HasPassed(); }
  uint32_t mark_count() const override { return static_cast<uint32_t>(marks_.size()); }

  std::byte* Address(SlotRef slot) const {
    const Pool& pool = pools_[slot.pool];
    return pool.memory->data() + slot.slot.value * pool.slot_bytes;
  }
  uint64_t bytes() const {
    uint64_t total = 0;
    for (const Pool& pool : pools_) total += pool.memory.has_value() ? pool.memory->bytes() : 0;
    return total;
  }
  std::span<std::byte> read_into() const { return read_into_.data(); }  // for one slot
  std::span<std::byte> verify_into() const {                            // for one, or empty
    return verify_into_.has_value() ? verify_into_->data() : std::span<std::byte>();
  }

 private:
  struct Pool {
    std::optional<DeviceBuffer> memory;  // none without slots
    uint64_t slot_bytes = 0;
  };
  CudaCopyEngine(const PinnedRanges& pinned, UniqueStream copies, UniqueStream reads,
                 PinnedBuffer staging, PinnedBuffer read_into, uint64_t staging_piece_bytes)
      : pinned_(pinned),
        copies_(std::move(copies)),
        reads_(std::move(reads)),
        staging_(std::move(staging)),
        read_into_(std::move(read_into)),
        staging_piece_bytes_(staging_piece_bytes) {}
  absl::Status AddPools(GpuId gpu, std::span<const SlotPoolShape> pools);

  const PinnedRanges& pinned_;
  UniqueStream copies_;
  UniqueStream reads_;
  PinnedBuffer staging_;
  PinnedBuffer read_into_;
  std::optional<PinnedBuffer> verify_into_;
  const uint64_t staging_piece_bytes_;
  std::vector<Pool> pools_;
  std::vector<UniqueEvent> marks_;
};

absl::Status CudaCopyEngine::AddPools(GpuId gpu, std::span<const SlotPoolShape> pools) {
  for (const SlotPoolShape& shape : pools) {
    Pool& pool = pools_.emplace_back(Pool{.memory = std::nullopt, .slot_bytes = shape.slot_bytes});
    if (shape.total_count() == 0) continue;
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer memory, DeviceBuffer::Create(gpu, shape.total_bytes()));
    HEARTH_RETURN_IF_ERROR(CheckDeviceMemory(memory, copies_.view()));
    pool.memory.emplace(std::move(memory));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<CudaCopyEngine>> CudaCopyEngine::Create(
    const CudaSlots::Deps& deps, std::span<const SlotPoolShape> pools,
    const CudaSlotsOptions& options) {
  const GpuId gpu = deps.gpu.id;
  uint64_t slot_bytes = 1;
  for (const SlotPoolShape& pool : pools) slot_bytes = std::max(slot_bytes, pool.slot_bytes);
  HEARTH_ASSIGN_OR_RETURN(UniqueStream copies, UniqueStream::Create(gpu));
  HEARTH_ASSIGN_OR_RETURN(UniqueStream reads, UniqueStream::Create(gpu));
  HEARTH_ASSIGN_OR_RETURN(
      PinnedBuffer staging,
      PinnedBuffer::Create(gpu, options.staging_piece_count * options.staging_piece_bytes));
  HEARTH_ASSIGN_OR_RETURN(PinnedBuffer read_into, PinnedBuffer::Create(gpu, slot_bytes));
  std::unique_ptr<CudaCopyEngine> engine(
      new CudaCopyEngine(deps.pinned, std::move(copies), std::move(reads), std::move(staging),
                         std::move(read_into), options.staging_piece_bytes));
  if (options.verify_uploads) {
    HEARTH_ASSIGN_OR_RETURN(PinnedBuffer verify_into, PinnedBuffer::Create(gpu, slot_bytes));
    engine->verify_into_.emplace(std::move(verify_into));
  }
  const uint32_t mark_count = UploadQueue::MarksNeeded({.in_flight_max = options.in_flight_max},
                                                       options.staging_piece_count);
  for (uint32_t i = 0; i < mark_count; ++i) {
    HEARTH_ASSIGN_OR_RETURN(UniqueEvent mark, UniqueEvent::Create(gpu, EventKind::kUntimed));
    engine->marks_.push_back(std::move(mark));
  }
  HEARTH_RETURN_IF_ERROR(engine->AddPools(gpu, pools));
  return engine;
}

CudaSlots::CudaSlots(const Deps& deps, std::unique_ptr<CudaCopyEngine> engine)
    : gpu_(deps.gpu.id), pinned_(deps.pinned), name_(deps.gpu.name), engine_(std::move(engine)) {}

absl::StatusOr<std::unique_ptr<CudaSlots>> CudaSlots::Create(const Deps& deps,
                                                             std::span<const SlotPoolShape> pools,
                                                             const CudaSlotsOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(auto engine, CudaCopyEngine::Create(deps, pools, options));
  std::unique_ptr<CudaSlots> slots(new CudaSlots(deps, std::move(engine)));
  slots->queue_ = std::make_unique<UploadQueue>(
      *slots->engine_, deps.clock,
      UploadQueueOptions{.in_flight_max = options.in_flight_max,
                         .waiting_max = options.waiting_max,
                         .timeout_ns = options.upload_timeout_ns,
                         .verify_into = slots->engine_->verify_into()});
  return slots;
}

CudaSlots::~CudaSlots() {
  const bool answers = queue_ == nullptr || queue_->broken().ok();
  queue_.reset();
  if (!answers) (void)engine_.release();
}

void CudaSlots::Upload(SlotRef slot, std::span<const std::byte> from, UploadSink& sink,
                       uint32_t index) {
  queue_->Upload(slot, from, sink, index);
}

absl::StatusOr<std::span<const std::byte>> CudaSlots::Read(SlotRef slot, uint64_t bytes) {
  const std::span<std::byte> into = engine_->read_into().first(bytes);
  HEARTH_RETURN_IF_ERROR(queue_->Read(slot, into));
  return into;
}

uint64_t CudaSlots::bytes() const { return engine_->bytes(); }
std::byte* CudaSlots::Address(SlotRef slot) const { return engine_->Address(slot); }

std::vector<std::string> CudaSlots::notes() const {
  std::vector<std::string> notes;
  if (const absl::Status broken = queue_->broken(); !broken.ok()) {
    notes.push_back(absl::StrCat("slots: nothing is uploaded any more: ", broken.message()));
  }
  const UploadStats stats = queue_->stats();
  if (stats.staged_count > 0) {
    notes.push_back(absl::StrCat("slots: ", stats.staged_count, " of ", stats.upload_count,
                                 " uploads came from memory that is not pinned and were copied "
                                 "twice"));
  }
  return notes;
}

}  // namespace hearth
