// What to do with the routes of one layer: the distinct experts, the route entries of each, and the
// service that computes each. Pure: values in, values out; no clock, no I/O.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/ids.h"

namespace hearth {

// Where an expert's bytes are when the plan is made.
enum class Residency : uint8_t { kVram = 0, kRam = 1, kNvme = 2 };

// How a distinct expert is computed.
enum class Service : uint8_t {
  kVram = 0,  // from its slot
  kPcie = 1,  // uploaded for this window
  kCpu = 2,   // from RAM, by the CPU pool
  kSsd = 3    // read from the drive first
};

struct RouteEntry {
  uint32_t row = 0;
  uint32_t rank = 0;
};

struct PlannedExpert {
  ExpertId expert;
  Service service = Service::kCpu;
  uint32_t entry_begin = 0;  // into WindowPlan::entries
  uint32_t entry_count = 0;
};

// Reused from layer to layer; Reserve once, then planning allocates nothing.
struct WindowPlan {
  std::vector<PlannedExpert> experts;  // by ascending expert id
  std::vector<RouteEntry> entries;     // grouped by expert, rows ascending within one
  std::vector<uint32_t> counts;        // working memory

  void Reserve(uint32_t rows_max, uint32_t ranks, uint32_t expert_count);
};

struct RouteInput {
  std::span<const uint32_t> expert;  // (rows, ranks), each below expert_count
  uint32_t rows = 0;
  uint32_t ranks = 0;
  uint32_t expert_count = 0;
};

// Groups a layer's routes: each distinct expert appears once, each route entry once; services are
// kCpu.
void GroupRoutes(const RouteInput& input, WindowPlan& plan);

}  // namespace hearth
