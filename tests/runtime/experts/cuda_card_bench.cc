// What a layer costs with a card: the host's time to give it its part, the card's time, and the
// rate at which experts of host memory pass through it. Full-size NVFP4 experts. Prints a table.
#include <algorithm>
#include <cstdio>
#include <vector>

#include "tests/runtime/experts/cuda_rig.h"

namespace hearth {
namespace {

constexpr uint32_t kRounds = 12;
constexpr uint32_t kPromptRounds = 4;

struct BenchCase {
  const char* what;
  uint32_t rows;
  double pcie_share;
  SlotBudget budget;
};

absl::Status RunCase(const GpuInfo& gpu, const RandomModel& model, const BenchCase& c) {
  CudaRig rig(gpu, {.model = model,
                    .rows_max = std::max(c.rows, 256u),
                    .budget = c.budget,
                    .pcie_share = c.pcie_share,
                    .slots = {}});
  HEARTH_RETURN_IF_ERROR(rig.Make());
  if (c.budget.share > 0) {
    rig.cache().Seed(LayerId(0), std::vector<float>(model.expert_count, 1.0f));
    HEARTH_RETURN_IF_ERROR(rig.tiers().FillSlots(nullptr));
  }
  double host_us = 1e9, card_us = 1e9, stream_gbps = 0;
  uint64_t experts = 0;
  const uint32_t rounds = c.rows > 256 ? kPromptRounds : kRounds;
  for (uint32_t round = 0; round < rounds; ++round) {
    const LedgerCounts before = rig.tiers().ledger().total();
    HEARTH_ASSIGN_OR_RETURN(const int64_t ns, rig.RunTimed(LayerId(0), c.rows, 7 + round % 2));
    rig.tiers().EndWindow(0);
    LedgerCounts counts = rig.tiers().ledger().total();
    counts -= before;
    host_us = std::min(host_us, static_cast<double>(ns) * 1e-3);
    card_us = std::min(card_us, static_cast<double>(counts.of(Service::kVram).ns) * 1e-3);
    const ServiceTotals& pcie = counts.of(Service::kPcie);
    experts = counts.total().distinct;
    if (pcie.ns > 0) {
      stream_gbps =
          std::max(stream_gbps, static_cast<double>(pcie.bytes) / static_cast<double>(pcie.ns));
    }
  }
  std::printf("%-28s %4u rows %3u experts  host %8.1f us  card %8.1f us  streamed %5.1f GB/s\n",
              c.what, c.rows, static_cast<uint32_t>(experts), host_us, card_us, stream_gbps);
  return absl::OkStatus();
}

absl::Status Run() {
  HEARTH_ASSIGN_OR_RETURN(const GpuList list, ListGpus());
  if (list.gpus.empty()) return absl::UnavailableError(list.reason);
  const RandomModel model{.hidden = 2560,
                          .width = 640,
                          .expert_count = 48,
                          .ranks = 10,
                          .formats = {ExpertFormat::kNvfp4}};
  for (const BenchCase& c : {BenchCase{"all in slots", 1, 0, {.share = 1}},
                             BenchCase{"all in slots", 4, 0, {.share = 1}},
                             BenchCase{"all streamed", 1, 1, {.slot_count = 1}},
                             BenchCase{"all streamed", 4, 1, {.slot_count = 1}},
                             BenchCase{"all streamed", 256, 1, {.slot_count = 1}},
                             BenchCase{"half streamed, half by CPU", 4, 0.5, {.slot_count = 1}}}) {
    HEARTH_RETURN_IF_ERROR(RunCase(list.gpus[0], model, c));
  }
  RandomModel layer = model;  // a layer of the full model
  layer.expert_count = 512;
  layer.distinct_count = 16;
  for (const uint32_t rows : {256u, 1024u, 2048u, 3200u}) {
    for (const BenchCase& c : {BenchCase{"prompt, all in slots", rows, 0, {.share = 1}},
                               BenchCase{"prompt, 40% in slots", rows, 1, {.share = 0.4}},
                               BenchCase{"same, CPU takes its part", rows, -1, {.share = 0.4}}}) {
      HEARTH_RETURN_IF_ERROR(RunCase(list.gpus[0], layer, c));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace hearth

int main() {
  const absl::Status status = hearth::Run();
  if (!status.ok()) std::printf("%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
