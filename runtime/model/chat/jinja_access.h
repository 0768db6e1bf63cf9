// Attributes, items and slices of values: object.name, object[key], object[a:b:c].
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "runtime/model/chat/jinja_value.h"

namespace hearth::jinja {

// object.name: methods before items. What is not there is undefined; an attribute of something
// undefined is an error.
absl::StatusOr<Value> GetAttribute(const Value& object, const std::string& name);

// object[key]: items before methods.
absl::StatusOr<Value> GetItem(Budget& budget, const Value& object, const Value& key);

// Each bound may be null.
struct SliceBounds {
  const Value* start = nullptr;
  const Value* stop = nullptr;
  const Value* step = nullptr;
};
absl::StatusOr<Value> GetSlice(Budget& budget, const Value& object, const SliceBounds& bounds);

}  // namespace hearth::jinja
