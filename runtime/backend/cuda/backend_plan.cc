#include "runtime/backend/cuda/backend_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/ops/dense/dense_matmul.h"
#include "gpu_kernels/ops/mixer/combine.h"
#include "gpu_kernels/ops/mixer/gdn.h"
#include "gpu_kernels/ops/mixer/router.h"
#include "runtime/backend/cuda/recorded_windows.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::Status AtMost(std::string_view what, uint64_t value, uint64_t most) {
  if (value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(what), ": ", value,
                                                 ", the CUDA backend takes at most ", most,
                                                 "; use the CPU backend (--device cpu)"));
}

absl::Status CheckBounds(const ModelGeometry& g, const PassLimits& limits) {
  HEARTH_RETURN_IF_ERROR(AtMost("rows of a window", limits.window_rows_max,
                                std::min({kGdnWindowRowsMax, kMatmulRowsMax, kQsaWindowRows})));
  HEARTH_RETURN_IF_ERROR(AtMost("experts of a layer", g.moe.expert_count, kRouterExpertsMax));
  return AtMost("experts per token", g.moe.experts_per_token,
                std::min(kRouterRanksMax, kCombineRanksMax));
}

std::string_view RemedyOf(RoomFor room_for) {
  switch (room_for) {
    case RoomFor::kWeights:
      return "close what else uses the card, or run the dense path on the CPU (--device cpu)";
    case RoomFor::kBuffers:
      return "lower --prompt-chunk or --context, give the slots less (--vram-budget), or close "
             "what "
             "else uses the card";
    case RoomFor::kSequence:
      return "lower --context, keep K and V as int8, give the slots less (--vram-budget), or wait "
             "for another request to end";
  }
  return "";
}

}  // namespace

absl::StatusOr<BackendPlan> PlanBackend(const ModelGeometry& g, const CudaBackendOptions& options) {
  HEARTH_RETURN_IF_ERROR(CheckBounds(g, options.limits));
  BackendPlan plan;
  plan.context_tokens_max = options.context_tokens_max == 0
                                ? g.context_tokens_max
                                : std::min(options.context_tokens_max, g.context_tokens_max);
  plan.shape = {.limits = options.limits,
                .rows_max = PassRowsMax(options.limits),
                .rotated_rows = options.rotated_rows};
  plan.qsa = {.attention = g.attention,
              .norm_epsilon = g.norm_epsilon,
              .kv_format = options.kv_format,
              .rows_max = plan.shape.rows_max,
              .context_max = plan.context_tokens_max};
  HEARTH_ASSIGN_OR_RETURN(plan.qsa_plan, PlanQsa(plan.qsa));
  plan.shape.qsa_workspace_bytes = plan.qsa_plan.workspace_bytes;
  plan.ring_rows = RingRows(g, options.limits);
  MemoryLayout device;
  GpuPassBuffers buffers;
  PassImage image;
  ReservePassBuffers(device, buffers, g, plan.shape);
  ReserveAheadBuffers(device, buffers, g, plan.shape);
  ReservePassImage(device, image, g, plan.shape);
  plan.device_buffer_bytes = device.bytes();
  MemoryLayout pinned;
  HostPassBuffers host;
  ReservePassImage(pinned, image, g, plan.shape);
  ReserveHostPassBuffers(pinned, host, g, plan.shape);
  plan.pinned_bytes = pinned.bytes();
  plan.forms = {.quantized = true, .fp32 = options.fp32_rows};
  if (!options.recorded_windows) return plan;
  HEARTH_ASSIGN_OR_RETURN(const ExchangeLayout exchange,
                          RecordedWindows::Layout(g, plan.forms, options.limits.window_rows_max));
  plan.pinned_bytes += exchange.bytes;
  return plan;
}

SequenceShape SequenceShapeOf(const BackendPlan& plan, uint32_t context_tokens_max) {
  return {.context_tokens_max = context_tokens_max,
          .window_rows_max = plan.shape.limits.window_rows_max,
          .rows_max = plan.shape.rows_max,
          .ring_rows = plan.ring_rows,
          .kv_format = plan.qsa.kv_format};
}

absl::Status NoRoom(const absl::Status& status, std::string_view what, RoomFor room_for) {
  if (status.code() != absl::StatusCode::kResourceExhausted) return Annotate(status, what);
  return absl::ResourceExhaustedError(
      absl::StrCat(ToAbsl(what), ": ", status.message(), "; ", ToAbsl(RemedyOf(room_for))));
}

absl::StatusOr<CudaBackendBytes> PlanCudaBackend(const ModelGeometry& geometry,
                                                 uint64_t weight_bytes,
                                                 const CudaBackendOptions& options,
                                                 uint32_t context_tokens_max) {
  HEARTH_ASSIGN_OR_RETURN(const BackendPlan plan, PlanBackend(geometry, options));
  return CudaBackendBytes{
      .weights = weight_bytes,
      .buffers = plan.device_buffer_bytes,
      .sequence = SequenceStateBytes(geometry, SequenceShapeOf(plan, context_tokens_max)),
      .pinned = plan.pinned_bytes};
}

}  // namespace hearth
