// The filters of the template language: value | name(arguments).
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

#include "runtime/model/chat/jinja_arguments.h"
#include "runtime/model/chat/jinja_value.h"

namespace hearth::jinja {

bool IsFilter(std::string_view name);
std::string KnownFilters();  // their names, for messages

// InvalidArgument where there is no such filter.
absl::StatusOr<Value> ApplyFilter(Budget& budget, std::string_view name, const Value& input,
                                  const Arguments& arguments);

// One filter's call. `args` follow the filter's signature; filters without one read `raw`.
struct FilterCall {
  Budget& budget;
  const Value& input;
  const Arguments& raw;
  BoundArguments args;
};

struct FilterEntry {
  std::string_view name;
  absl::StatusOr<Value> (*function)(const FilterCall&);
  Signature signature;
  bool takes_raw = false;
};

// The table of filters is in two halves, each in its own file.
std::span<const FilterEntry> ScalarFilters();    // of texts, numbers and single values
std::span<const FilterEntry> SequenceFilters();  // of what can be iterated

}  // namespace hearth::jinja
