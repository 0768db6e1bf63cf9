// Experts out of a card's slots: the bits of the CPU's pool for NVFP4 and XT, for windows and
// pieces of prompts, wherever each expert is.
#include "runtime/experts/cuda_card.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/gpu_kernels/gpu_fixture.h"
#include "tests/runtime/experts/cuda_rig.h"

namespace hearth {
namespace {

class CudaCardOnGpu : public OnGpu {};

TEST(CudaCard, NothingCanBeMadeWithoutAGpu) {
  const absl::StatusOr<GpuList> list = ListGpus();
  if (list.ok() && !list->gpus.empty()) GTEST_SKIP() << "this machine has a GPU";
  CudaRig rig(GpuInfo{.id = GpuId(0)}, {.pins = false});
  const absl::Status status = rig.Make();
  EXPECT_EQ(status.code(),
            list.ok() ? absl::StatusCode::kUnavailable : absl::StatusCode::kUnimplemented)
      << status;
}

struct CardCase {
  const char* name;
  std::vector<ExpertFormat> formats;
};

class CudaCardPlacements : public CudaCardOnGpu, public testing::WithParamInterface<CardCase> {};

TEST_P(CudaCardPlacements, OutputsAreThePools) {
  for (const double share : {0.0, 0.5, 1.0}) {
    for (const bool pins : {true, false}) {
      for (const SlotBudget& budget : {SlotBudget{.slot_count = 14}, SlotBudget{.share = 1}}) {
        SCOPED_TRACE(testing::Message() << share << " " << pins << " " << budget.share);
        CudaRig rig(gpu(), {.model = {.formats = GetParam().formats},
                            .budget = budget,
                            .pcie_share = share,
                            .pins = pins});
        const absl::Status made = rig.Make();
        ASSERT_TRUE(made.ok()) << made;
        for (uint32_t p = 0; p < 12; ++p) {
          const bool prompt = p % 6 == 0;
          const uint32_t rows = prompt ? 40 : p % 9 + 1;
          for (uint32_t l = 0; l < GetParam().formats.size(); ++l) {
            rig.RunChecked(LayerId(l), rows, p * 31 + l,
                           prompt ? TrafficKind::kPrompt : TrafficKind::kWindow);
            if (HasFatalFailure()) return;
          }
          rig.tiers().EndWindow(rows);
        }
        EXPECT_GT(rig.on_card_count(), 0u);
        EXPECT_GT(rig.distinct(Service::kVram), 0u);
        EXPECT_GT(rig.tiers().ledger().total().of(Service::kVram).ns, 0);
        EXPECT_EQ(rig.device().stats().staged_count > 0, !pins);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, CudaCardPlacements,
    testing::Values(CardCase{"Nvfp4", {ExpertFormat::kNvfp4, ExpertFormat::kNvfp4}},
                    CardCase{"Xt", {ExpertFormat::kXt, ExpertFormat::kXt}},
                    CardCase{"Mixed", {ExpertFormat::kNvfp4, ExpertFormat::kXt}}),
    [](const auto& test) { return test.param.name; });

// Passes of many rows, which tensor cores compute, between windows, which they do not.
TEST_F(CudaCardOnGpu, PromptsHaveThePoolsBitsWhereverTheirExpertsAre) {
  const std::vector<ExpertFormat> formats = {ExpertFormat::kNvfp4, ExpertFormat::kXt,
                                             ExpertFormat::kNvfp4};
  for (const double share : {-1.0, 0.0, 0.5, 1.0}) {
    for (const bool pins : {true, false}) {
      SCOPED_TRACE(testing::Message() << share << " " << pins);
      CudaRig rig(gpu(), {.model = {.expert_count = 40, .formats = formats},
                          .rows_max = 400,  // 40 of an expert: on warpgroups, where a card has them
                          .budget = {.share = 0.4},
                          .pcie_share = share,
                          .pins = pins});
      const absl::Status made = rig.Make();
      ASSERT_TRUE(made.ok()) << made;
      uint32_t p = 0;
      for (const uint32_t rows : {kCudaPromptRowsMin, 3u, 400u, kCudaPromptRowsMin - 1, 1u, 211u}) {
        for (uint32_t l = 0; l < formats.size(); ++l) {
          rig.RunChecked(LayerId(l), rows, ++p,
                         rows > 9 ? TrafficKind::kPrompt : TrafficKind::kWindow);
          if (HasFatalFailure()) return;
        }
        rig.tiers().EndWindow(rows);
      }
      EXPECT_GT(rig.distinct(Service::kVram), 0u);
      EXPECT_EQ(rig.distinct(Service::kPcie) > 0, share != 0);
    }
  }
}

TEST_F(CudaCardOnGpu, FullSizeExpertsHaveThePoolsBits) {
  CudaRig rig(gpu(), {.model = {.hidden = 2560,
                                .width = 640,
                                .expert_count = 16,
                                .ranks = 10,
                                .formats = {ExpertFormat::kNvfp4, ExpertFormat::kXt}},
                      .rows_max = 9,
                      .budget = {.share = 0.6}});
  const absl::Status made = rig.Make();
  ASSERT_TRUE(made.ok()) << made;
  for (uint32_t p = 0; p < 6; ++p) {
    const uint32_t rows = p + 1;
    for (uint32_t l = 0; l < 2; ++l) {
      rig.RunChecked(LayerId(l), rows, p, p == 0 ? TrafficKind::kPrompt : TrafficKind::kWindow);
      if (HasFatalFailure()) return;
    }
    rig.tiers().EndWindow(rows);
  }
  EXPECT_GT(rig.distinct(Service::kVram), 0u);
  EXPECT_GT(rig.distinct(Service::kPcie), 0u);
  EXPECT_GT(rig.distinct(Service::kCpu), 0u);
}

}  // namespace
}  // namespace hearth
