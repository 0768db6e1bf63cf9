// What follows from the facts: one finding for each thing that was looked at, good or bad, and what
// to do about it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "tools/hearth/doctor/doctor_facts.h"

namespace hearth::cli {

// Rising.
enum class Severity : uint8_t {
  kOk,
  kAdvice,   // works; this would make it faster
  kWarning,  // works with a fallback, or close to a limit
  kFailure,  // something will not work
  kDamage,   // data is not as it was written
};
const char* SeverityName(Severity severity);  // "ok", "advice", "warning", "failure", "damage"

struct Finding {
  std::string id;  // "memory.locked": stable, for scripts
  Severity severity = Severity::kOk;
  std::string found;   // one line
  std::string remedy;  // what to do; empty where there is nothing to do
};

// In the order: cpu, memory, files, gpu, io, pack.
std::vector<Finding> Diagnose(const DoctorFacts& facts);

Severity Worst(const std::vector<Finding>& findings);

// OK up to `fails_from`; beyond, the error that names the worst finding: DataLoss for damage, else
// FailedPrecondition.
absl::Status VerdictOf(const std::vector<Finding>& findings, Severity fails_from);

std::string FindingsText(const std::vector<Finding>& findings);
std::string FindingsJson(const std::vector<Finding>& findings);  // one object on one line

}  // namespace hearth::cli
