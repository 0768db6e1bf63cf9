// The kernel of gpu_kernels/ops/expert_ffn_stream.h, for every architecture with integer tensor
// cores and asynchronous copies (sm_80 and later).
#include "absl/strings/str_cat.h"

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/expert_ffn_stream.h"
#include "gpu_kernels/ops/expert_ffn_stream_warp.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

template <int kRows>
__global__ void __launch_bounds__((kFfnWarpsMax + 1) * 32, 1)
    ExpertFfnKernel(const __grid_constant__ FfnKernelArgs args) {
  extern __shared__ __align__(128) std::byte shared[];
  const uint32_t warps = args.warps.value;
  auto* control = reinterpret_cast<FfnControl*>(shared + warps * kFfnWarpBytes +
                                                args.grain_slots * args.grain_sum_floats * 4);
  control->Init(threadIdx.x, args.grain_pairs.value, args.rows_max);
  __syncthreads();
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const uint32_t items = FfnItemCount(args);
  if (items == 0) return;
  if (threadIdx.x / 32 < warps) {
    FfnWarp<kRows>(args, shared, control).Run();
  } else {
    FfnPoster(args, items, control).Run();
  }
}

FfnPhase PhaseOf(const ExpertLayout& layout, Projection first) {
  const Projection second = first == Projection::kGate ? Projection::kUp : first;
  FfnPhase phase = {};
  phase.cols = layout.cols(first);
  phase.segments = FfnSegments(phase.cols);
  phase.band_count = BandCount(layout.rows(first));
  phase.band_bytes = static_cast<uint32_t>(layout.band_bytes(first));
  phase.pairs = FfnDivisor::Of(FfnPairs(phase.cols));
  phase.projection_offset_bytes[0] = static_cast<uint32_t>(layout.projection_offset_bytes(first));
  phase.projection_offset_bytes[1] = static_cast<uint32_t>(layout.projection_offset_bytes(second));
  return phase;
}

FfnKernelArgs KernelArgsOf(const ExpertFfnDesc& desc, const ExpertFfnPlan& plan,
                           const ExpertFfnArgs& args) {
  FfnKernelArgs kernel = {};
  kernel.items = args.items;
  kernel.item_count = args.item_count;
  kernel.item_limit = desc.item_count;
  kernel.multiplier_offset_bytes =
      static_cast<uint32_t>(desc.layout.scale_offset_bytes(Projection::kGate));
  kernel.rows_max = desc.rows_max;
  kernel.entries = args.entries;
  FfnPhase& gate_up = kernel.phases[kGateUpPhase];
  FfnPhase& down = kernel.phases[kDownPhase];
  gate_up = PhaseOf(desc.layout, Projection::kGate);
  gate_up.x_q = args.q;
  gate_up.x_scale = args.scale;
  kernel.h_q = reinterpret_cast<int8_t*>(args.workspace + plan.h_offset_bytes);
  kernel.h_scale = reinterpret_cast<float*>(args.workspace + plan.h_scale_offset_bytes);
  down = PhaseOf(desc.layout, Projection::kDown);
  down.x_q = kernel.h_q;
  down.x_scale = kernel.h_scale;
  kernel.grain_pairs = FfnDivisor::Of(kGrainBands * gate_up.pairs.value);
  kernel.grains_per_item = FfnDivisor::Of(ActivationBlocks(desc.layout.width));
  kernel.bands_per_item = FfnDivisor::Of(down.band_count);
  kernel.blocks = FfnDivisor::Of(plan.stream.blocks);
  kernel.warps = FfnDivisor::Of(plan.stream.warps);
  kernel.rows = FfnDivisor::Of(desc.rows_max);
  kernel.grain_sum_floats = FfnGrainSumBytes(gate_up.segments, desc.rows_max) / 4;
  kernel.grain_slots = plan.stream.grain_slots;
  kernel.y = args.y;
  kernel.y_stride = args.y_stride;
  kernel.done_entries = reinterpret_cast<uint32_t*>(args.workspace);
  kernel.done_blocks = kernel.done_entries + kStreamItemsMax;
  return kernel;
}

}  // namespace

absl::Status ResetExpertFfnWorkspace(const DeviceBuffer& workspace, CudaStreamView stream) {
  if (workspace.bytes() < kFfnCounterBytes) {
    return absl::OutOfRangeError(absl::StrCat("workspace of NVFP4 experts: ", workspace.bytes(),
                                              " bytes, its counters take ", kFfnCounterBytes));
  }
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  return CudaStatus(cudaMemsetAsync(workspace.data(), 0, kFfnCounterBytes, stream.get()),
                    "reset of the workspace of NVFP4 experts");
}

absl::Status LaunchExpertFfnStream(const ExpertFfnDesc& desc, const ExpertFfnPlan& plan,
                                   const ExpertFfnArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const ExpertFfnStreamPlan& cut = plan.stream;
  const auto kernel = desc.rows_max <= 2 ? ExpertFfnKernel<2> : ExpertFfnKernel<4>;
  HEARTH_RETURN_IF_ERROR(
      CudaStatus(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(cut.shared_bytes)),
                 absl::StrCat("expert kernel with ", cut.shared_bytes, " bytes of shared memory")));
  return LaunchOverlapping("expert kernel", kernel,
                           {.blocks = dim3(cut.blocks),
                            .threads = dim3((cut.warps + 1) * 32),
                            .shared_bytes = cut.shared_bytes},
                           stream, KernelArgsOf(desc, plan, args));
}

}  // namespace hearth
