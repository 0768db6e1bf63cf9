// Truth, comparison, membership and printing. Arithmetic is in jinja_arithmetic.cc.
#include "runtime/model/chat/jinja_operators.h"

#include <algorithm>
#include <cmath>
#include <compare>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_text.h"

namespace hearth::jinja {
namespace {

bool IsSequence(const Value& v) { return v.kind() == Kind::kList || v.kind() == Kind::kTuple; }

// Exact for a 64-bit integer against a double: x86's long double has 64 bits of mantissa.
std::partial_ordering CompareNumbers(const Value& a, const Value& b) {
  if (a.IsIntegral() && b.IsIntegral()) return a.AsInt() <=> b.AsInt();
  const auto wide = [](const Value& v) {
    return v.kind() == Kind::kFloat ? static_cast<long double>(v.AsDouble())
                                    : static_cast<long double>(v.AsInt());
  };
  return wide(a) <=> wide(b);
}

bool DictsEqual(const Dict& a, const Dict& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const DictEntry& entry : a.entries()) {
    const Value* other = b.Find(entry.key);
    if (other == nullptr || !Equals(entry.value, *other)) return false;
  }
  return true;
}

bool RangesEqual(const RangeObject& a, const RangeObject& b) {
  if (a.count != b.count) return false;
  if (a.count == 0) return true;
  return a.start == b.start && (a.count == 1 || a.step == b.step);
}

absl::Status NotOrdered(const Value& a, const Value& b) {
  return absl::InvalidArgumentError(
      absl::StrCat("no order between '", ToAbsl(TypeName(a)), "' and '", ToAbsl(TypeName(b)), "'"));
}

absl::Status OutputTooLong() {
  return absl::ResourceExhaustedError(
      absl::StrCat("a text of more than ", kOutputBytesMax, " bytes"));
}

}  // namespace

bool IsTruthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.AsInt() != 0;
    case Kind::kFloat:
      return value.AsDouble() != 0.0;
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView:
      return *LengthOf(value) != 0;
    default:
      return true;
  }
}

bool Equals(const Value& a, const Value& b) {
  if (a.IsNumber() && b.IsNumber()) return CompareNumbers(a, b) == 0;
  if (IsSequence(a) && a.kind() == b.kind()) {
    return std::equal(a.AsSequence().begin(), a.AsSequence().end(), b.AsSequence().begin(),
                      b.AsSequence().end(), Equals);
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
      return true;
    case Kind::kString:
      return a.AsString() == b.AsString();
    case Kind::kWideInt:
      return a.AsWideInt() == b.AsWideInt();
    case Kind::kDict:
      return DictsEqual(a.AsDict(), b.AsDict());
    case Kind::kRange:
      return RangesEqual(a.AsRange(), b.AsRange());
    case Kind::kView:
      return a.AsView().kind == b.AsView().kind && a.AsView().kind != ViewKind::kValues &&
             DictsEqual(a.AsView().dict.AsDict(), b.AsView().dict.AsDict());
    default:
      return a.IsSameObject(b);
  }
}

absl::StatusOr<int> Order(const Value& a, const Value& b) {
  if (a.IsUndefined()) return UndefinedError(a);
  if (b.IsUndefined()) return UndefinedError(b);
  if (a.IsNumber() && b.IsNumber()) {
    const std::partial_ordering order = CompareNumbers(a, b);
    if (order == std::partial_ordering::unordered) {
      return absl::InvalidArgumentError("no order with nan");
    }
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.IsString() && b.IsString()) {  // UTF-8 sorts as its code points do
    const int order = a.AsString().compare(b.AsString());
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (!IsSequence(a) || a.kind() != b.kind()) return NotOrdered(a, b);
  const std::vector<Value>& left = a.AsSequence();
  const std::vector<Value>& right = b.AsSequence();
  for (size_t i = 0; i < std::min(left.size(), right.size()); ++i) {
    if (!Equals(left[i], right[i])) return Order(left[i], right[i]);
  }
  return left.size() < right.size() ? -1 : left.size() > right.size() ? 1 : 0;
}

absl::StatusOr<bool> Contains(Budget& budget, const Value& container, const Value& value) {
  if (container.IsString()) {
    if (!value.IsString()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "'in <string>' requires string as left operand, not ", ToAbsl(TypeName(value))));
    }
    HEARTH_RETURN_IF_ERROR(budget.ChargeScan(container.AsString().size()));
    return container.AsString().find(value.AsString()) != std::string::npos;
  }
  if (container.IsDict()) {
    HEARTH_RETURN_IF_ERROR(CheckHashable(value));
    return container.AsDict().Find(value) != nullptr;
  }
  if (container.kind() == Kind::kIterator) {  // takes the items up to the one that it finds
    const IteratorObject& iterator = container.AsIterator();
    while (iterator.next_index < iterator.items.size()) {
      HEARTH_RETURN_IF_ERROR(budget.ChargeIterations(1));
      if (Equals(iterator.items[iterator.next_index++], value)) return true;
    }
    HEARTH_RETURN_IF_ERROR(iterator.failure);
    return false;
  }
  HEARTH_RETURN_IF_ERROR(budget.ChargeIterations(container.extent().weight));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(budget, container));
  return std::any_of(items.begin(), items.end(),
                     [&value](const Value& item) { return Equals(item, value); });
}

absl::StatusOr<bool> Compare(Budget& budget, CompareOp op, const Value& a, const Value& b) {
  if (a.depth() > 0 && b.depth() > 0) {
    HEARTH_RETURN_IF_ERROR(budget.ChargeIterations(std::min(a.extent().weight, b.extent().weight)));
  } else if (a.IsString() && b.IsString()) {
    HEARTH_RETURN_IF_ERROR(budget.ChargeScan(std::min(a.AsString().size(), b.AsString().size())));
  }
  switch (op) {
    case CompareOp::kEq:
      return Equals(a, b);
    case CompareOp::kNe:
      return !Equals(a, b);
    case CompareOp::kIn:
      return Contains(budget, b, a);
    case CompareOp::kNotIn: {
      HEARTH_ASSIGN_OR_RETURN(const bool contains, Contains(budget, b, a));
      return !contains;
    }
    default:
      break;
  }
  HEARTH_ASSIGN_OR_RETURN(const int order, Order(a, b));
  switch (op) {
    case CompareOp::kLt:
      return order < 0;
    case CompareOp::kLe:
      return order <= 0;
    case CompareOp::kGt:
      return order > 0;
    default:
      return order >= 0;
  }
}

namespace {

absl::Status AppendItems(std::string& out, const std::vector<Value>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    HEARTH_RETURN_IF_ERROR(AppendRepr(out, items[i]));
  }
  return absl::OkStatus();
}

absl::Status AppendDict(std::string& out, const Dict& dict) {
  out += '{';
  bool first = true;
  for (const DictEntry& entry : dict.entries()) {
    if (!first) out += ", ";
    first = false;
    HEARTH_RETURN_IF_ERROR(AppendRepr(out, entry.key));
    out += ": ";
    HEARTH_RETURN_IF_ERROR(AppendRepr(out, entry.value));
  }
  out += '}';
  return absl::OkStatus();
}

absl::Status AppendView(std::string& out, const Value& value) {
  Budget budget;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(budget, value));
  absl::StrAppend(&out, ToAbsl(TypeName(value)), "([");
  HEARTH_RETURN_IF_ERROR(AppendItems(out, items));
  out += "])";
  return absl::OkStatus();
}

// A namespace may hold itself, so what is in it is printed only where it is scalar.
absl::Status AppendNamespace(std::string& out, const NamespaceObject& object) {
  for (const DictEntry& entry : object.attributes.entries()) {
    if (entry.value.depth() > 0 || entry.value.kind() == Kind::kNamespace) {
      return absl::UnimplementedError("printing a namespace that holds containers");
    }
  }
  out += "<Namespace ";
  HEARTH_RETURN_IF_ERROR(AppendDict(out, object.attributes));
  out += '>';
  return absl::OkStatus();
}

}  // namespace

absl::Status AppendRepr(std::string& out, const Value& value) {
  if (out.size() > kOutputBytesMax) return OutputTooLong();
  switch (value.kind()) {
    case Kind::kUndefined:
      out += "Undefined";
      return absl::OkStatus();
    case Kind::kString:
      if (value.AsStringObject().safety == Safety::kMarkup) {
        absl::StrAppend(&out, "Markup(", Repr(value.AsString()), ")");
      } else {
        out += Repr(value.AsString());
      }
      return absl::OkStatus();
    case Kind::kList:
      out += '[';
      HEARTH_RETURN_IF_ERROR(AppendItems(out, value.AsSequence()));
      out += ']';
      return absl::OkStatus();
    case Kind::kTuple:
      out += '(';
      HEARTH_RETURN_IF_ERROR(AppendItems(out, value.AsSequence()));
      out += value.AsSequence().size() == 1 ? ",)" : ")";
      return absl::OkStatus();
    case Kind::kDict:
      return AppendDict(out, value.AsDict());
    default:
      return AppendStr(out, value);
  }
}

absl::Status AppendStr(std::string& out, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      break;
    case Kind::kNone:
      out += "None";
      break;
    case Kind::kBool:
      out += value.AsBool() ? "True" : "False";
      break;
    case Kind::kInt:
      absl::StrAppend(&out, value.AsInt());
      break;
    case Kind::kFloat:
      out += FloatRepr(value.AsDouble());
      break;
    case Kind::kString:
    case Kind::kWideInt:
      out += value.AsString();
      break;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return AppendRepr(out, value);
    case Kind::kRange: {
      const RangeObject& range = value.AsRange();
      absl::StrAppend(&out, "range(", range.start, ", ", range.stop);
      if (range.step != 1) absl::StrAppend(&out, ", ", range.step);
      out += ')';
      break;
    }
    case Kind::kView:
      return AppendView(out, value);
    case Kind::kNamespace:
      return AppendNamespace(out, *value.AsNamespace());
    case Kind::kMacro:
      absl::StrAppend(&out, "<Macro ", Repr(value.AsMacro()->name), ">");
      break;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("a ", ToAbsl(TypeName(value)), " cannot be printed"));
  }
  if (out.size() > kOutputBytesMax) return OutputTooLong();
  return absl::OkStatus();
}

absl::StatusOr<std::string> Str(const Value& value) {
  std::string out;
  HEARTH_RETURN_IF_ERROR(AppendStr(out, value));
  return out;
}

}  // namespace hearth::jinja
