// The choice of gpu_kernels/ops/link_copy.h, and what it is made from.
#include "gpu_kernels/ops/link_copy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/device_buffer.h"
#include "runtime/base/status.h"

namespace hearth {

absl::StatusOr<double> MeasureUploadRate(GpuId gpu, std::span<const std::byte> pinned,
                                         uint64_t piece_bytes) {
  constexpr uint64_t kPiecesMax = 16;
  constexpr int kRounds = 3;  // the first wakes the link
  const uint64_t pieces = piece_bytes == 0 ? 0 : std::min(pinned.size() / piece_bytes, kPiecesMax);
  if (pieces < 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "upload rate: ", pinned.size(), " pinned bytes are less than two pieces of ", piece_bytes));
  }
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(gpu));
  HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer to, DeviceBuffer::Create(gpu, piece_bytes));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent start, UniqueEvent::Create(gpu));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent stop, UniqueEvent::Create(gpu));
  double best = 0;
  for (int round = 0; round < kRounds; ++round) {
    HEARTH_RETURN_IF_ERROR(start.Record(stream.view()));
    for (uint64_t i = 0; i < pieces; ++i) {
      HEARTH_RETURN_IF_ERROR(
          CopyToDevice(pinned.subspan(i * piece_bytes, piece_bytes), to, 0, stream.view()));
    }
    HEARTH_RETURN_IF_ERROR(stop.Record(stream.view()));
    HEARTH_ASSIGN_OR_RETURN(const double seconds, UniqueEvent::SecondsBetween(start, stop));
    if (seconds > 0) best = std::max(best, static_cast<double>(pieces * piece_bytes) / seconds);
  }
  return best;
}

UploadWay ChooseUploadWay(const LinkRates& rates) {
  constexpr double kWorthwhile = 1.05;
  return rates.kernel > rates.copy_engine * kWorthwhile ? UploadWay::kKernel
                                                        : UploadWay::kCopyEngine;
}

}  // namespace hearth
