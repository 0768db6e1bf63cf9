// Measures what a plan needs to know of the machine at hand.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "pack/reader/pack.h"
#include "tools/hearth/command.h"
#include "tools/hearth/plan/plan_text.h"
#include "tools/hearth/plan/speed_plan.h"

namespace hearth::cli {

struct MachineWish {
  uint32_t threads = 0;  // workers that read DRAM; 0: one per core
  std::string cpus;
  bool card = true;   // look for one
  std::string drive;  // a file, or a folder for a scratch file; empty: it is not measured
  uint64_t drive_read_bytes = 0;
  std::optional<uint64_t> ram_budget;
};

// Fills report.machine, card, drive and notes. A machine without a card, or with a drive that
// cannot be measured, is a result; DRAM must be measured.
absl::Status MeasureMachine(const MachineWish& wish, const CommandIo& io, PlanReport& report);

// Of the pack as it is: its own formats and sizes.
PlanModel PlanModelOfPack(const Pack& pack);

}  // namespace hearth::cli
