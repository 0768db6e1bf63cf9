// The dense path on a CUDA card. Weights, sequence states and activations stay there; the host
// looks up embeddings and n-gram rows, computes the routed experts that are not on the card, and
// gets routes and logits. All buffers are made at creation; a pass allocates nothing.
//
// Fast arithmetic only. The bits of a window's row do not depend on the other rows of its pass.
// Includable with CUDA and without; without, everything here is Unimplemented.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"

#include "gpu_kernels/device/gpu_info.h"
#include "gpu_kernels/ops/pass_table.h"
#include "pack/reader/pack.h"
#include "runtime/backend/backend.h"
#include "runtime/base/clock.h"
#include "runtime/base/worker_team.h"
#include "runtime/model/weights.h"

namespace hearth {

struct CudaBackendDeps {  // all outlive the backend
  const ModelWeights& weights;
  const NgramFile* ngram = nullptr;  // required when the geometry has an n-gram table
  Clock& clock;
  WorkerTeam* team = nullptr;  // shares the lookups of prompts; null: the caller's thread alone
};

struct CudaBackendOptions {
  GpuId gpu{0};
  Arithmetic arithmetic = Arithmetic::kFast;
  PassLimits limits;  // window_rows_max <= 16
  KvFormat kv_format = KvFormat::kBf16;
  uint32_t context_tokens_max = 0;  // of any sequence; 0: the model's own
  bool rotated_rows = false;        // experts of some layer are in XT: GpuExpertIo has u_rotated
  // The host reads experts' rows in fp32, for some layer: recorded windows bring them, too.
  bool fp32_rows = true;
  bool recorded_windows = false;  // windows are graphs; otherwise launched layer by layer
  // How long the host waits for the card in one half layer before it gives the pass up.
  int64_t wait_ns_max = 10'000'000'000;
};

// What a backend and one sequence of it will take, without making them.
struct CudaBackendBytes {
  uint64_t weights = 0;   // on the card
  uint64_t buffers = 0;   // on the card
  uint64_t sequence = 0;  // on the card, for the asked context
  uint64_t pinned = 0;    // host memory that is pinned
  uint64_t card_bytes() const { return weights + buffers + sequence; }
};

// Dense weights as they lie on a card, from a pack's directory: all but the embedding table.
uint64_t CudaWeightBytes(const Pack& pack);

// InvalidArgument for a model or limits that the kernels do not cover.
absl::StatusOr<CudaBackendBytes> PlanCudaBackend(const ModelGeometry& geometry,
                                                 uint64_t weight_bytes,
                                                 const CudaBackendOptions& options,
                                                 uint32_t context_tokens_max);

// Keys and values of a position in one layer; of images of sequences, too.
constexpr uint64_t CudaPositionBytes(const AttentionGeometry& attention, KvFormat kv_format) {
  const uint64_t head_bytes = kv_format == KvFormat::kInt8 ? attention.head_dim + sizeof(float)
                                                           : attention.head_dim * uint64_t{2};
  return 2 * attention.kv_head_count * head_bytes;
}

using UploadProgress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;

// Uploads the weights. Unimplemented for reference arithmetic; ResourceExhausted when the card or
// pinned memory has no room, with what to lower; the status of the driver when there is none.
absl::StatusOr<std::unique_ptr<Backend>> CreateCudaBackend(const CudaBackendDeps& deps,
                                                           const CudaBackendOptions& options,
                                                           const UploadProgress& progress);

}  // namespace hearth
