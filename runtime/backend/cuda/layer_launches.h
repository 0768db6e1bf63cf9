// The sequence of launches that takes a pass through the model on a card, in halves of layers. Each
// function enqueues on the pass's stream and returns: nothing waits, allocates or looks at what
// the card has computed, so that all of it can be recorded into a graph.
//
// Composition: runtime/backend/cpu. Fused here: what a block writes into the residual streams and
// the norm of the block that reads next are one launch, so that a half layer ends with the read's
// norm of the half after it.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/attention/qsa.h"
#include "gpu_kernels/ops/exchange/output_wait.h"
#include "gpu_kernels/ops/mixer/activate_quantize.h"
#include "gpu_kernels/ops/mixer/router.h"
#include "gpu_kernels/ops/pass_table.h"
#include "pack/format/geometry.h"
#include "runtime/backend/cuda/device_weights.h"
#include "runtime/backend/cuda/pass_buffers.h"

namespace hearth {

struct GpuPass {
  // All outlive the pass.
  const ModelGeometry& geometry;
  const GpuModelWeights& weights;
  const GpuPassBuffers& buffers;
  uint32_t* nan_flag;  // set to 1 for a router score that is no number; may be mapped host memory
  CudaStreamView stream;
  QsaDesc qsa;
  QsaPlan qsa_plan;

  // The pass at hand.
  GpuPassTable table;
  uint32_t rows = 0;
  bool window = true;         // false: a prompt, whose rows all count
  bool draft = false;         // the MTP layer's
  bool choose_blocks = true;  // some row may have more blocks than it may attend to
};

// Where the combine finds outputs that the host computed: addresses as the card sees them.
struct HostOutputs {
  const float* y = nullptr;          // (rows * ranks, hidden)
  const uint8_t* on_card = nullptr;  // (rows * ranks)
  OutputWait wait;                   // until both are there, for who cannot know when it launches
};

// Trunk: the streams from the tokens' embeddings, `embed` (rows, hidden).
absl::Status EnqueueEmbedding(const GpuPass& pass, const float* embed);
// Draft: the streams from embeddings and the hidden states in buffers.draft_hidden.
absl::Status EnqueueDraftInput(const GpuPass& pass, const float* embed);
// Rotary tables of the rows' positions.
absl::Status EnqueueRotaryTables(const GpuPass& pass);

// Everything up to the router's scores: mixer, scores, the experts' input in fp32 and quantised,
// and the shared expert's first product. `ngram_embed` (rows, embed_dim): for the layer that reads
// it. RouterChoice() comes next, by LaunchRouter or in a launch of more.
absl::Status EnqueueFirstHalf(const GpuPass& pass, uint32_t layer, const float* ngram_embed);
GpuRouterArgs RouterChoice(const GpuPass& pass);
// What may run while the host looks at the routes: the experts' input in XT's form where that is
// wanted, and the rest of the shared expert, which needs nothing of the routed ones.
absl::Status EnqueueBeforeExperts(const GpuPass& pass, uint32_t layer);
// The same in two parts, the first of which may be in a launch of more.
GpuActivateQuantizeArgs SharedActivation(const GpuPass& pass);
absl::Status EnqueueAfterActivation(const GpuPass& pass, uint32_t layer);
// Experts combined in rank order and written into the streams. Without outputs of the host (y ==
// null) every entry is in buffers.expert_y.
absl::Status EnqueueSecondHalf(const GpuPass& pass, uint32_t layer, const HostOutputs& outputs);

// The routes that `layer` would choose from buffers.h as it is, into buffers.route_expert; works in
// the buffers of ReserveAheadBuffers() alone.
absl::Status EnqueueRouterAhead(const GpuPass& pass, uint32_t layer);

// Logits of rows [row_begin, row_begin + row_count) into buffers.logits; row_count <= kHeadRows.
// After the last layer.
absl::Status EnqueueHead(const GpuPass& pass, uint32_t row_begin, uint32_t row_count);

}  // namespace hearth
