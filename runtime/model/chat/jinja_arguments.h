// Matches the arguments of a call against the parameters of a filter, a method or a test.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "runtime/model/chat/jinja_value.h"

namespace hearth::jinja {

inline constexpr size_t kParamsMax = 4;

struct Signature {
  std::array<std::string_view, kParamsMax> params{};  // empty names: no such parameter
  size_t required_count = 0;
};

// One value per parameter, null where the call leaves it out. Borrows from the Arguments.
struct BoundArguments {
  std::array<const Value*, kParamsMax> values{};

  bool Has(size_t index) const { return values[index] != nullptr; }
  const Value& operator[](size_t index) const { return *values[index]; }  // REQUIRES: Has(index)
  bool IsTruthyAt(size_t index, bool otherwise) const;
  // InvalidArgument where the value is there and not an integer.
  absl::StatusOr<int64_t> IntAt(size_t index, int64_t otherwise) const;
};

// `what` names the callee in errors.
absl::StatusOr<BoundArguments> Bind(const Arguments& arguments, const Signature& signature,
                                    std::string_view what);
absl::StatusOr<BoundArguments> Bind(Arguments&&, const Signature&, std::string_view) = delete;

}  // namespace hearth::jinja
