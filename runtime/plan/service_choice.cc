#include "runtime/plan/service_choice.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr double kAverageStep = 1.0 / 16;  // how far an average follows one measurement
constexpr double kSplitStep = 1.0 / 8;     // the same of a split's, which may have few of them
// What a further row costs of an expert's first one before that is known: the weights are in the
// cache by then, the arithmetic is not done.
constexpr double kFirstRowRatio = 0.25;
// Of the misses, the part that the CPU is given to learn its cost, where uploads come first.
constexpr uint32_t kCpuProbeShare = 16;
// A share times a count that should be a whole number may come out this much below it.
constexpr double kShareRounding = 1e-9;

// y = x0 * a + x1 * b, where the two costs a and b are sought: moves both along their regressors
// (normalised least mean squares). The error counts for at most what was expected itself.
void FollowMeasurement(double x0, double x1, double y, double& a, double& b,
                       double average_step = kAverageStep) {
  const double expected = x0 * a + x1 * b;
  const double error = std::clamp(y - expected, -expected, expected);
  const double step = average_step * error / (x0 * x0 + x1 * x1);
  a = std::max(a + step * x0, 0.0);
  b = std::max(b + step * x1, 0.0);
}

// Uploads that the limits allow of `miss_count` experts, whatever they cost.
uint32_t UploadLimit(const ServiceLimits& limits, uint32_t miss_count) {
  if (limits.blob_bytes == 0) return 0;
  uint64_t most = std::min(miss_count, limits.uploads_max);
  most = std::min(most, limits.pcie_bytes_left / limits.blob_bytes);
  if (limits.pcie_share >= 0) {
    const double share = std::min(limits.pcie_share, 1.0);
    most = std::min(most, static_cast<uint64_t>(share * miss_count + kShareRounding));
  }
  return static_cast<uint32_t>(most);
}

// The n of 0 to `most` with the least T(n). `misses` are indices into plan.experts, of which the
// first n would be uploaded.
uint32_t LeastTime(const WindowPlan& plan, std::span<const uint32_t> misses, uint32_t most,
                   const ServiceCosts& costs) {
  uint64_t rows = 0;
  for (const uint32_t index : misses) rows += plan.experts[index].entry_count;
  uint64_t experts = misses.size();
  const double dram_ns = static_cast<double>(experts) * costs.dram_expert_ns;
  uint32_t best = 0;
  double best_ns = 0;
  for (uint32_t n = 0; n <= most; ++n) {
    const double cpu_ns = static_cast<double>(experts) * costs.cpu_expert_ns +
                          static_cast<double>(rows - experts) * costs.cpu_row_ns;
    const double pcie_ns = n == 0 ? 0 : costs.pcie_layer_ns + n * costs.pcie_expert_ns;
    const double layer_ns = std::max({cpu_ns, pcie_ns, dram_ns});
    if (n == 0 || layer_ns < best_ns) {
      best = n;
      best_ns = layer_ns;
    }
    if (n == most) break;
    --experts;
    rows -= plan.experts[misses[n]].entry_count;
  }
  return best;
}

}  // namespace

void UpdateCosts(const LayerMeasurement& measured, ServiceCosts& costs) {
  if (measured.cpu_experts > 0 && measured.cpu_ns > 0) {
    const double experts = measured.cpu_experts;
    const double further_rows =
        measured.cpu_rows > measured.cpu_experts ? measured.cpu_rows - experts : 0;
    const auto ns = static_cast<double>(measured.cpu_ns);
    if (costs.cpu_expert_ns <= 0) {
      costs.cpu_expert_ns = ns / (experts + kFirstRowRatio * further_rows);
      costs.cpu_row_ns = kFirstRowRatio * costs.cpu_expert_ns;
    } else {
      FollowMeasurement(experts, further_rows, ns, costs.cpu_expert_ns, costs.cpu_row_ns);
    }
  }
  if (measured.pcie_experts > 0 && measured.pcie_ns > 0) {
    const double experts = measured.pcie_experts;
    const auto ns = static_cast<double>(measured.pcie_ns);
    if (costs.pcie_expert_ns <= 0) {
      costs.pcie_expert_ns = std::max(ns - costs.pcie_layer_ns, 1.0) / experts;
    } else {
      FollowMeasurement(experts, 1, ns, costs.pcie_expert_ns, costs.pcie_layer_ns);
    }
  }
}

void UpdateSplit(const SplitMeasurement& measured, SplitCosts& costs) {
  const auto update = [](uint32_t experts, int64_t measured_ns, double& expert_ns,
                         double& layer_ns) {
    if (experts == 0 || measured_ns <= 0) return;
    const auto ns = static_cast<double>(measured_ns);
    if (expert_ns <= 0) {
      expert_ns = ns / experts;
    } else {
      FollowMeasurement(experts, 1, ns, expert_ns, layer_ns, kSplitStep);
    }
  };
  update(measured.cpu_experts, measured.cpu_ns, costs.cpu_expert_ns, costs.cpu_layer_ns);
  update(measured.link_experts, measured.link_ns, costs.link_expert_ns, costs.link_layer_ns);
}

void SplitMisses(double share, const SplitCosts& costs, std::span<uint8_t> streamed) {
  const auto slower_ns = [&costs](size_t cpu, size_t link) {
    const double cpu_ns =
        cpu == 0 ? 0 : costs.cpu_layer_ns + static_cast<double>(cpu) * costs.cpu_expert_ns;
    const double link_ns =
        link == 0 ? 0 : costs.link_layer_ns + static_cast<double>(link) * costs.link_expert_ns;
    return std::max(cpu_ns, link_ns);
  };
  const bool costs_known = costs.cpu_expert_ns > 0 && costs.link_expert_ns > 0;
  size_t n = 0;
  for (size_t misses = 0; misses < streamed.size(); ++misses) {
    if (share >= 0) {
      n = static_cast<size_t>(std::min(share, 1.0) * static_cast<double>(misses) + kShareRounding);
    } else if (costs_known) {
      while (n < misses && slower_ns(misses - n - 1, n + 1) < slower_ns(misses - n, n)) ++n;
    }
    streamed[misses] = static_cast<uint8_t>(std::min<size_t>(n, UINT8_MAX));
  }
}

uint32_t ChooseServices(std::span<const Residency> residency, const MissHints& hints,
                        const ServiceLimits& limits, const ServiceCosts& costs, WindowPlan& plan) {
  HEARTH_CHECK(residency.size() == plan.experts.size());
  HEARTH_CHECK(hints.heat.empty() || hints.heat.size() == residency.size());
  HEARTH_CHECK(hints.wanted.empty() || hints.wanted.size() == residency.size());
  if (plan.counts.size() < residency.size()) plan.counts.resize(residency.size());
  uint32_t miss_count = 0;
  for (uint32_t i = 0; i < residency.size(); ++i) {
    switch (residency[i]) {
      case Residency::kVram:
        plan.experts[i].service = Service::kVram;
        break;
      case Residency::kNvme:
        plan.experts[i].service = Service::kSsd;
        break;
      case Residency::kRam:
        plan.experts[i].service = Service::kCpu;
        plan.counts[miss_count++] = i;
        break;
    }
  }
  uint32_t most = UploadLimit(limits, miss_count);
  const bool is_automatic = !(limits.pcie_share >= 0);
  const bool costs_known = costs.cpu_expert_ns > 0 && costs.pcie_expert_ns > 0;
  const bool uploads_first = limits.uploads_first && costs.cpu_expert_ns <= 0;
  if (is_automatic && uploads_first) {
    most = std::min(most, miss_count - std::min(miss_count, 1 + miss_count / kCpuProbeShare));
  } else if (is_automatic && !costs_known) {
    most = costs.pcie_expert_ns > 0 ? 0 : std::min({most, limits.probes_left, 1u});
  }
  if (most == 0) return 0;

  const std::span<uint32_t> misses = std::span(plan.counts).first(miss_count);
  const auto heat = [&](uint32_t i) {  // not a number: colder than all
    return hints.heat.empty() || std::isnan(hints.heat[i]) ? -INFINITY : hints.heat[i];
  };
  const auto comes_first = [&](uint32_t a, uint32_t b) {
    const bool a_wanted = !hints.wanted.empty() && hints.wanted[a] != 0;
    const bool b_wanted = !hints.wanted.empty() && hints.wanted[b] != 0;
    if (a_wanted != b_wanted) return a_wanted;
    const float a_heat = heat(a);
    const float b_heat = heat(b);
    return a_heat != b_heat ? a_heat > b_heat : a < b;
  };
  std::partial_sort(misses.begin(), misses.begin() + most, misses.end(), comes_first);
  const uint32_t uploads =
      is_automatic && costs_known ? LeastTime(plan, misses, most, costs) : most;
  for (const uint32_t index : misses.first(uploads)) plan.experts[index].service = Service::kPcie;
  return uploads;
}

}  // namespace hearth
