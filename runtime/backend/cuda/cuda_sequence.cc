#include "runtime/backend/cuda/cuda_sequence.h"

#include "runtime/backend/cuda/device_copy.h"
#include "runtime/backend/cuda/host_lookups.h"
#include "runtime/base/status.h"

namespace hearth {

absl::Status StoreHidden(const CudaSequence& sequence, uint32_t position, uint32_t rows,
                         const DenseRows& from, CudaStreamView stream) {
  const uint64_t d = from.width;
  for (const RingPiece& piece : RingPieces(position, rows, HiddenRows(sequence.shape()))) {
    if (piece.rows == 0) continue;
    HEARTH_RETURN_IF_ERROR(CopyArray(sequence.state().hidden + piece.ring_row * d,
                                     from.data + piece.row * d, piece.rows * d, stream));
  }
  return absl::OkStatus();
}

absl::Status LoadHidden(const CudaSequence& sequence, uint32_t position, uint32_t rows,
                        const DenseRows& to, CudaStreamView stream) {
  const uint64_t d = to.width;
  for (const RingPiece& piece : RingPieces(position, rows, HiddenRows(sequence.shape()))) {
    if (piece.rows == 0) continue;
    HEARTH_RETURN_IF_ERROR(CopyArray(to.data + piece.row * d,
                                     sequence.state().hidden + piece.ring_row * d, piece.rows * d,
                                     stream));
  }
  return absl::OkStatus();
}

}  // namespace hearth
