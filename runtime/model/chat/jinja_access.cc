// Attribute and item access with the sandbox's rules.
#include "runtime/model/chat/jinja_access.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_methods.h"
#include "runtime/model/chat/jinja_operators.h"
#include "runtime/model/chat/jinja_text.h"

namespace hearth::jinja {
namespace {

std::string DescribeObject(const Value& object) {
  if (object.IsNone()) return "None";
  return absl::StrCat(ToAbsl(TypeName(object)), " object");
}

Value Missing(const Value& object, const Value& key) {
  if (key.IsString()) {
    return Value::Undefined(
        absl::StrCat("'", DescribeObject(object), "' has no attribute ", Repr(key.AsString())));
  }
  std::string text;
  if (!AppendRepr(text, key).ok()) text.clear();
  return Value::Undefined(absl::StrCat(DescribeObject(object), " has no element ", text));
}

// The method of `object` with that name, or undefined; nothing where the name says no method.
absl::StatusOr<std::optional<Value>> FindMethod(const Value& object, const std::string& name) {
  if (object.kind() == Kind::kNamespace) {
    const Value* attribute = object.AsNamespace()->attributes.FindString(name);
    if (attribute != nullptr) return std::optional<Value>(*attribute);
  }
  switch (LookUpMethod(object, name)) {
    case MethodStatus::kNone:
      return std::optional<Value>();
    case MethodStatus::kUnsafe:
      return std::optional<Value>(
          Value::Undefined(absl::StrCat("access to attribute '", name, "' of '",
                                        ToAbsl(TypeName(object)), "' object is unsafe.")));
    case MethodStatus::kUnsupported:
      return absl::UnimplementedError(absl::StrCat("the attribute '", name, "' of a ",
                                                   ToAbsl(TypeName(object)), " is not supported"));
    case MethodStatus::kSupported:
      break;
  }
  HEARTH_ASSIGN_OR_RETURN(Value method, Value::Method(object, name));
  return std::optional<Value>(std::move(method));
}

// The element at `index`, counted from the end where negative; nothing out of range.
absl::StatusOr<std::optional<Value>> ElementAt(Budget& budget, const Value& object, int64_t index) {
  const absl::StatusOr<int64_t> length = LengthOf(object);
  if (!length.ok()) return std::optional<Value>();
  if (index < 0) index += *length;
  if (index < 0 || index >= *length) return std::optional<Value>();
  switch (object.kind()) {
    case Kind::kList:
    case Kind::kTuple:
      return std::optional(object.AsSequence()[static_cast<size_t>(index)]);
    case Kind::kRange:
      return std::optional(Value::Int(object.AsRange().start + index * object.AsRange().step));
    case Kind::kString: {
      const StringObject& string = object.AsStringObject();
      const bool is_ascii = string.length == static_cast<int64_t>(string.text.size());
      if (!is_ascii) HEARTH_RETURN_IF_ERROR(budget.ChargeScan(string.text.size()));
      const size_t at =
          is_ascii ? static_cast<size_t>(index) : OffsetOfCodePoint(string.text, index);
      return std::optional(Value::String(
          string.text.substr(at, NextCodePoint(string.text, at) - at), string.safety));
    }
    default:
      return std::optional<Value>();
  }
}

}  // namespace

absl::StatusOr<Value> GetAttribute(const Value& object, const std::string& name) {
  if (object.IsUndefined()) return UndefinedError(object);
  HEARTH_ASSIGN_OR_RETURN(std::optional<Value> method, FindMethod(object, name));
  if (method) return *std::move(method);
  if (object.IsDict()) {
    const Value* item = object.AsDict().FindString(name);
    if (item != nullptr) return *item;
  }
  return Missing(object, Value::String(name));
}

absl::StatusOr<Value> GetItem(Budget& budget, const Value& object, const Value& key) {
  if (object.IsUndefined()) return UndefinedError(object);
  if (object.IsDict()) {
    const Value* item = object.AsDict().Find(key);
    if (item != nullptr) return *item;
  } else if (key.IsIntegral()) {
    HEARTH_ASSIGN_OR_RETURN(std::optional<Value> element, ElementAt(budget, object, key.AsInt()));
    if (element) return *std::move(element);
  }
  if (key.IsString()) {
    HEARTH_ASSIGN_OR_RETURN(std::optional<Value> method, FindMethod(object, key.AsString()));
    if (method) return *std::move(method);
  }
  return Missing(object, key);
}

namespace {

// start, stop and step as Python clamps them to a sequence of `length`.
struct ClampedSlice {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t count = 0;
};

absl::StatusOr<std::optional<int64_t>> Bound(const Value* bound) {
  if (bound == nullptr || bound->IsNone()) return std::optional<int64_t>();
  if (bound->IsIntegral()) return std::optional<int64_t>(bound->AsInt());
  return absl::InvalidArgumentError("slice indices must be integers or None");
}

absl::StatusOr<ClampedSlice> Clamp(const SliceBounds& bounds, int64_t length) {
  HEARTH_ASSIGN_OR_RETURN(const std::optional<int64_t> start, Bound(bounds.start));
  HEARTH_ASSIGN_OR_RETURN(const std::optional<int64_t> stop, Bound(bounds.stop));
  HEARTH_ASSIGN_OR_RETURN(const std::optional<int64_t> step, Bound(bounds.step));
  ClampedSlice slice;
  // Steps beyond the length all mean the same; the clamp keeps the arithmetic below in range.
  slice.step = std::clamp<int64_t>(step.value_or(1), -(length + 1), length + 1);
  if (slice.step == 0) return absl::InvalidArgumentError("slice step cannot be zero");
  const bool forward = slice.step > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? length : length - 1;
  const auto clamp = [&](std::optional<int64_t> bound, int64_t otherwise) {
    if (!bound) return otherwise;
    const int64_t from_start = *bound < 0 ? *bound + length : *bound;
    return std::clamp(from_start, low, high);
  };
  slice.start = clamp(start, forward ? 0 : length - 1);
  slice.stop = clamp(stop, forward ? length : -1);
  const int64_t span = forward ? slice.stop - slice.start : slice.start - slice.stop;
  const int64_t magnitude = forward ? slice.step : -slice.step;
  slice.count = span > 0 ? (span + magnitude - 1) / magnitude : 0;
  return slice;
}

absl::StatusOr<Value> SliceString(Budget& budget, const StringObject& string,
                                  const ClampedSlice& slice) {
  HEARTH_RETURN_IF_ERROR(budget.ChargeScan(string.text.size()));
  if (slice.step == 1) {
    const bool is_ascii = string.length == static_cast<int64_t>(string.text.size());
    const auto offset = [&](int64_t index) {
      return is_ascii ? static_cast<size_t>(index) : OffsetOfCodePoint(string.text, index);
    };
    const size_t begin = offset(slice.start);
    const size_t end = slice.count == 0 ? begin : offset(slice.stop);
    return MakeString(budget, string.text.substr(begin, end - begin), string.safety);
  }
  HEARTH_RETURN_IF_ERROR(budget.ChargeString(4 * string.text.size()));  // the offsets below
  std::vector<uint32_t> offsets;
  for (size_t at = 0; at < string.text.size(); at = NextCodePoint(string.text, at)) {
    offsets.push_back(static_cast<uint32_t>(at));
  }
  std::string out;
  for (int64_t i = 0; i < slice.count; ++i) {
    const size_t at = offsets[static_cast<size_t>(slice.start + i * slice.step)];
    out.append(string.text, at, NextCodePoint(string.text, at) - at);
  }
  return MakeString(budget, std::move(out), string.safety);
}

}  // namespace

absl::StatusOr<Value> GetSlice(Budget& budget, const Value& object, const SliceBounds& bounds) {
  if (object.IsUndefined()) return UndefinedError(object);
  const bool is_list = object.kind() == Kind::kList;
  if (!is_list && object.kind() != Kind::kTuple && !object.IsString() &&
      object.kind() != Kind::kRange) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", ToAbsl(TypeName(object)), "' object cannot be sliced"));
  }
  HEARTH_ASSIGN_OR_RETURN(const int64_t length, LengthOf(object));
  HEARTH_ASSIGN_OR_RETURN(const ClampedSlice slice, Clamp(bounds, length));
  if (object.IsString()) return SliceString(budget, object.AsStringObject(), slice);
  if (object.kind() == Kind::kRange) {
    const RangeObject& range = object.AsRange();
    int64_t step = 0;
    int64_t stop = 0;
    if (__builtin_mul_overflow(slice.step, range.step, &step) ||
        __builtin_mul_overflow(slice.stop, range.step, &stop) ||
        __builtin_add_overflow(range.start, stop, &stop)) {
      return absl::OutOfRangeError("a range beyond 64 bits");
    }
    return Value::Range(range.start + slice.start * range.step, stop, step);
  }
  HEARTH_RETURN_IF_ERROR(budget.ChargeIterations(slice.count));
  std::vector<Value> items;
  for (int64_t i = 0; i < slice.count; ++i) {
    items.push_back(object.AsSequence()[static_cast<size_t>(slice.start + i * slice.step)]);
  }
  return is_list ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

}  // namespace hearth::jinja
