// The gauge sees the windows of the trunk, and those alone, and judges them by itself now and then.
#include "runtime/engine/regret_gauge.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "runtime/base/clock.h"

namespace hearth {
namespace {

constexpr uint32_t kLayers = 2;
constexpr uint32_t kExperts = 8;

std::vector<PoolShape> OnePool(uint32_t slot_count) {
  return {{.layer_count = kLayers,
           .expert_count = kExperts,
           .layers = {LayerId(0), LayerId(1)},
           .slot_count = slot_count}};
}

WindowPlan PlanOf(std::vector<uint32_t> experts, Service service) {
  WindowPlan plan;
  for (const uint32_t e : experts) {
    plan.experts.push_back({.expert = ExpertId(e), .service = service, .entry_count = 1});
  }
  return plan;
}

void Window(RegretGauge& gauge, uint32_t expert, Service service) {
  for (uint32_t l = 0; l < kLayers; ++l) {
    gauge.OnLayerServed(LayerId(l), PlanOf({expert}, service), TrafficKind::kWindow);
  }
  gauge.OnWindowEnd(1);
}

TEST(RegretGauge, CountsHitsOfTheTrunksWindowsOnly) {
  RegretGauge gauge(kLayers, kExperts, OnePool(2));
  Window(gauge, 3, Service::kCpu);
  Window(gauge, 3, Service::kVram);
  gauge.OnLayerServed(LayerId(kLayers), PlanOf({1}, Service::kCpu), TrafficKind::kWindow);  // MTP
  gauge.OnLayerServed(LayerId(0), PlanOf({1, 2}, Service::kCpu), TrafficKind::kPrompt);
  gauge.OnWindowEnd(2);  // of the prompt
  const Regret regret = gauge.Measure();
  EXPECT_EQ(regret.window_count, 2u);
  EXPECT_EQ(regret.distinct, 4u);
  EXPECT_EQ(regret.hits, 2u);
  EXPECT_EQ(regret.belady_hits, 4u);  // two slots hold all that is used
}

TEST(RegretGauge, JudgesByItselfNowAndThen) {
  RegretGauge gauge(kLayers, kExperts, OnePool(1));
  EXPECT_EQ(gauge.latest().window_count, 0u);
  for (uint32_t w = 0; w < 256; ++w) Window(gauge, w % kExperts, Service::kPcie);
  SteadyClock clock;
  const int64_t end_ns = clock.NowNs() + 30'000'000'000;
  while (gauge.latest().window_count == 0 && clock.NowNs() < end_ns) std::this_thread::yield();
  EXPECT_EQ(gauge.latest().window_count, 256u);
  EXPECT_EQ(gauge.latest().hits, 0u);
  EXPECT_GT(gauge.latest().belady_hits, 0u);
}

}  // namespace
}  // namespace hearth
