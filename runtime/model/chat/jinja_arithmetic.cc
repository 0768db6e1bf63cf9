// Python's arithmetic on 64-bit integers, doubles and sequences. What leaves 64 bits is an error.
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_operators.h"
#include "runtime/model/chat/jinja_text.h"

namespace hearth::jinja {
namespace {

std::string_view Symbol(BinaryOp op) {
  switch (op) {
    case BinaryOp::kAdd:
      return "+";
    case BinaryOp::kSub:
      return "-";
    case BinaryOp::kMul:
      return "*";
    case BinaryOp::kDiv:
      return "/";
    case BinaryOp::kFloorDiv:
      return "//";
    case BinaryOp::kMod:
      return "%";
    case BinaryOp::kPow:
      return "**";
  }
  return "?";
}

absl::Status TooWide() {
  return absl::OutOfRangeError("the result does not fit in a 64-bit integer");
}

absl::Status DivisionByZero() { return absl::InvalidArgumentError("division by zero"); }

int64_t FloorDivide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

absl::StatusOr<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return absl::InvalidArgumentError("0.0 cannot be raised to a negative power");
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  int64_t square = base;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, square, &result)) return TooWide();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(square, square, &square)) return TooWide();
  }
  return Value::Int(result);
}

absl::StatusOr<Value> IntegerBinary(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return TooWide();
      return Value::Int(result);
    case BinaryOp::kSub:
      if (__builtin_sub_overflow(a, b, &result)) return TooWide();
      return Value::Int(result);
    case BinaryOp::kMul:
      if (__builtin_mul_overflow(a, b, &result)) return TooWide();
      return Value::Int(result);
    case BinaryOp::kPow:
      return IntegerPower(a, b);
    default:
      break;
  }
  if (b == 0) return DivisionByZero();
  if (op == BinaryOp::kDiv) {  // correctly rounded: 64-bit integers are exact in long double
    return Value::Float(
        static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  }
  if (a == std::numeric_limits<int64_t>::min() && b == -1) {
    return op == BinaryOp::kMod ? absl::StatusOr<Value>(Value::Int(0)) : TooWide();
  }
  const int64_t quotient = FloorDivide(a, b);
  return Value::Int(op == BinaryOp::kFloorDiv ? quotient : a - quotient * b);
}

absl::StatusOr<Value> FloatPower(double a, double b) {
  if (a == 0 && b < 0) {
    return absl::InvalidArgumentError("0.0 cannot be raised to a negative power");
  }
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    return absl::UnimplementedError("complex numbers are not supported");
  }
  const double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
    return absl::OutOfRangeError("the result of ** is too large");
  }
  return Value::Float(result);
}

absl::StatusOr<Value> FloatBinary(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::Float(a + b);
    case BinaryOp::kSub:
      return Value::Float(a - b);
    case BinaryOp::kMul:
      return Value::Float(a * b);
    case BinaryOp::kPow:
      return FloatPower(a, b);
    default:
      break;
  }
  if (b == 0) return DivisionByZero();
  if (op == BinaryOp::kDiv) return Value::Float(a / b);
  double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0) {
    if ((b < 0) != (remainder < 0)) {
      remainder += b;
      quotient -= 1;
    }
  } else {
    remainder = std::copysign(0.0, b);
  }
  if (op == BinaryOp::kMod) return Value::Float(remainder);
  if (quotient == 0) return Value::Float(std::copysign(0.0, a / b));
  double floored = std::floor(quotient);
  if (quotient - floored > 0.5) floored += 1;
  return Value::Float(floored);
}

absl::StatusOr<Value> Concatenate(Budget& budget, const Value& a, const Value& b) {
  if (a.IsString()) {
    const bool a_markup = a.AsStringObject().safety == Safety::kMarkup;
    const bool b_markup = b.AsStringObject().safety == Safety::kMarkup;
    // Markup escapes the plain text that is added to it.
    const std::string left = b_markup && !a_markup ? EscapeMarkup(a.AsString()) : a.AsString();
    const std::string right = a_markup && !b_markup ? EscapeMarkup(b.AsString()) : b.AsString();
    return MakeString(budget, left + right,
                      a_markup || b_markup ? Safety::kMarkup : Safety::kPlain);
  }
  std::vector<Value> items = a.AsSequence();
  items.insert(items.end(), b.AsSequence().begin(), b.AsSequence().end());
  HEARTH_RETURN_IF_ERROR(budget.ChargeIterations(static_cast<int64_t>(items.size())));
  return a.kind() == Kind::kList ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
}

absl::StatusOr<Value> Repeat(Budget& budget, const Value& sequence, int64_t count) {
  HEARTH_ASSIGN_OR_RETURN(const int64_t length, LengthOf(sequence));
  if (count < 0 || length == 0) count = 0;
  if (sequence.IsString()) {
    const std::string& text = sequence.AsString();
    if (count > 0 && text.size() > kOutputBytesMax / static_cast<uint64_t>(count)) {
      return budget.ChargeString(kOutputBytesMax + 1);
    }
    std::string out;
    for (int64_t i = 0; i < count; ++i) out += text;
    return MakeString(budget, std::move(out), sequence.AsStringObject().safety);
  }
  if (count > 0 && length > kIterationsMax / count) {
    return budget.ChargeIterations(kIterationsMax + 1);
  }
  HEARTH_RETURN_IF_ERROR(budget.ChargeIterations(length * count));
  std::vector<Value> items;
  for (int64_t i = 0; i < count; ++i) {
    items.insert(items.end(), sequence.AsSequence().begin(), sequence.AsSequence().end());
  }
  return sequence.kind() == Kind::kList ? Value::List(std::move(items))
                                        : Value::Tuple(std::move(items));
}

bool IsRepeatable(const Value& v) {
  return v.IsString() || v.kind() == Kind::kList || v.kind() == Kind::kTuple;
}

}  // namespace

absl::StatusOr<Value> Binary(Budget& budget, BinaryOp op, const Value& a, const Value& b) {
  if (a.IsUndefined()) return UndefinedError(a);
  if (b.IsUndefined()) return UndefinedError(b);
  if (a.IsIntegral() && b.IsIntegral()) return IntegerBinary(op, a.AsInt(), b.AsInt());
  if (a.IsNumber() && b.IsNumber()) return FloatBinary(op, a.AsDouble(), b.AsDouble());
  if (op == BinaryOp::kAdd && IsRepeatable(a) && a.kind() == b.kind()) {
    return Concatenate(budget, a, b);
  }
  if (op == BinaryOp::kMul && IsRepeatable(a) && b.IsIntegral()) {
    return Repeat(budget, a, b.AsInt());
  }
  if (op == BinaryOp::kMul && a.IsIntegral() && IsRepeatable(b)) {
    return Repeat(budget, b, a.AsInt());
  }
  if (op == BinaryOp::kMod && a.IsString()) {
    return absl::UnimplementedError("formatting a string with % is not supported");
  }
  if (a.kind() == Kind::kWideInt || b.kind() == Kind::kWideInt) return TooWide();
  return absl::InvalidArgumentError(absl::StrCat("unsupported operand types for ",
                                                 ToAbsl(Symbol(op)), ": '", ToAbsl(TypeName(a)),
                                                 "' and '", ToAbsl(TypeName(b)), "'"));
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (value.IsUndefined()) return UndefinedError(value);
  if (value.kind() == Kind::kFloat) return Value::Float(-value.AsDouble());
  if (!value.IsIntegral()) {
    return absl::InvalidArgumentError(
        absl::StrCat("bad operand type for unary -: '", ToAbsl(TypeName(value)), "'"));
  }
  if (value.AsInt() == std::numeric_limits<int64_t>::min()) return TooWide();
  return Value::Int(-value.AsInt());
}

absl::StatusOr<Value> Plus(const Value& value) {
  if (value.IsUndefined()) return UndefinedError(value);
  if (value.kind() == Kind::kFloat) return value;
  if (value.IsIntegral()) return Value::Int(value.AsInt());
  return absl::InvalidArgumentError(
      absl::StrCat("bad operand type for unary +: '", ToAbsl(TypeName(value)), "'"));
}

}  // namespace hearth::jinja
