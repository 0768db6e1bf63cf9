// What the tests and the benchmark of gpu_kernels/ops/expert_ffn.h share: a window's experts and
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
#include "gpu_kernels/ops/expert_ffn.h"
#include "runtime/base/status.h"
#include "tests/cpu_kernels/expert_blob.h"
#include "tests/cpu_kernels/kernel_fixture.h"
#include "tests/gpu_kernels/expert_case.h"
#include "tests/gpu_kernels/experts_on_gpu.h"

namespace hearth {

struct ExpertFfnCase : ExpertCase<ExpertBlob, QuantizedBuffer> {
  using ExpertCase::ExpertCase;
  ExpertFfnDesc Desc() const {
    return {.layout = layout,
            .item_count = static_cast<uint32_t>(blobs.size()),
            .rows_max = rows_max(),
            .entry_count = static_cast<uint32_t>(entries.size()),
            .allows_one_launch = true};
  }
};

// y between guards, all of it marked as unwritten at first; h of every entry, quantised.
struct ExpertFfnAnswer {
  std::vector<float> y;  // kGuardFloats, (y_rows, y_stride), kGuardFloats
  QuantizedBuffer h;

  explicit ExpertFfnAnswer(const ExpertFfnCase& c)
      : y(size_t{c.y_rows} * c.y_stride + 2 * kGuardFloats, std::bit_cast<float>(kUnwrittenBits)),
        h(static_cast<uint32_t>(c.entries.size()), c.layout.width) {}
};

inline ExpertFfnAnswer AnswerOfCpu(const ExpertFfnCase& c, const CpuKernels& kernels) {
  ExpertFfnAnswer answer(c);
  const uint32_t hidden = c.layout.hidden;
  const uint32_t width = c.layout.width;
  for (size_t i = 0; i < c.blobs.size(); ++i) {
    const uint32_t begin = c.item_begin[i];
    const uint32_t rows = c.item_begin[i + 1] - begin;
    QuantizedBuffer xq(rows, hidden);
    const size_t blocks = ActivationBlocks(hidden);
    for (uint32_t t = 0; t < rows; ++t) {
      const size_t from = c.entries[begin + t].x_row;
      std::copy_n(&c.x.q[from * blocks * 32], blocks * 32, &xq.q[t * blocks * 32]);
      std::copy_n(&c.x.scale[from * blocks], blocks, &xq.scale[t * blocks]);
      std::copy_n(&c.x.sum16[from * blocks * 2], blocks * 2, &xq.sum16[t * blocks * 2]);
    }
    std::vector<float> h(size_t{rows} * width);
    kernels.expert_gate_up({.layout = &c.layout,
                            .blob = c.blobs[i].data(),
                            .xq = xq.View(),
                            .rows = rows,
                            .h = h.data(),
                            .h_stride = width,
                            .band_end = BandCount(width)});
    QuantizedBuffer hq(rows, width);
    kernels.quantize_rows(hq.ArgsFor(h));
    std::vector<float> y(size_t{rows} * hidden);
    kernels.expert_down({.layout = &c.layout,
                         .blob = c.blobs[i].data(),
                         .hq = hq.View(),
                         .rows = rows,
                         .y = y.data(),
                         .y_stride = hidden,
                         .band_end = BandCount(hidden)});
    const size_t h_blocks = ActivationBlocks(width);
    std::copy(hq.q.begin(), hq.q.end(), &answer.h.q[begin * h_blocks * 32]);
    std::copy(hq.scale.begin(), hq.scale.end(), &answer.h.scale[begin * h_blocks]);
    std::copy(hq.sum16.begin(), hq.sum16.end(), &answer.h.sum16[begin * h_blocks * 2]);
    for (uint32_t t = 0; t < rows; ++t) {
      std::copy_n(&y[size_t{t} * hidden], hidden,
                  &answer.y[kGuardFloats + size_t{c.entries[begin + t].y_row} * c.y_stride]);
    }
  }
  return answer;
}

// A case on a GPU, ready to be launched any number of times.
class ExpertFfnOnGpu {
 public:
  // `copies`: how often the blobs lie in memory, for benchmarks that must not meet them in a cache.
  static absl::StatusOr<ExpertFfnOnGpu> Create(const ExpertFfnCase& c, const GpuInfo& gpu,
                                               const UniqueStream& stream, uint32_t copies = 1) {
    HEARTH_ASSIGN_OR_RETURN(const ExpertFfnPlan plan, PlanExpertFfn(c.Desc(), gpu.limits));
    HEARTH_ASSIGN_OR_RETURN(ExpertsOnGpu experts, ExpertsOnGpu::Create(c, stream, copies));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer q, DeviceCopy(c.x.q, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer scale, DeviceCopy(c.x.scale, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer sum16, DeviceCopy(c.x.sum16, stream));
    HEARTH_ASSIGN_OR_RETURN(DeviceBuffer y, DeviceCopy(ExpertFfnAnswer(c).y, stream));
    HEARTH_ASSIGN_OR_RETURN(GuardedWorkspace workspace,
                            GuardedWorkspace::Create(plan.workspace_bytes, stream));
    HEARTH_RETURN_IF_ERROR(ResetExpertFfnWorkspace(workspace.buffer(), stream.view()));
    return ExpertFfnOnGpu(c.Desc(), plan, c.y_stride,
                          {std::move(experts), std::move(q), std::move(scale), std::move(sum16),
                           std::move(y), std::move(workspace)});
  }

  // `item_count`: a word on the card, or null: all items.
  absl::Status Launch(const UniqueStream& stream, uint32_t copy = 0,
                      const uint32_t* item_count = nullptr) const {
    const ExpertFfnArgs args = {.items = b_.experts.item_data() + copy * desc_.item_count,
                                .item_count = item_count,
                                .entries = b_.experts.entry_data(),
                                .q = reinterpret_cast<const int8_t*>(b_.q.data()),
                                .scale = reinterpret_cast<const float*>(b_.scale.data()),
                                .sum16 = reinterpret_cast<const int32_t*>(b_.sum16.data()),
                                .y = reinterpret_cast<float*>(b_.y.data()) + kGuardFloats,
                                .y_stride = y_stride_,
                                .workspace = b_.workspace.data()};
    return LaunchExpertFfn(desc_, plan_, args, stream.view());
  }

  // Waits for `stream`. Internal when the bytes behind the workspace were written.
  absl::Status Read(const UniqueStream& stream, ExpertFfnAnswer* answer) const {
    HEARTH_RETURN_IF_ERROR(
        CopyToHost(b_.y, 0, std::as_writable_bytes(std::span(answer->y)), stream.view()));
    HEARTH_RETURN_IF_ERROR(b_.workspace.Read(plan_.h_offset_bytes, answer->h.q, stream));
    HEARTH_RETURN_IF_ERROR(b_.workspace.Read(plan_.h_scale_offset_bytes, answer->h.scale, stream));
    return b_.workspace.CheckGuard(stream);
  }

  const ExpertFfnPlan& plan() const { return plan_; }
  bool TakesOneLaunch() const { return plan_.stream.blocks != 0; }
  void TakeTwoLaunches() { plan_.stream = {}; }

 private:
  struct Buffers {
    ExpertsOnGpu experts;
    DeviceBuffer q, scale, sum16, y;
    GuardedWorkspace workspace;
  };
  ExpertFfnOnGpu(const ExpertFfnDesc& desc, const ExpertFfnPlan& plan, uint32_t y_stride,
                 Buffers buffers)
      : desc_(desc), plan_(plan), y_stride_(y_stride), b_(std::move(buffers)) {}

  ExpertFfnDesc desc_;
  ExpertFfnPlan plan_;
  uint32_t y_stride_;
  Buffers b_;
};

}  // namespace hearth
