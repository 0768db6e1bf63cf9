// What `hearth devices` measures.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "runtime/config/field.h"

namespace hearth {

struct DevicesConfig {
  uint32_t threads = 0;
  std::string cpus;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("threads", threads, "workers that read memory, 0 = one per physical core",
      {.minimum = 0, .maximum = 1024});
    v("cpus", cpus, "one worker on each of these CPUs instead, such as 0-3,8", {.metavar = "LIST"});
  }

  absl::Status Validate(const GivenFields& given) const;
};

}  // namespace hearth
