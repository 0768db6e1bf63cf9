// Images of sequences that lie on a card: their arrays one behind the other, by layer. Copies go
// over the stream of the passes, behind the pass before.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/pass_table.h"
#include "pack/format/geometry.h"
#include "runtime/backend/cuda/cuda_sequence.h"
#include "runtime/backend/sequence_image.h"
#include "runtime/base/clock.h"

namespace hearth {

struct CudaImagerDeps {  // all outlive the imager
  const ModelGeometry& geometry;
  Clock& clock;
  CudaStreamView stream;
  KvFormat kv_format = KvFormat::kBf16;
  int64_t wait_ns_max = 0;  // for the card, as of a pass
};

class CudaImager final : public SequenceImager {
 public:
  static absl::StatusOr<std::unique_ptr<CudaImager>> Create(const CudaImagerDeps& deps);

  uint64_t fixed_bytes() const override;
  uint64_t span_bytes(const SpanRange& range) const override;
  uint32_t ImageDraftCount(const Sequence& sequence) const override;
  absl::Status SaveImage(const Sequence& sequence, const SpanRange& range,
                         std::span<std::byte> fixed, std::span<std::byte> span) override;
  absl::Status RestoreImage(const ImageView& image, Sequence& sequence) override;

 private:
  CudaImager(const CudaImagerDeps& deps, UniqueEvent done) : deps_(deps), done_(std::move(done)) {}
  absl::Status CopyOut(const CudaSequence& sequence, const ImageCounts& counts,
                       const SpanRange& range, std::span<std::byte> fixed,
                       std::span<std::byte> span);
  absl::Status CopyIn(const ImageView& image, const CudaSequence& sequence);
  absl::Status Await();

  CudaImagerDeps deps_;
  UniqueEvent done_;
};

}  // namespace hearth
