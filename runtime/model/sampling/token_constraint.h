// What may come next, where not every token may: a grammar, the limit of a reasoning part. Asked
// before each choice and told of it afterwards, one sequence per constraint, on one thread.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/ids.h"

namespace hearth {

class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // One bit per token of the vocabulary, the lowest bit of word 0 for token 0: set where the token
  // may be next. At least one is. Empty: every token may. Good until the next call.
  virtual std::span<const uint64_t> Allowed() = 0;

  // The choice, which Allowed() allowed.
  virtual void Push(TokenId token) = 0;

  // Takes back all but the first `count` tokens that were pushed.
  virtual void PopTo(uint32_t count) = 0;
};

}  // namespace hearth
