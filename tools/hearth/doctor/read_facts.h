// Reads the facts from the machine at hand.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "tools/hearth/command.h"
#include "tools/hearth/doctor/doctor_facts.h"

namespace hearth::cli {

struct FactsWish {
  std::string pack;        // empty: none is looked at
  bool deep = false;       // read all of its bytes
  std::string root = "/";  // of /proc and /sys, but for tests
};

// What cannot be found out is a fact as well. Takes a second or two, with `deep` as long as the
// drive takes.
absl::StatusOr<DoctorFacts> ReadDoctorFacts(const FactsWish& wish, const CommandIo& io);

}  // namespace hearth::cli
