// What `hearth devices` measures.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "runtime/config/field.h"

namespace hearth {

struct DevicesConfig {
  uint32_t threads = 0;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("threads", threads, "that read memory together; 0 = one per allowed CPU",
      {.minimum = 0, .maximum = 1024});
  }

  absl::Status Validate(const GivenFields&) const { return absl::OkStatus(); }
};

}  // namespace hearth
