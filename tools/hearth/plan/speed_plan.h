// What a machine will do with a model: which experts lie where, and how many tokens a second follow
// from the bytes that a token needs of each memory. Pure: geometry, rates and sizes in, a plan out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pack/format/expert_layout.h"
#include "pack/format/geometry.h"
#include "tools/hearth/plan/hit_curve.h"

namespace hearth::cli {

// What a token of a model needs.
struct PlanModel {
  std::string quantisation;  // "nvfp4", "xt3"
  uint32_t layer_count = 0;
  uint32_t expert_count = 0;
  uint32_t experts_per_token = 0;
  uint64_t expert_bytes = 0;       // of one, as it lies in memory
  uint64_t dense_bytes = 0;        // of all dense weights
  uint64_t dense_token_bytes = 0;  // of them, that a token reads: all but the embeddings' rows
  uint64_t cache_token_bytes = 0;  // of keys and values, for each token of the context
  uint64_t all_experts_bytes() const { return uint64_t{layer_count} * expert_count * expert_bytes; }
};

// Of a geometry with the formats that `hearth pack build` gives dense weights by default.
absl::StatusOr<PlanModel> PlanModelOf(const ModelGeometry& geometry, ExpertFormat format,
                                      XtBits xt_bits);

// Bytes per second; 0: there is none, or it was not measured.
struct PlanRates {
  double dram = 0;
  double card = 0;
  double link = 0;
  double drive = 0;
};

struct PlanMachine {
  PlanRates rates;
  uint64_t ram_bytes = 0;           // that may be taken
  uint64_t card_bytes = 0;          // of the card's memory; 0: no card
  uint64_t vram_reserve_bytes = 0;  // that slots leave free
  uint32_t context_tokens = 0;
};

// What a token costs beside its bytes. The README has the measurements behind the ranges.
struct SpeedRange {
  double low = 0;
  double expected = 0;
  double high = 0;
};

struct SpeedPlan {
  PlanModel model;
  bool fits = true;
  std::string trouble;  // why it does not fit
  // Experts, by where they lie at rest; a slot holds a copy of one that is in RAM or on the drive.
  uint64_t slot_count = 0;
  uint64_t ram_count = 0;
  uint64_t drive_count = 0;
  // Of the card and of RAM.
  uint64_t card_dense_bytes = 0;
  uint64_t card_cache_bytes = 0;
  uint64_t card_slot_bytes = 0;
  uint64_t ram_dense_bytes = 0;
  uint64_t ram_cache_bytes = 0;
  uint64_t ram_expert_bytes = 0;
  // Of the experts that a token needs.
  HitRange slot_hits;    // found in slots
  HitRange drive_reads;  // found neither in slots nor in RAM; low is the good end
  double floor_sec = 0;  // of a token with the expected hits: no machine of these rates is faster
  SpeedRange tokens_per_sec;
  std::string bound;  // the memory that bounds it: "card", "dram", "drive"
};

SpeedPlan PlanSpeed(const PlanModel& model, const PlanMachine& machine, const HitCurve& hits);

}  // namespace hearth::cli
