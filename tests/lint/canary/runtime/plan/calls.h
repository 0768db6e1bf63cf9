// Declares what calls.cc breaks.
#pragma once

#include <thread>

namespace hearth {

class FastPlan;
struct PlanV2;
using PlanHelper = int;

struct Sizes {
  int buffer_size = 0;
  int buffer_bytes = 0;
};

void Calls(int fd, void* p, std::thread& t);

}  // namespace hearth
