#include "runtime/backend/cuda/prompt_rows.h"

#include "cpu_kernels/ops/activation.h"
#include "runtime/backend/cuda/device_copy.h"
#include "runtime/backend/cuda/event_wait.h"
#include "runtime/base/status.h"

namespace hearth {

absl::StatusOr<std::unique_ptr<PromptRows>> PromptRows::Create(GpuId gpu, Clock& clock,
                                                               int64_t wait_ns_max) {
  HEARTH_ASSIGN_OR_RETURN(UniqueStream stream, UniqueStream::Create(gpu));
  HEARTH_ASSIGN_OR_RETURN(UniqueEvent done, UniqueEvent::Create(gpu, EventKind::kUntimed));
  return std::unique_ptr<PromptRows>(
      new PromptRows(std::move(stream), std::move(done), clock, wait_ns_max));
}

void PromptRows::Offer(const RowsInBothForms& from, const RowsInBothForms& to, uint32_t rows,
                       uint32_t cols) {
  from_ = from;
  to_ = to;
  rows_ = rows;
  cols_ = cols;
}

absl::Status PromptRows::AwaitRows() {
  const uint64_t rows = std::exchange(rows_, 0);
  if (rows == 0) return absl::OkStatus();
  const uint64_t blocks = rows * ActivationBlocks(cols_);
  const CudaStreamView stream = stream_.view();
  HEARTH_RETURN_IF_ERROR(CopyArray(to_.x, from_.x, rows * cols_, stream));
  HEARTH_RETURN_IF_ERROR(
      CopyArray(to_.quantized.q, from_.quantized.q, blocks * kActivationBlockValues, stream));
  HEARTH_RETURN_IF_ERROR(CopyArray(to_.quantized.scale, from_.quantized.scale, blocks, stream));
  HEARTH_RETURN_IF_ERROR(CopyArray(to_.quantized.sum16, from_.quantized.sum16, blocks * 2, stream));
  HEARTH_RETURN_IF_ERROR(done_.Record(stream));
  return AwaitEvent(done_, clock_, wait_ns_max_, "rows for the host's experts");
}

}  // namespace hearth
