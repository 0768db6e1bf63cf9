#include "gpu_kernels/ops/mixer/shape_checks.h"

#include <bit>
#include <string_view>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/ops/activation.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

absl::Status InRange(std::string_view what, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(ToAbsl(what), " is ", value, ": this kernel takes ", least, " to ", most));
}

absl::Status MultipleOf(std::string_view what, uint64_t value, uint64_t divisor) {
  if (value != 0 && value % divisor == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      ToAbsl(what), " is ", value, ": this kernel takes positive multiples of ", divisor));
}

absl::Status Present(std::string_view what, const void* pointer) {
  if (pointer != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(what), " is null: it is needed here"));
}

absl::Status CheckSource(const GpuCombineSource& from) {
  HEARTH_RETURN_IF_ERROR(InRange("ranks", from.ranks, 1, kCombineRanksMax));
  HEARTH_RETURN_IF_ERROR(MultipleOf("stride of expert outputs", from.y_stride, 4));
  HEARTH_RETURN_IF_ERROR(Present("device outputs of experts", from.device_y));
  HEARTH_RETURN_IF_ERROR(Present("expert weights", from.weight));
  if (from.on_card != nullptr) {
    HEARTH_RETURN_IF_ERROR(Present("host outputs of experts", from.host_y));
  }
  if (from.shared != nullptr) {
    HEARTH_RETURN_IF_ERROR(Present("gate of the shared expert", from.shared_gate));
  }
  return absl::OkStatus();
}

absl::Status CheckPass(const GpuPassTable& pass) {
  HEARTH_RETURN_IF_ERROR(InRange("rows", pass.rows, 1, kMixerRowsMax));
  HEARTH_RETURN_IF_ERROR(Present("segments of the pass", pass.segments));
  HEARTH_RETURN_IF_ERROR(Present("segment of each row", pass.row_segment));
  return Present("count of segments", pass.segment_count);
}

// Rings are indexed by the low bits of a position; a window's rows and its history fit together.
absl::Status CheckRing(const GpuPassTable& pass, uint32_t history_rows) {
  if (!std::has_single_bit(pass.ring_rows) ||
      pass.ring_rows < uint64_t{history_rows} + pass.window_rows_max) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ring of ", pass.ring_rows, " rows: it must be a power of two and hold the ", history_rows,
        " rows of history and the ", pass.window_rows_max, " of a window"));
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const GpuGdnShape& shape) {
  if (shape.key_dim != 32 && shape.key_dim != 64 && shape.key_dim != 128) {
    return absl::InvalidArgumentError(absl::StrCat(
        "key heads of ", shape.key_dim, " values: the GPU's delta rule takes 32, 64 or 128"));
  }
  if (shape.value_dim != 32 && shape.value_dim != 64 && shape.value_dim != 128) {
    return absl::InvalidArgumentError(absl::StrCat(
        "value heads of ", shape.value_dim, " values: the GPU's delta rule takes 32, 64 or 128"));
  }
  HEARTH_RETURN_IF_ERROR(InRange("value heads", shape.value_heads, 1, 4096));
  HEARTH_RETURN_IF_ERROR(InRange("key heads", shape.key_heads, 1, shape.value_heads));
  HEARTH_RETURN_IF_ERROR(MultipleOf("value heads", shape.value_heads, shape.key_heads));
  return InRange("taps of the convolution", shape.taps, 1, kMixerTapsMax);
}

absl::Status CheckPendingRows(const GpuPassTable& pass) {
  return InRange("rows of a window", pass.window_rows_max, 1, kGdnWindowRowsMax);
}

absl::Status CheckInputs(const GpuGdnInputs& in) {
  HEARTH_RETURN_IF_ERROR(Present("projected rows", in.projected));
  HEARTH_RETURN_IF_ERROR(Present("a", in.a));
  HEARTH_RETURN_IF_ERROR(Present("b", in.b));
  HEARTH_RETURN_IF_ERROR(Present("weights of the convolution", in.conv));
  HEARTH_RETURN_IF_ERROR(Present("a_log", in.a_log));
  return Present("dt_bias", in.dt_bias);
}

absl::Status CheckOutput(const GpuGatedNormArgs& output) {
  HEARTH_RETURN_IF_ERROR(Present("z", output.z));
  return Present("norm of the output", output.norm);
}

}  // namespace

absl::Status CheckCombine(const GpuCombineArgs& args) {
  HEARTH_RETURN_IF_ERROR(InRange("rows", args.rows, 1, kMixerRowsMax));
  HEARTH_RETURN_IF_ERROR(MultipleOf("hidden", args.hidden, kActivationBlockValues));
  HEARTH_RETURN_IF_ERROR(Present("output", args.out));
  return CheckSource(args.from);
}

absl::Status CheckStreamStep(const GpuStreamStepArgs& args) {
  HEARTH_RETURN_IF_ERROR(InRange("rows", args.rows, 1, kMixerRowsMax));
  HEARTH_RETURN_IF_ERROR(InRange("streams", args.streams, 1, kMixerRowsMax));
  HEARTH_RETURN_IF_ERROR(MultipleOf("hidden", args.hidden, kActivationBlockValues));
  HEARTH_RETURN_IF_ERROR(InRange("hidden", args.hidden, 1, kStreamGroupMax));
  HEARTH_RETURN_IF_ERROR(Present("h", args.h));
  if (args.write == StreamWrite::kCombine) HEARTH_RETURN_IF_ERROR(CheckSource(args.combine));
  if (args.write == StreamWrite::kAdd || args.write == StreamWrite::kBroadcast) {
    HEARTH_RETURN_IF_ERROR(Present("y", args.y));
  }
  if (args.norm != nullptr && args.hn == nullptr && args.hn_quantized.q == nullptr) {
    return absl::InvalidArgumentError("a norm whose result nobody takes: hn and its q are null");
  }
  if (args.norm == nullptr && args.write == StreamWrite::kNone) {
    return absl::InvalidArgumentError("a step that neither writes nor reads");
  }
  return absl::OkStatus();
}

absl::Status CheckStreamMix(const GpuStreamMixArgs& args) {
  HEARTH_RETURN_IF_ERROR(InRange("rows", args.rows, 1, kMixerRowsMax));
  HEARTH_RETURN_IF_ERROR(InRange("streams", args.streams, 1, kMixerRowsMax));
  HEARTH_RETURN_IF_ERROR(MultipleOf("hidden", args.hidden, kActivationBlockValues));
  HEARTH_RETURN_IF_ERROR(Present("gate", args.gate));
  HEARTH_RETURN_IF_ERROR(Present("hn", args.hn));
  return Present("u", args.u);
}

absl::Status CheckActivateQuantize(const GpuActivateQuantizeArgs& args) {
  HEARTH_RETURN_IF_ERROR(InRange("rows", args.rows, 1, kMixerRowsMax));
  HEARTH_RETURN_IF_ERROR(MultipleOf("cols", args.cols, 4));
  HEARTH_RETURN_IF_ERROR(MultipleOf("stride of x", args.x_stride, 4));
  HEARTH_RETURN_IF_ERROR(InRange("stride of x", args.x_stride, args.cols, UINT32_MAX));
  HEARTH_RETURN_IF_ERROR(Present("x", args.x));
  if (args.function == RowFunction::kSwiglu) return Present("up", args.up);
  return absl::OkStatus();
}

absl::Status CheckRouter(const GpuRouterArgs& args) {
  HEARTH_RETURN_IF_ERROR(InRange("rows", args.rows, 1, kMixerRowsMax));
  HEARTH_RETURN_IF_ERROR(InRange("experts", args.expert_count, 1, kRouterExpertsMax));
  HEARTH_RETURN_IF_ERROR(InRange("ranks", args.ranks, 1, kRouterRanksMax));
  HEARTH_RETURN_IF_ERROR(InRange("ranks", args.ranks, 1, args.expert_count));
  HEARTH_RETURN_IF_ERROR(Present("logits", args.logits));
  HEARTH_RETURN_IF_ERROR(Present("chosen experts", args.expert));
  return Present("flag of a NaN", args.nan_flag);
}

absl::Status CheckRotaryTable(const GpuRotaryTableArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckPass(args.pass));
  HEARTH_RETURN_IF_ERROR(MultipleOf("rotary dimension", args.rotary_dim, 2));
  HEARTH_RETURN_IF_ERROR(InRange("rotary dimension", args.rotary_dim, 2, kRotaryDimMax));
  HEARTH_RETURN_IF_ERROR(InRange("tokens of a block", args.block_tokens, 1, UINT32_MAX));
  if (!(args.theta > 0)) return absl::InvalidArgumentError("theta of the rotation is not positive");
  HEARTH_RETURN_IF_ERROR(Present("cos", args.cos));
  return Present("sin", args.sin);
}

absl::Status CheckNgram(const GpuNgramArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckPass(args.pass));
  HEARTH_RETURN_IF_ERROR(InRange("streams", args.streams, 1, kMixerRowsMax));
  HEARTH_RETURN_IF_ERROR(MultipleOf("hidden", args.hidden, kActivationBlockValues));
  HEARTH_RETURN_IF_ERROR(InRange("hidden", args.hidden, 1, kStreamGroupMax));
  HEARTH_RETURN_IF_ERROR(InRange("taps of the convolution", args.taps, 1, kMixerTapsMax));
  HEARTH_RETURN_IF_ERROR(InRange("dilation", args.dilation, 1, kMixerRowsMax));
  return CheckRing(args.pass, (args.taps - 1) * args.dilation);
}

absl::Status CheckGdnConvolve(const GpuGdnConvolveArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckPass(args.pass));
  HEARTH_RETURN_IF_ERROR(CheckShape(args.shape));
  HEARTH_RETURN_IF_ERROR(CheckInputs(args.in));
  HEARTH_RETURN_IF_ERROR(Present("qkv", args.qkv));
  HEARTH_RETURN_IF_ERROR(Present("log_decay", args.log_decay));
  HEARTH_RETURN_IF_ERROR(Present("beta", args.beta));
  return CheckRing(args.pass, args.shape.taps - 1);
}

absl::Status CheckGdnWindow(const GpuGdnWindowArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckPass(args.pass));
  HEARTH_RETURN_IF_ERROR(CheckShape(args.shape));
  HEARTH_RETURN_IF_ERROR(CheckInputs(args.in));
  HEARTH_RETURN_IF_ERROR(CheckPendingRows(args.pass));
  HEARTH_RETURN_IF_ERROR(CheckOutput(args.output));
  return CheckRing(args.pass, args.shape.taps - 1);
}

absl::Status CheckGdnPrompt(const GpuGdnPromptArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckPass(args.pass));
  HEARTH_RETURN_IF_ERROR(CheckShape(args.shape));
  HEARTH_RETURN_IF_ERROR(CheckPendingRows(args.pass));
  HEARTH_RETURN_IF_ERROR(Present("qkv", args.qkv));
  HEARTH_RETURN_IF_ERROR(Present("log_decay", args.log_decay));
  HEARTH_RETURN_IF_ERROR(Present("beta", args.beta));
  HEARTH_RETURN_IF_ERROR(Present("scratch", args.scratch));
  HEARTH_RETURN_IF_ERROR(Present("mixed", args.output.mixed));
  return CheckOutput(args.output);
}

absl::Status CheckGdnFlush(const GpuGdnFlushArgs& args) {
  HEARTH_RETURN_IF_ERROR(CheckShape(args.shape));
  HEARTH_RETURN_IF_ERROR(CheckPendingRows(args.pass));
  HEARTH_RETURN_IF_ERROR(InRange("segment", args.segment, 0, kPassSegmentsMax - 1));
  return InRange("layers", args.layer_count, 1, kMixerRowsMax);
}

}  // namespace hearth
