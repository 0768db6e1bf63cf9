// The table of tests.
#include "runtime/model/chat/jinja_tests.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_arguments.h"
#include "runtime/model/chat/jinja_filters.h"
#include "runtime/model/chat/jinja_operators.h"
#include "runtime/model/chat/jinja_text.h"

namespace hearth::jinja {
namespace {

using Answer = absl::StatusOr<bool>;

// A test of the value alone, or one that takes one more.
struct TestEntry {
  std::string_view name;
  Answer (*of_value)(Budget&, const Value&);
  Answer (*of_pair)(Budget&, const Value&, const Value&);
};

template <Kind... kKinds>
Answer IsOfKind(Budget& /*budget*/, const Value& v) {
  return ((v.kind() == kKinds) || ...);
}

Answer IsDefined(Budget& /*budget*/, const Value& v) { return !v.IsUndefined(); }
Answer IsTrue(Budget& /*budget*/, const Value& v) { return v.kind() == Kind::kBool && v.AsBool(); }
Answer IsFalse(Budget& /*budget*/, const Value& v) {
  return v.kind() == Kind::kBool && !v.AsBool();
}

Answer IsSequence(Budget& /*budget*/, const Value& v) {
  return v.kind() != Kind::kView && v.kind() != Kind::kLoop && LengthOf(v).ok();
}

Answer IsIterable(Budget& /*budget*/, const Value& v) {
  return v.kind() == Kind::kIterator || v.kind() == Kind::kLoop || LengthOf(v).ok();
}

Answer IsCallable(Budget& /*budget*/, const Value& v) {
  return v.kind() == Kind::kMacro || v.kind() == Kind::kFunction || v.kind() == Kind::kMethod ||
         v.kind() == Kind::kLoop || v.IsUndefined();  // as Python's callable() sees Undefined
}

Answer IsEscaped(Budget& /*budget*/, const Value& v) {
  return v.IsString() && v.AsStringObject().safety == Safety::kMarkup;
}

Answer RemainderIs(Budget& budget, const Value& v, int64_t divisor, int64_t wanted) {
  HEARTH_ASSIGN_OR_RETURN(const Value remainder,
                          Binary(budget, BinaryOp::kMod, v, Value::Int(divisor)));
  return Equals(remainder, Value::Int(wanted));
}

Answer IsOdd(Budget& budget, const Value& v) { return RemainderIs(budget, v, 2, 1); }
Answer IsEven(Budget& budget, const Value& v) { return RemainderIs(budget, v, 2, 0); }

Answer IsDivisibleBy(Budget& budget, const Value& v, const Value& divisor) {
  HEARTH_ASSIGN_OR_RETURN(const Value remainder, Binary(budget, BinaryOp::kMod, v, divisor));
  return Equals(remainder, Value::Int(0));
}

template <Property kProperty>
Answer IsCase(Budget& /*budget*/, const Value& v) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, Str(v));
  return HasProperty(text, kProperty);
}

Answer IsFilterName(Budget& /*budget*/, const Value& v) {
  return v.IsString() && IsFilter(v.AsString());
}
Answer IsTestName(Budget& /*budget*/, const Value& v) {
  return v.IsString() && IsTest(v.AsString());
}

template <CompareOp kOp>
Answer IsOrdered(Budget& budget, const Value& a, const Value& b) {
  return Compare(budget, kOp, a, b);
}

Answer IsSameAs(Budget& /*budget*/, const Value& a, const Value& b) { return a.IsSameObject(b); }

constexpr TestEntry kTests[] = {
    {"!=", nullptr, IsOrdered<CompareOp::kNe>},
    {"<", nullptr, IsOrdered<CompareOp::kLt>},
    {"<=", nullptr, IsOrdered<CompareOp::kLe>},
    {"==", nullptr, IsOrdered<CompareOp::kEq>},
    {">", nullptr, IsOrdered<CompareOp::kGt>},
    {">=", nullptr, IsOrdered<CompareOp::kGe>},
    {"boolean", IsOfKind<Kind::kBool>, nullptr},
    {"callable", IsCallable, nullptr},
    {"defined", IsDefined, nullptr},
    {"divisibleby", nullptr, IsDivisibleBy},
    {"eq", nullptr, IsOrdered<CompareOp::kEq>},
    {"equalto", nullptr, IsOrdered<CompareOp::kEq>},
    {"escaped", IsEscaped, nullptr},
    {"even", IsEven, nullptr},
    {"false", IsFalse, nullptr},
    {"filter", IsFilterName, nullptr},
    {"float", IsOfKind<Kind::kFloat>, nullptr},
    {"ge", nullptr, IsOrdered<CompareOp::kGe>},
    {"greaterthan", nullptr, IsOrdered<CompareOp::kGt>},
    {"gt", nullptr, IsOrdered<CompareOp::kGt>},
    {"in", nullptr, IsOrdered<CompareOp::kIn>},
    {"integer", IsOfKind<Kind::kInt, Kind::kWideInt>, nullptr},
    {"iterable", IsIterable, nullptr},
    {"le", nullptr, IsOrdered<CompareOp::kLe>},
    {"lessthan", nullptr, IsOrdered<CompareOp::kLt>},
    {"lower", IsCase<Property::kLower>, nullptr},
    {"lt", nullptr, IsOrdered<CompareOp::kLt>},
    {"mapping", IsOfKind<Kind::kDict>, nullptr},
    {"ne", nullptr, IsOrdered<CompareOp::kNe>},
    {"none", IsOfKind<Kind::kNone>, nullptr},
    {"number", IsOfKind<Kind::kBool, Kind::kInt, Kind::kWideInt, Kind::kFloat>, nullptr},
    {"odd", IsOdd, nullptr},
    {"sameas", nullptr, IsSameAs},
    {"sequence", IsSequence, nullptr},
    {"string", IsOfKind<Kind::kString>, nullptr},
    {"test", IsTestName, nullptr},
    {"true", IsTrue, nullptr},
    {"undefined", IsOfKind<Kind::kUndefined>, nullptr},
    {"upper", IsCase<Property::kUpper>, nullptr},
};

const TestEntry* FindTest(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [name](const TestEntry& test) { return test.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

}  // namespace

bool IsTest(std::string_view name) { return FindTest(name) != nullptr; }

std::string KnownTests() {
  std::string names;
  for (const TestEntry& test : kTests) {
    if (test.name[0] < 'a') continue;  // the operators can be named in select('==') only
    absl::StrAppend(&names, names.empty() ? "" : ", ", ToAbsl(test.name));
  }
  return names;
}

absl::StatusOr<bool> ApplyTest(Budget& budget, std::string_view name, const Value& value,
                               const Arguments& arguments) {
  const TestEntry* test = FindTest(name);
  if (test == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("no test named '", ToAbsl(name), "'"));
  }
  const std::string what = absl::StrCat("the test '", ToAbsl(name), "'");
  if (test->of_value != nullptr) {
    HEARTH_RETURN_IF_ERROR(Bind(arguments, {}, what).status());
    return test->of_value(budget, value);
  }
  const std::string_view param = name == "divisibleby" ? "num" : name == "in" ? "seq" : "other";
  HEARTH_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind(arguments, {.params = {param}, .required_count = 1}, what));
  return test->of_pair(budget, value, bound[0]);
}

}  // namespace hearth::jinja
