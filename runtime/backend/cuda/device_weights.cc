#include "runtime/backend/cuda/device_weights.h"

#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kWeightAlignBytes = 256;

// Gives every tensor its place, in the order in which it is asked.
class Placer {
 public:
  Placer(const std::byte* base, WeightImage* image) : base_(base), image_(image) {}

  DeviceMatrix Matrix(const MatrixView& m) {
    if (m.rows == 0) return {};
    return {.format = m.format, .rows = m.rows, .cols = m.cols, .data = Place(m.data)};
  }
  const float* Vector(std::span<const float> v) {
    return reinterpret_cast<const float*>(Place(std::as_bytes(v)));
  }
  uint64_t bytes() const { return bytes_; }

 private:
  const std::byte* Place(std::span<const std::byte> from) {
    const uint64_t offset = bytes_;
    if (image_ != nullptr) image_->copies.push_back({.from = from, .offset_bytes = offset});
    bytes_ += AlignUp(from.size(), kWeightAlignBytes);
    return base_ == nullptr ? nullptr : base_ + offset;
  }

  const std::byte* base_;  // null: only the image is wanted
  WeightImage* image_;     // null: only addresses are
  uint64_t bytes_ = 0;
};

GpuHyperConnection Place(Placer& p, const HyperConnectionWeights& w) {
  return {.norm = p.Vector(w.norm),
          .down = p.Matrix(w.down),
          .up = p.Matrix(w.up),
          .inject = p.Matrix(w.inject)};
}

GpuGdnWeights Place(Placer& p, const GdnWeights& w) {
  return {.qkv = p.Matrix(w.qkv),
          .z = p.Matrix(w.z),
          .b = p.Matrix(w.b),
          .a = p.Matrix(w.a),
          .out = p.Matrix(w.out),
          .conv = p.Vector(w.conv),
          .a_log = p.Vector(w.a_log),
          .dt_bias = p.Vector(w.dt_bias),
          .norm = p.Vector(w.norm)};
}

GpuQsaWeights Place(Placer& p, const QsaWeights& w) {
  return {.q = p.Matrix(w.q),
          .k = p.Matrix(w.k),
          .v = p.Matrix(w.v),
          .o = p.Matrix(w.o),
          .q_norm = p.Vector(w.q_norm),
          .k_norm = p.Vector(w.k_norm),
          .index_qk = p.Matrix(w.index_qk),
          .index_q_norm = p.Vector(w.index_q_norm),
          .index_k_norm = p.Vector(w.index_k_norm)};
}

GpuMoeWeights Place(Placer& p, const MoeWeights& w) {
  return {.router = p.Matrix(w.router),
          .shared_gate = p.Matrix(w.shared_gate),
          .shared_up = p.Matrix(w.shared_up),
          .shared_down = p.Matrix(w.shared_down),
          .shared_expert_gate = p.Matrix(w.shared_expert_gate)};
}

GpuNgramWeights Place(Placer& p, const NgramWeights& w) {
  return {.key = p.Matrix(w.key),
          .value = p.Matrix(w.value),
          .norm_key = p.Vector(w.norm_key),
          .norm_query = p.Vector(w.norm_query),
          .norm_conv = p.Vector(w.norm_conv),
          .conv = p.Vector(w.conv)};
}

GpuLayerWeights Place(Placer& p, const LayerWeights& w) {
  GpuLayerWeights out;
  out.mixer = w.mixer;
  if (w.ngram) out.ngram = Place(p, *w.ngram);
  out.mixer_hc = Place(p, w.mixer_hc);
  if (w.mixer == MixerKind::kGdn) {
    out.gdn = Place(p, w.gdn);
  } else {
    out.qsa = Place(p, w.qsa);
  }
  out.moe_hc = Place(p, w.moe_hc);
  out.moe = Place(p, w.moe);
  return out;
}

GpuModelWeights Place(Placer& p, const ModelWeights& w) {
  GpuModelWeights out;
  for (const LayerWeights& layer : w.layers) out.layers.push_back(Place(p, layer));
  out.final_mixer = Place(p, w.final_mixer);
  out.lm_head = p.Matrix(w.lm_head);
  if (!w.mtp) return out;
  GpuMtpWeights& mtp = out.mtp.emplace();
  mtp.norm_embedding = p.Vector(w.mtp->norm_embedding);
  mtp.norm_hidden = p.Vector(w.mtp->norm_hidden);
  mtp.fc_embedding = p.Matrix(w.mtp->fc_embedding);
  mtp.fc_hidden = p.Matrix(w.mtp->fc_hidden);
  mtp.layer = Place(p, w.mtp->layer);
  mtp.mixer = Place(p, w.mtp->mixer);
  return out;
}

}  // namespace

WeightImage PlanWeightImage(const ModelWeights& weights) {
  WeightImage image;
  Placer placer(nullptr, &image);
  (void)Place(placer, weights);
  image.bytes = placer.bytes();
  return image;
}

GpuModelWeights PlaceWeights(const ModelWeights& weights, const std::byte* base) {
  Placer placer(base, nullptr);
  return Place(placer, weights);
}

}  // namespace hearth
