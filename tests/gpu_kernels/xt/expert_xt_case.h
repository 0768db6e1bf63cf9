// What the tests and the benchmark of gpu_kernels/ops/xt/expert_xt.h share: a window's experts and
// rows on the host, the same on a GPU between guards, and the answer of a row of the CPU's kernel
// table.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "gpu_kernels/device/device_buffer.h"
#include "gpu_kernels/ops/xt/expert_xt.h"
#include "runtime/base/status.h"
#include "tests/cpu_kernels/kernel_fixture.h"
#include "tests/cpu_kernels/xt_blob.h"
#include "tests/gpu_kernels/expert_case.h"
#include "tests/gpu_kernels/experts_on_gpu.h"

namespace hearth {

// Owner of rotated, quantised rows.
struct XtRowsBuffer {
  std::vector<int8_t> q;
  std::vector<float> scale;
  std::vector<int32_t> sum;
  uint32_t rows;
  uint32_t cols;

  XtRowsBuffer(uint32_t rows_in, uint32_t cols_in)
      : q(size_t{rows_in} * cols_in), scale(rows_in), sum(rows_in), rows(rows_in), cols(cols_in) {}
  static XtRowsBuffer Of(const CpuKernels& kernels, std::span<const float> x, uint32_t rows,
                         uint32_t cols) {
    XtRowsBuffer of(rows, cols);
    std::vector<float> scratch(cols);
    kernels.rotate_quantize_rows({.x = x.data(),
                                  .x_stride = cols,
                                  .rows = rows,
                                  .cols = cols,
                                  .scratch = scratch.data(),
                                  .q = of.q.data(),
                                  .scale = of.scale.data(),
                                  .sum = of.sum.data()});
    return of;
  }
  XtRows View() const { return {q.data(), scale.data(), sum.data(), rows, cols}; }
};

struct ExpertXtCase : ExpertCase<XtBlob, XtRowsBuffer> {
  using ExpertCase::ExpertCase;
  // Room for more items than there are.
  ExpertXtDesc Desc() const {
    return {.layout = layout,
            .item_count_max = item_count() + 2,
            .rows_max = rows_max(),
            .entry_count_max = static_cast<uint32_t>(entries.size())};
  }
};

// y between guards, all of it marked as unwritten at first; h of every entry.
struct ExpertXtAnswer {
  std::vector<float> y;  // kGuardFloats, (y_rows, y_stride), kGuardFloats
  XtRowsBuffer h;

  explicit ExpertXtAnswer(const ExpertXtCase& c)
      : y(size_t{c.y_rows} * c.y_stride + 2 * kGuardFloats, std::bit_cast<float>(kUnwrittenBits)),
        h(static_cast<uint32_t>(c.entries.size()), c.layout.width) {}
};

// Of the first `item_count` items.
inline ExpertXtAnswer AnswerOfCpu(const ExpertXtCase& c, const CpuKernels& kernels,
                                  uint32_t item_count) {
  ExpertXtAnswer answer(c);
  const uint32_t hidden = c.layout.hidden;
  const uint32_t width = c.layout.width;
  for (size_t i = 0; i < item_count; ++i) {
    const uint32_t begin = c.item_begin[i];
    const uint32_t rows = c.item_begin[i + 1] - begin;
    XtRowsBuffer x(rows, hidden);
    for (uint32_t t = 0; t < rows; ++t) {
      const size_t from = c.entries[begin + t].x_row;
      std::copy_n(&c.x.q[from * hidden], hidden, &x.q[size_t{t} * hidden]);
      x.scale[t] = c.x.scale[from];
      x.sum[t] = c.x.sum[from];
    }
    std::vector<float> h(size_t{rows} * width);
    kernels.expert_gate_up({.layout = &c.layout,
                            .blob = c.blobs[i].data(),
                            .xq = {},
                            .rows = rows,
                            .h = h.data(),
                            .h_stride = width,
                            .band_end = BandCount(width),
                            .xt = x.View()});
    const XtRowsBuffer hq = XtRowsBuffer::Of(kernels, h, rows, width);
    std::vector<float> y(size_t{rows} * hidden);
    kernels.expert_down({.layout = &c.layout,
                         .blob = c.blobs[i].data(),
                         .hq = {},
                         .rows = rows,
                         .y = y.data(),
                         .y_stride = hidden,
                         .band_end = BandCount(hidden),
                         .ht = hq.View()});
    std::copy(hq.q.begin(), hq.q.end(), &answer.h.q[size_t{begin} * width]);
    std::copy(hq.scale.begin(), hq.scale.end(), &answer.h.scale[begin]);
    std::copy(hq.sum.begin(), hq.sum.end(), &answer.h.sum[begin]);
    for (uint32_t t = 0; t < rows; ++t) {
      std::copy_n(&y[size_t{t} * hidden], hidden,
                  &answer.y[kGuardFloats + size_t{c.entries[begin + t].y_row} * c.y_stride]);
    }
  }
  return answer;
}

// A case on a GPU, ready to be launched any number of times.
class ExpertXtOnGpu {
 public:
  // `copies`: how often the blobs lie in memory, for benchmarks that must not meet them in a cache.
  static absl::StatusOr<ExpertXtOnGpu> Create(const ExpertXtCase& c, const ExpertXtPlan& plan,
                                              const UniqueStream& stream, uint32_t copies = 1) {
    HEARTH_ASSIGN_OR_RETURN(ExpertsOnGpu experts, ExpertsOnGpu::Create(c, stream, copies));
    const uint32_t count = c.item_count();
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer item_count, DeviceCopy(std::span(&count, 1), stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer q, DeviceCopy(c.x.q, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer scale, DeviceCopy(c.x.scale, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer sum, DeviceCopy(c.x.sum, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer y, DeviceCopy(ExpertXtAnswer(c).y, stream));
    HEARTH_ASSIGN_OR_RETURN(GuardedWorkspace workspace,
                            GuardedWorkspace::Create(plan.workspace_bytes, stream));
    HEARTH_RETURN_IF_ERROR(ResetExpertXtWorkspace(plan, workspace.buffer(), 0, stream.view()));
    return ExpertXtOnGpu(c, plan,
                         {std::move(experts), std::move(item_count), std::move(q), std::move(scale),
                          std::move(sum), std::move(y), std::move(workspace)});
  }

  absl::Status SetItemCount(uint32_t count, const UniqueStream& stream) const {
    HEARTH_RETURN_IF_ERROR(
        CopyToDevice(std::as_bytes(std::span(&count, 1)), b_.item_count, 0, stream.view()));
    return stream.Synchronize();
  }

  absl::Status Launch(const UniqueStream& stream, uint32_t copy = 0) const {
    const ExpertXtArgs args = {
        .item_count = reinterpret_cast<const uint32_t*>(b_.item_count.data()),
        .items = b_.experts.item_data() + copy * item_count_,
        .entries = b_.experts.entry_data(),
        .q = reinterpret_cast<const int8_t*>(b_.q.data()),
        .scale = reinterpret_cast<const float*>(b_.scale.data()),
        .sum = reinterpret_cast<const int32_t*>(b_.sum.data()),
        .y = reinterpret_cast<float*>(b_.y.data()) + kGuardFloats,
        .y_stride = y_stride_,
        .workspace = b_.workspace.data()};
    return LaunchExpertXt(desc_, plan_, args, stream.view());
  }

  // Waits for `stream`. Internal when the bytes behind the workspace were written, or what a call
  // must leave at zero is not.
  absl::Status Read(const UniqueStream& stream, ExpertXtAnswer* answer) const {
    HEARTH_RETURN_IF_ERROR(
        CopyToHost(b_.y, 0, std::as_writable_bytes(std::span(answer->y)), stream.view()));
    HEARTH_RETURN_IF_ERROR(b_.workspace.Read(plan_.h_q_offset_bytes, answer->h.q, stream));
    HEARTH_RETURN_IF_ERROR(b_.workspace.Read(plan_.h_scale_offset_bytes, answer->h.scale, stream));
    HEARTH_RETURN_IF_ERROR(b_.workspace.Read(plan_.h_sum_offset_bytes, answer->h.sum, stream));
    std::vector<std::byte> zeros(plan_.h_q_offset_bytes);
    HEARTH_RETURN_IF_ERROR(b_.workspace.Read(0, zeros, stream));
    HEARTH_RETURN_IF_ERROR(b_.workspace.CheckGuard(stream));
    if (std::any_of(zeros.begin(), zeros.end(), [](std::byte b) { return b != std::byte{0}; })) {
      return absl::InternalError("sums or counts that are not back at zero");
    }
    return absl::OkStatus();
  }

  const ExpertXtPlan& plan() const { return plan_; }

 private:
  struct Buffers {
    ExpertsOnGpu experts;
    DeviceBuffer item_count, q, scale, sum, y;
    GuardedWorkspace workspace;
  };
  ExpertXtOnGpu(const ExpertXtCase& c, const ExpertXtPlan& plan, Buffers buffers)
      : desc_(c.Desc()),
        plan_(plan),
        item_count_(c.item_count()),
        y_stride_(c.y_stride),
        b_(std::move(buffers)) {}

  ExpertXtDesc desc_;
  ExpertXtPlan plan_;
  uint32_t item_count_;
  uint32_t y_stride_;
  Buffers b_;
};

}  // namespace hearth
