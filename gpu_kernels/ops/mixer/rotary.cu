// The kernel of rotary.h: a block of threads for each row, a thread for each frequency.
#include <cmath>

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/launch.cuh"
#include "gpu_kernels/ops/mixer/pass_rows.cuh"
#include "gpu_kernels/ops/mixer/rotary.h"
#include "gpu_kernels/ops/mixer/shape_checks.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

struct Frequencies {  // computed on the host, as the CPU does
  double of[kRotaryDimMax / 2];
};

__global__ void RotaryTableKernel(const GpuRotaryTableArgs args,
                                  const __grid_constant__ Frequencies frequencies) {
  AwaitLaunchBefore();
  AllowLaunchAfter();
  const uint32_t row = blockIdx.x;
  const uint32_t half = args.rotary_dim / 2;
  if (threadIdx.x >= half) return;
  const uint32_t position = PlaceOf(args.pass, row).position;
  const double frequency = frequencies.of[threadIdx.x];
  const size_t at = size_t{row} * half + threadIdx.x;
  double s;
  double c;
  sincos(position * frequency, &s, &c);
  args.cos[at] = static_cast<float>(c);
  args.sin[at] = static_cast<float>(s);
  if (args.block_cos == nullptr) return;
  sincos(position / args.block_tokens * args.block_tokens * frequency, &s, &c);
  args.block_cos[at] = static_cast<float>(c);
  args.block_sin[at] = static_cast<float>(s);
}

}  // namespace

absl::Status LaunchRotaryTable(const GpuRotaryTableArgs& args, CudaStreamView stream) {
  HEARTH_RETURN_IF_ERROR(CheckRotaryTable(args));
  HEARTH_RETURN_IF_ERROR(SelectGpu(stream.gpu()));
  const uint32_t half = args.rotary_dim / 2;
  Frequencies frequencies = {};
  for (uint32_t i = 0; i < half; ++i) {
    frequencies.of[i] = std::pow(args.theta, -2.0 * i / args.rotary_dim);
  }
  return LaunchOverlapping("launch of the rotary tables", RotaryTableKernel,
                           {.blocks = args.pass.rows, .threads = (half + 31) / 32 * 32}, stream,
                           args, frequencies);
}

}  // namespace hearth
