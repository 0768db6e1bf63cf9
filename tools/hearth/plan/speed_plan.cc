// Placement first (card: dense weights, cache, then slots; RAM: what is left of dense weights, then
// experts; the drive has the rest), then the time of a token from the bytes of each memory.
#include "tools/hearth/plan/speed_plan.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "pack/format/matrix_layout.h"
#include "pack/synth/synthetic_dense.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

constexpr uint64_t kWorkBytes = 512_MiB;  // buffers, code, the tokenizer, queues
constexpr uint64_t kCardWorkBytes = 1_GiB;

// What windows take beyond their floor. Measured: decoding on a processor at 1.06 to 1.5 times its
// floor; on a card 65 to 100 us a layer of launches that follow one another. Estimated: 40 us where
// those get fewer, a card's kernels at 0.75 to 1 of its copy rate, single experts from a drive at
// 0.6 to 1 of the rate of many.
struct Cost {
  double dram_factor;
  double card_factor;
  double layer_launch_sec;
  double drive_factor;
};
constexpr Cost kGood = {1.06, 1.0, 40e-6, 1.0};
constexpr Cost kUsual = {1.25, 1.15, 70e-6, 1.25};
constexpr Cost kBad = {1.6, 1.35, 90e-6, 1.7};

struct TokenBytes {
  double card = 0;
  double dram = 0;
  double drive = 0;
};

// A token's bytes with these shares of its experts in slots and on the drive.
TokenBytes BytesOf(const SpeedPlan& plan, double slot_share, double drive_share, bool has_card) {
  const PlanModel& model = plan.model;
  const double experts = static_cast<double>(model.layer_count) * model.experts_per_token *
                         static_cast<double>(model.expert_bytes);
  const double dense = static_cast<double>(model.dense_token_bytes);
  TokenBytes bytes;
  bytes.card = has_card ? dense + experts * slot_share : 0;
  // What comes from the drive is written to RAM and read from there.
  bytes.dram = (has_card ? 0 : dense) + experts * (1 - slot_share);
  bytes.drive = experts * drive_share;
  return bytes;
}

struct TokenTime {
  double seconds = 0;
  const char* bound = "dram";
};

double Seconds(double bytes, double rate) { return rate > 0 ? bytes / rate : 0; }

// Dense work and experts of a layer follow each other; within the experts, card, RAM and drive work
// side by side.
TokenTime TimeOf(const SpeedPlan& plan, const PlanMachine& machine, double slot_share,
                 double drive_share, const Cost& cost) {
  const bool has_card = machine.card_bytes > 0;
  const TokenBytes bytes = BytesOf(plan, slot_share, drive_share, has_card);
  const double dense = static_cast<double>(plan.model.dense_token_bytes);
  const double on_card = Seconds(bytes.card - (has_card ? dense : 0), machine.rates.card);
  const double in_ram = Seconds(bytes.dram - (has_card ? 0 : dense), machine.rates.dram);
  const double on_drive = Seconds(bytes.drive, machine.rates.drive) * cost.drive_factor;
  const double dense_sec = has_card ? Seconds(dense, machine.rates.card) * cost.card_factor
                                    : Seconds(dense, machine.rates.dram) * cost.dram_factor;
  const double experts =
      std::max({on_card * cost.card_factor, in_ram * cost.dram_factor, on_drive});
  TokenTime time;
  time.seconds =
      dense_sec + experts + (has_card ? plan.model.layer_count * cost.layer_launch_sec : 0);
  if (on_drive >= experts && on_drive > 0) {
    time.bound = "drive";
  } else if (has_card && on_card * cost.card_factor + dense_sec >= in_ram * cost.dram_factor) {
    time.bound = "card";
  }
  return time;
}

void Refuse(SpeedPlan& plan, std::string trouble) {
  plan.fits = false;
  plan.trouble = std::move(trouble);
}

void PlaceOnCard(const PlanMachine& machine, SpeedPlan& plan) {
  const PlanModel& model = plan.model;
  plan.card_dense_bytes = model.dense_token_bytes;
  plan.card_cache_bytes = model.cache_token_bytes * machine.context_tokens;
  const uint64_t taken =
      plan.card_dense_bytes + plan.card_cache_bytes + kCardWorkBytes + machine.vram_reserve_bytes;
  if (taken > machine.card_bytes) {
    return Refuse(plan, absl::StrCat("the card has ", FormatBytes(machine.card_bytes),
                                     ", dense weights, keys and values and buffers take ",
                                     FormatBytes(taken)));
  }
  const uint64_t all = uint64_t{model.layer_count} * model.expert_count;
  plan.slot_count = std::min(all, (machine.card_bytes - taken) / model.expert_bytes);
  plan.card_slot_bytes = plan.slot_count * model.expert_bytes;
}

void PlaceInRam(const PlanMachine& machine, SpeedPlan& plan) {
  const PlanModel& model = plan.model;
  const bool has_card = machine.card_bytes > 0;
  plan.ram_dense_bytes = model.dense_bytes - (has_card ? model.dense_token_bytes : 0);
  plan.ram_cache_bytes = has_card ? 0 : model.cache_token_bytes * machine.context_tokens;
  const uint64_t taken = plan.ram_dense_bytes + plan.ram_cache_bytes + kWorkBytes;
  const uint64_t all = uint64_t{model.layer_count} * model.expert_count;
  const uint64_t left = machine.ram_bytes > taken ? machine.ram_bytes - taken : 0;
  plan.ram_count = std::min(all, left / model.expert_bytes);
  plan.drive_count = all - plan.ram_count;
  plan.ram_expert_bytes = plan.ram_count * model.expert_bytes;
  // A layer's experts of one token must be in memory at once, and the next ones on their way.
  const uint64_t least = 2 * uint64_t{model.experts_per_token};
  if (plan.ram_count < least) {
    Refuse(plan, absl::StrCat("RAM has ", FormatBytes(machine.ram_bytes), ", needed are ",
                              FormatBytes(taken + least * model.expert_bytes), " at least"));
  }
}

}  // namespace

absl::StatusOr<PlanModel> PlanModelOf(const ModelGeometry& geometry, ExpertFormat format,
                                      XtBits xt_bits) {
  HEARTH_ASSIGN_OR_RETURN(
      const ExpertLayout layout,
      ExpertLayout::Create(format, geometry.hidden, geometry.moe.expert_width, xt_bits));
  PlanModel model = {.quantisation = ExpertLayoutName(layout),
                     .layer_count = geometry.layer_count(),
                     .expert_count = geometry.moe.expert_count,
                     .experts_per_token = geometry.moe.experts_per_token,
                     .expert_bytes = layout.stride_bytes()};
  for (const TensorInfo& tensor : SyntheticDenseTensors(geometry)) {
    const uint64_t bytes = MatrixBytes(tensor.format, tensor.rows, tensor.cols);
    model.dense_bytes += bytes;
    if (tensor.name.find("embed_tokens") == std::string::npos) model.dense_token_bytes += bytes;
  }
  constexpr uint64_t kBf16Bytes = 2;
  const uint64_t attention_layers = static_cast<uint64_t>(
      std::count(geometry.layers.begin(), geometry.layers.end(), MixerKind::kQsa));
  const AttentionGeometry& attention = geometry.attention;
  model.cache_token_bytes =
      attention_layers * kBf16Bytes *
      (2 * uint64_t{attention.kv_head_count} * attention.head_dim + attention.indexer_head_dim);
  return model;
}

SpeedPlan PlanSpeed(const PlanModel& model, const PlanMachine& machine, const HitCurve& hits) {
  SpeedPlan plan;
  plan.model = model;
  if (machine.card_bytes > 0) PlaceOnCard(machine, plan);
  if (plan.fits) PlaceInRam(machine, plan);
  if (!plan.fits) return plan;
  plan.slot_hits = hits.At(plan.slot_count);
  // The slots hold the hottest, RAM what comes next: together they miss what neither holds.
  const HitRange held = hits.At(std::max(plan.slot_count, plan.ram_count));
  plan.drive_reads = {.low = 1 - held.high, .expected = 1 - held.expected, .high = 1 - held.low};
  if (plan.drive_count > 0 && machine.rates.drive <= 0 && plan.drive_reads.high > 0) {
    Refuse(plan,
           "a part of the experts stays on the drive, and its rate was not measured: give "
           "--drive FILE or --pack");
    return plan;
  }
  constexpr Cost kFloor = {1, 1, 0, 1};
  plan.floor_sec =
      TimeOf(plan, machine, plan.slot_hits.expected, plan.drive_reads.expected, kFloor).seconds;
  const TokenTime usual =
      TimeOf(plan, machine, plan.slot_hits.expected, plan.drive_reads.expected, kUsual);
  plan.bound = usual.bound;
  plan.tokens_per_sec.expected = 1 / usual.seconds;
  plan.tokens_per_sec.high =
      1 / TimeOf(plan, machine, plan.slot_hits.high, plan.drive_reads.low, kGood).seconds;
  plan.tokens_per_sec.low =
      1 / TimeOf(plan, machine, plan.slot_hits.low, plan.drive_reads.high, kBad).seconds;
  return plan;
}

}  // namespace hearth::cli
