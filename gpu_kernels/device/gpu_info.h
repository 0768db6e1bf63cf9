// Which GPUs there are and what bounds a kernel's choices there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/ids.h"

namespace hearth {

using GpuId = Id<struct GpuTag>;  // CUDA's device ordinal, 0-based

// What plans may rely on; see PlanExpertFfn.
struct GpuLimits {
  uint32_t multiprocessor_count = 0;
  uint32_t shared_bytes_per_block_max = 0;  // after opting in
  uint32_t sm = 0;                          // as GpuInfo has it; 0: any
};

struct GpuInfo {
  GpuId id;
  std::string name;
  uint32_t sm = 0;          // 10 * major + minor: 90 for compute capability 9.0
  bool has_kernels = true;  // this build has code that it runs
  uint64_t memory_bytes = 0;
  uint64_t l2_bytes = 0;
  GpuLimits limits;
};

struct GpuList {
  std::vector<GpuInfo> gpus;
  std::string reason;           // why `gpus` is empty; empty otherwise
  std::string architectures;    // that this build has kernels for, as "86-real,90"
  uint32_t driver_version = 0;  // newest CUDA that the driver serves: 13000 is 13.0; 0: no driver
  uint32_t runtime_version = 0;
};

// A machine without a driver or without a GPU is an empty list with its reason. Creates no context
// and so takes no device memory. Unimplemented in a build without CUDA.
absl::StatusOr<GpuList> ListGpus();

// Whether kernels that were compiled for `architectures` run on a card of this compute capability.
// In CMake's terms, with commas: 86 is machine code for 8.6 and later 8.x and a form that the
// driver compiles for everything newer, -real and -virtual are one of the two; 120a is for 12.0
// alone.
bool ArchitecturesServe(std::string_view architectures, uint32_t sm);

// "13.0" for 13000.
std::string CudaVersionName(uint32_t version);

}  // namespace hearth
