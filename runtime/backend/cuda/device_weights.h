// The dense weights of a model in the memory of a card: one allocation, every matrix in the pack's
// layout. The embedding table stays on the host, which looks up its rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "gpu_kernels/ops/dense/dense_matmul.h"
#include "runtime/model/weights.h"

namespace hearth {

// Each mirrors its namesake of runtime/model/weights.h; all addresses are the card's.
struct GpuHyperConnection {
  const float* norm = nullptr;
  DeviceMatrix down;
  DeviceMatrix up;
  DeviceMatrix inject;  // no rows in a final mixer
};

struct GpuGdnWeights {
  DeviceMatrix qkv;
  DeviceMatrix z;
  DeviceMatrix b;
  DeviceMatrix a;
  DeviceMatrix out;
  const float* conv = nullptr;
  const float* a_log = nullptr;
  const float* dt_bias = nullptr;
  const float* norm = nullptr;
};

struct GpuQsaWeights {
  DeviceMatrix q;
  DeviceMatrix k;
  DeviceMatrix v;
  DeviceMatrix o;
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  DeviceMatrix index_qk;
  const float* index_q_norm = nullptr;
  const float* index_k_norm = nullptr;
};

struct GpuMoeWeights {
  DeviceMatrix router;
  DeviceMatrix shared_gate;
  DeviceMatrix shared_up;
  DeviceMatrix shared_down;
  DeviceMatrix shared_expert_gate;
};

struct GpuNgramWeights {
  DeviceMatrix key;
  DeviceMatrix value;
  const float* norm_key = nullptr;
  const float* norm_query = nullptr;
  const float* norm_conv = nullptr;
  const float* conv = nullptr;
};

struct GpuLayerWeights {
  MixerKind mixer = MixerKind::kGdn;
  GpuHyperConnection mixer_hc;
  GpuHyperConnection moe_hc;
  GpuGdnWeights gdn;
  GpuQsaWeights qsa;
  GpuMoeWeights moe;
  std::optional<GpuNgramWeights> ngram;
};

struct GpuMtpWeights {
  const float* norm_embedding = nullptr;
  const float* norm_hidden = nullptr;
  DeviceMatrix fc_embedding;
  DeviceMatrix fc_hidden;
  GpuLayerWeights layer;
  GpuHyperConnection mixer;
};

struct GpuModelWeights {
  DeviceMatrix lm_head;
  GpuHyperConnection final_mixer;
  std::vector<GpuLayerWeights> layers;
  std::optional<GpuMtpWeights> mtp;
  const GpuLayerWeights& layer(uint32_t index) const {
    return index < layers.size() ? layers[index] : mtp->layer;
  }
};

// One piece of host memory and where it goes.
struct WeightCopy {
  std::span<const std::byte> from;
  uint64_t offset_bytes = 0;
};

struct WeightImage {
  uint64_t bytes = 0;              // of the allocation
  std::vector<WeightCopy> copies;  // ascending, not overlapping; offsets are multiples of 256
};

// Where everything goes; pure. The image borrows the host's weights.
WeightImage PlanWeightImage(const ModelWeights& weights);
// The same places as addresses from `base` on.
GpuModelWeights PlaceWeights(const ModelWeights& weights, const std::byte* base);

}  // namespace hearth
