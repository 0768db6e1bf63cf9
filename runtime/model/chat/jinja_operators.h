// The operators of the template language with Python's meaning: truth, equality, order, arithmetic,
// membership, and the texts that str() and repr() give.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "runtime/model/chat/jinja_value.h"

namespace hearth::jinja {

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

bool IsTruthy(const Value& value);
bool Equals(const Value& a, const Value& b);

// -1, 0 or 1; InvalidArgument where Python has no order ("'<' not supported between ...").
absl::StatusOr<int> Order(const Value& a, const Value& b);

// `value in container`.
absl::StatusOr<bool> Contains(Budget& budget, const Value& container, const Value& value);

absl::StatusOr<bool> Compare(Budget& budget, CompareOp op, const Value& a, const Value& b);
absl::StatusOr<Value> Binary(Budget& budget, BinaryOp op, const Value& a, const Value& b);
absl::StatusOr<Value> Negate(const Value& value);
absl::StatusOr<Value> Plus(const Value& value);

// Appends str(value), at most kOutputBytesMax in `out`. Values whose text is an address in Python
// (generators, functions, methods) are refused.
absl::Status AppendStr(std::string& out, const Value& value);
absl::StatusOr<std::string> Str(const Value& value);
absl::Status AppendRepr(std::string& out, const Value& value);

}  // namespace hearth::jinja
