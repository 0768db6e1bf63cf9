// One of a row's largest logits.
#pragma once

#include <cstdint>

#include "runtime/base/ids.h"

namespace hearth {

struct TopLogit {
  float logit = 0;
  TokenId token = 0;
  bool operator==(const TopLogit&) const = default;
};

}  // namespace hearth
