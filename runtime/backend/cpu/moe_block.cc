// The dense parts of the mixture-of-experts block: the router before the experts, the shared expert
// and the weighted combination after them.
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/backend/cpu/pass.h"
#include "runtime/backend/cpu/route_weights.h"
#include "runtime/base/status.h"

namespace hearth {

namespace {

// The experts of every row from u, into `chosen` (rows, ranks); the logits stay in router_logits.
absl::Status ChooseExperts(PassContext& pass, const MoeWeights& w, std::span<uint32_t> chosen) {
  const ModelGeometry& g = pass.geometry();
  PassBuffers& p = pass.buffers;
  const uint32_t ranks = g.moe.experts_per_token;
  pass.projector.Run({.x = p.u.data(), .x_stride = g.hidden, .rows = pass.rows, .cols = g.hidden},
                     p.quantized, {{&w.router, p.router_logits.data(), g.moe.expert_count}});
  for (uint32_t row = 0; row < pass.rows; ++row) {
    const bool ok =
        pass.kernels.top_k.fn({.values = p.router_logits.data() + size_t{row} * g.moe.expert_count,
                               .count = g.moe.expert_count,
                               .k = ranks,
                               .index = chosen.data() + size_t{row} * ranks,
                               .scratch = p.top_k_scratch.data()});
    if (!ok) {
      return absl::DataLossError(absl::StrCat(
          "router score of row ", row, " is not a number: the weights or the state are damaged"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunRouter(PassContext& pass, const MoeWeights& w) {
  const MoeGeometry& moe = pass.geometry().moe;
  PassBuffers& p = pass.buffers;
  HEARTH_RETURN_IF_ERROR(ChooseExperts(pass, w, p.route_expert));
  for (uint32_t row = 0; row < pass.rows; ++row) {
    const size_t first = size_t{row} * moe.experts_per_token;
    RouteWeights(moe, p.router_logits.subspan(size_t{row} * moe.expert_count, moe.expert_count),
                 p.route_expert.subspan(first, moe.experts_per_token),
                 p.route_weight.subspan(first, moe.experts_per_token));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::span<const uint32_t>> RunRouterAhead(PassContext& pass,
                                                         const HyperConnectionWeights& hc,
                                                         const MoeWeights& w) {
  // u and inject are still needed by the layer at hand; the other buffers of a read are not.
  PassBuffers& p = pass.buffers;
  const std::span<float> u = std::exchange(p.u, p.ahead_u);
  const std::span<float> inject = std::exchange(p.inject, p.ahead_inject);
  ReadHyperConnection(pass, hc);
  const absl::Status status = ChooseExperts(pass, w, p.ahead_expert);
  p.u = u;
  p.inject = inject;
  HEARTH_RETURN_IF_ERROR(status);
  return p.ahead_expert.first(size_t{pass.rows} * pass.geometry().moe.experts_per_token);
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
