// A plan for people and for programs.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tools/hearth/plan/speed_plan.h"

namespace hearth::cli {

struct PlanReport {
  std::string model;  // "flash-next", or the pack's folder
  PlanMachine machine;
  std::string card;           // its name, or why there is none
  std::string drive;          // what was measured, or why not
  bool from_profile = false;  // hits come from a profile of routing
  std::vector<std::string> notes;
  std::vector<SpeedPlan> plans;  // by quantisation
};

std::string PlanText(const PlanReport& report);
std::string PlanJson(const PlanReport& report);  // one object on one line

}  // namespace hearth::cli
