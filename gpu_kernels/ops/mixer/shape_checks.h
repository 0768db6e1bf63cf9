// What the operations of this folder take, checked before a launch. Pure functions of their
// arguments: InvalidArgument says what was expected and what was found.
#pragma once

#include "absl/status/status.h"

#include "gpu_kernels/ops/mixer/activate_quantize.h"
#include "gpu_kernels/ops/mixer/combine.h"
#include "gpu_kernels/ops/mixer/gdn.h"
#include "gpu_kernels/ops/mixer/hyper_connection.h"
#include "gpu_kernels/ops/mixer/ngram.h"
#include "gpu_kernels/ops/mixer/rotary.h"
#include "gpu_kernels/ops/mixer/router.h"

namespace hearth {

inline constexpr uint32_t kMixerRowsMax = 65535;  // of a pass: a grid's second dimension
inline constexpr uint32_t kMixerTapsMax = 8;

absl::Status CheckCombine(const GpuCombineArgs& args);
absl::Status CheckStreamStep(const GpuStreamStepArgs& args);
absl::Status CheckStreamMix(const GpuStreamMixArgs& args);
absl::Status CheckActivateQuantize(const GpuActivateQuantizeArgs& args);
absl::Status CheckRouter(const GpuRouterArgs& args);
absl::Status CheckRotaryTable(const GpuRotaryTableArgs& args);
absl::Status CheckNgram(const GpuNgramArgs& args);
absl::Status CheckGdnConvolve(const GpuGdnConvolveArgs& args);
absl::Status CheckGdnWindow(const GpuGdnWindowArgs& args);
absl::Status CheckGdnPrompt(const GpuGdnPromptArgs& args);
absl::Status CheckGdnFlush(const GpuGdnFlushArgs& args);

}  // namespace hearth
