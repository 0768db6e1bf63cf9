// The dense path on CPU cores. All buffers are made at creation; a pass allocates nothing.
#pragma once

#include <memory>

#include "absl/status/statusor.h"

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "pack/reader/pack.h"
#include "runtime/backend/backend.h"
#include "runtime/base/worker_team.h"
#include "runtime/model/weights.h"

namespace hearth {

struct CpuBackendDeps {  // all outlive the backend
  const ModelWeights& weights;
  const NgramFile* ngram = nullptr;  // required when the geometry has an n-gram table
  const CpuKernels& kernels;
  WorkerTeam& team;
};

struct CpuBackendOptions {
  Arithmetic arithmetic = Arithmetic::kFast;
  PassLimits limits;
};

// What a backend and one sequence of it will take, without making them.
struct CpuBackendBytes {
  uint64_t buffers = 0;
  uint64_t sequence = 0;
};
CpuBackendBytes PlanCpuBackend(const ModelGeometry& geometry, const PassLimits& limits,
                               uint32_t worker_count, uint32_t context_tokens_max);

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendDeps& deps,
                                                          const CpuBackendOptions& options);

}  // namespace hearth
