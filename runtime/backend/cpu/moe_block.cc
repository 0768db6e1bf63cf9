// The dense parts of the mixture-of-experts block: the router before the experts, the shared expert
// and the weighted combination after them.
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/backend/cpu/pass.h"
#include "runtime/backend/cpu/route_weights.h"

namespace hearth {

absl::Status RunRouter(PassContext& pass, const MoeWeights& w) {
  const ModelGeometry& g = pass.geometry();
  PassBuffers& p = pass.buffers;
  const uint32_t ranks = g.moe.experts_per_token;
  pass.projector.Run({.x = p.u.data(), .x_stride = g.hidden, .rows = pass.rows, .cols = g.hidden},
                     p.quantized, {{&w.router, p.router_logits.data(), g.moe.expert_count}});
  for (uint32_t row = 0; row < pass.rows; ++row) {
    const std::span<const float> scores =
        p.router_logits.subspan(size_t{row} * g.moe.expert_count, g.moe.expert_count);
    const std::span<uint32_t> chosen = p.route_expert.subspan(size_t{row} * ranks, ranks);
    const bool ok = pass.kernels.top_k.fn({.values = scores.data(),
                                           .count = g.moe.expert_count,
                                           .k = ranks,
                                           .index = chosen.data(),
                                           .scratch = p.top_k_scratch.data()});
    if (!ok) {
      return absl::DataLossError(absl::StrCat(
          "router score of row ", row, " is not a number: the weights or the state are damaged"));
    }
    RouteWeights(g.moe, scores, chosen, p.route_weight.subspan(size_t{row} * ranks, ranks));
  }
  return absl::OkStatus();
}

void CombineExperts(PassContext& pass, const MoeWeights& w, std::span<const float> expert_output) {
  const ModelGeometry& g = pass.geometry();
  PassBuffers& p = pass.buffers;
  const uint32_t width = g.moe.shared_width;
  const ActivationRows u{
      .x = p.u.data(), .x_stride = g.hidden, .rows = pass.rows, .cols = g.hidden};
  const bool fast = pass.arithmetic == Arithmetic::kFast;
  const QuantizedRows uq{.q = p.u_quantized.q.data(),
                         .scale = p.u_quantized.scale.data(),
                         .sum16 = p.u_quantized.sum16.data(),
                         .rows = pass.rows,
                         .cols = g.hidden};
  pass.projector.Run(u, p.quantized,
                     {{&w.shared_gate, p.shared_gate.data(), width},
                      {&w.shared_up, p.shared_up.data(), width},
                      {&w.shared_expert_gate, p.shared_scale.data(), 1}},
                     fast ? &uq : nullptr);
  pass.kernels.swiglu.fn({.gate = p.shared_gate.data(),
                          .up = p.shared_up.data(),
                          .y = p.shared_gate.data(),
                          .count = uint64_t{pass.rows} * width});
  pass.kernels.sigmoid.fn(
      {.x = p.shared_scale.data(), .y = p.shared_scale.data(), .count = pass.rows});
  pass.projector.Run(
      {.x = p.shared_gate.data(), .x_stride = width, .rows = pass.rows, .cols = width}, p.quantized,
      {{&w.shared_down, p.shared_y.data(), g.hidden}});
  const uint32_t ranks = g.moe.experts_per_token;
  ForRowRanges(pass, [&](uint32_t begin, uint32_t end) {
    pass.kernels.combine.fn({.expert_y = expert_output.data() + size_t{begin} * ranks * g.hidden,
                             .weight = p.route_weight.data() + size_t{begin} * ranks,
                             .shared = p.shared_y.data() + size_t{begin} * g.hidden,
                             .shared_gate = p.shared_scale.data() + begin,
                             .out = p.y.data() + size_t{begin} * g.hidden,
                             .rows = end - begin,
                             .ranks = ranks,
                             .hidden = g.hidden});
  });
}

}  // namespace hearth
