#include "runtime/backend/cuda/weight_upload.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "gpu_kernels/device/pinned_memory.h"
#include "runtime/backend/cuda/device_copy.h"
#include "runtime/backend/cuda/event_wait.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kPieceBytes = 16_MiB;
constexpr uint32_t kPieces = 3;  // gathered, on the way, and one to spare
constexpr int64_t kPieceWaitNs = 20'000'000'000;

// Pinned pieces in turn: each is filled, sent, and filled again when its copy has ended.
class UploadRing {
 public:
  static absl::StatusOr<UploadRing> Create(GpuId gpu, std::byte* to, CudaStreamView stream,
                                           Clock& clock) {
    HEARTH_ASSIGN_OR_RETURN(PinnedBuffer pinned, PinnedBuffer::Create(gpu, kPieceBytes * kPieces));
    UploadRing ring(std::move(pinned), to, stream, clock);
    for (std::optional<UniqueEvent>& sent : ring.sent_) {
      HEARTH_ASSIGN_OR_RETURN(sent, UniqueEvent::Create(gpu, EventKind::kUntimed));
    }
    return ring;
  }

  // Bytes for image offset `offset_bytes`, which is at or after everything added before.
  absl::Status Add(std::span<const std::byte> from, uint64_t offset_bytes) {
    while (!from.empty()) {
      if (offset_bytes >= begin_ + kPieceBytes) HEARTH_RETURN_IF_ERROR(Send(offset_bytes));
      const uint64_t at = offset_bytes - begin_;
      const uint64_t count = std::min<uint64_t>(from.size(), kPieceBytes - at);
      std::memcpy(Piece() + at, from.data(), count);
      used_ = at + count;
      offset_bytes += count;
      from = from.subspan(count);
    }
    return absl::OkStatus();
  }

  absl::Status Finish() {
    HEARTH_RETURN_IF_ERROR(Send(begin_ + used_));
    for (const std::optional<UniqueEvent>& sent : sent_) {
      HEARTH_RETURN_IF_ERROR(AwaitEvent(*sent, *clock_, kPieceWaitNs, "upload of the weights"));
    }
    return absl::OkStatus();
  }

 private:
  UploadRing(PinnedBuffer pinned, std::byte* to, CudaStreamView stream, Clock& clock)
      : pinned_(std::move(pinned)), to_(to), stream_(stream), clock_(&clock) {}
  std::byte* Piece() const { return pinned_.data().data() + piece_ * kPieceBytes; }

  // Sends the piece at hand; the next one begins at image offset `begin_bytes`.
  absl::Status Send(uint64_t begin_bytes) {
    if (used_ != 0) {
      HEARTH_RETURN_IF_ERROR(CopyAsync(to_ + begin_, Piece(), used_, stream_));
      HEARTH_RETURN_IF_ERROR(sent_[piece_]->Record(stream_));
      piece_ = (piece_ + 1) % kPieces;
      HEARTH_RETURN_IF_ERROR(
          AwaitEvent(*sent_[piece_], *clock_, kPieceWaitNs, "upload of the weights"));
    }
    begin_ = begin_bytes;
    used_ = 0;
    return absl::OkStatus();
  }

  PinnedBuffer pinned_;
  std::byte* to_;
  CudaStreamView stream_;
  Clock* clock_;
  std::array<std::optional<UniqueEvent>, kPieces> sent_;
  uint32_t piece_ = 0;
  uint64_t begin_ = 0;  // of the piece at hand, in the image
  uint64_t used_ = 0;
};

}  // namespace

absl::StatusOr<DeviceBuffer> UploadWeights(const WeightImage& image, GpuId gpu,
                                           CudaStreamView stream, Clock& clock,
                                           const UploadProgress& progress) {
  HEARTH_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Create(gpu, image.bytes));
  HEARTH_ASSIGN_OR_RETURN(UploadRing ring, UploadRing::Create(gpu, buffer.data(), stream, clock));
  for (const WeightCopy& copy : image.copies) {
    HEARTH_RETURN_IF_ERROR(ring.Add(copy.from, copy.offset_bytes));
    if (progress) progress(copy.offset_bytes + copy.from.size(), image.bytes);
  }
  HEARTH_RETURN_IF_ERROR(ring.Finish());
  if (progress) progress(image.bytes, image.bytes);
  return buffer;
}

}  // namespace hearth
