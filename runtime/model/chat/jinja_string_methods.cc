// String methods.
#include "runtime/model/chat/jinja_string_methods.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_arguments.h"
#include "runtime/model/chat/jinja_operators.h"
#include "runtime/model/chat/jinja_text.h"

namespace hearth::jinja {
namespace {

// One call: the text, its arguments, and the way to make results.
struct Call {
  Budget& budget;
  const std::string& name;
  const std::string& text;
  Safety safety;
  BoundArguments args;

  absl::StatusOr<Value> Result(std::string_view result) const {
    return MakeString(budget, std::string(result), safety);
  }

  absl::StatusOr<Value> ResultList(const std::vector<std::string_view>& pieces) const {
    HEARTH_RETURN_IF_ERROR(budget.ChargeIterations(static_cast<int64_t>(pieces.size())));
    std::vector<Value> items;
    for (const std::string_view piece : pieces) {
      HEARTH_ASSIGN_OR_RETURN(Value item, Result(piece));
      items.push_back(std::move(item));
    }
    return Value::List(std::move(items));
  }

  // A string argument; None or a missing one is nullopt.
  absl::StatusOr<std::optional<std::string>> TextAt(size_t index) const {
    if (!args.Has(index) || args[index].IsNone()) return std::optional<std::string>();
    HEARTH_ASSIGN_OR_RETURN(std::string argument, TextOf(args[index]));
    return std::optional<std::string>(std::move(argument));
  }

  absl::StatusOr<std::string> TextOf(const Value& value) const {
    if (value.IsUndefined()) return UndefinedError(value);
    if (!value.IsString()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, "() needs a str, found '", ToAbsl(TypeName(value)), "'"));
    }
    return value.AsString();
  }

  // Text that becomes part of the result: escaped where plain text would enter markup.
  absl::StatusOr<std::string> InsertedTextOf(const Value& value) const {
    HEARTH_ASSIGN_OR_RETURN(std::string argument, TextOf(value));
    if (safety == Safety::kMarkup && value.AsStringObject().safety == Safety::kPlain) {
      return EscapeMarkup(argument);
    }
    return argument;
  }
};

using Function = absl::StatusOr<Value> (*)(const Call&);

template <Sides kSides>
absl::StatusOr<Value> CallStrip(const Call& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::optional<std::string> chars, call.TextAt(0));
  if (chars && chars->size() > 64) {  // each code point of the text is searched for in `chars`
    HEARTH_RETURN_IF_ERROR(call.budget.ChargeScan(call.text.size() * (chars->size() / 64)));
  }
  return call.Result(
      Strip(call.text, kSides, chars ? std::optional<std::string_view>(*chars) : std::nullopt));
}

template <From kFrom>
absl::StatusOr<Value> CallSplit(const Call& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::optional<std::string> separator, call.TextAt(0));
  HEARTH_ASSIGN_OR_RETURN(const int64_t count_max, call.args.IntAt(1, -1));
  if (separator && separator->empty()) return absl::InvalidArgumentError("empty separator");
  return call.ResultList(
      Split(call.text, separator ? std::optional<std::string_view>(*separator) : std::nullopt,
            count_max, kFrom));
}

absl::StatusOr<Value> CallSplitLines(const Call& call) {
  return call.ResultList(
      SplitLines(call.text, call.args.IsTruthyAt(0, false) ? LineEnds::kKeep : LineEnds::kDrop));
}

template <From kFrom>
absl::StatusOr<Value> CallStartsOrEndsWith(const Call& call) {
  std::vector<Value> candidates{call.args[0]};
  if (call.args[0].kind() == Kind::kTuple) candidates = call.args[0].AsSequence();
  HEARTH_RETURN_IF_ERROR(call.budget.ChargeIterations(static_cast<int64_t>(candidates.size())));
  for (const Value& candidate : candidates) {
    HEARTH_ASSIGN_OR_RETURN(const std::string affix, call.TextOf(candidate));
    const std::string_view text = call.text;
    if (kFrom == From::kLeft ? text.starts_with(affix) : text.ends_with(affix)) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

absl::StatusOr<Value> CallReplace(const Call& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::string from, call.TextOf(call.args[0]));
  HEARTH_ASSIGN_OR_RETURN(const std::string to, call.InsertedTextOf(call.args[1]));
  HEARTH_ASSIGN_OR_RETURN(const int64_t count, call.args.IntAt(2, -1));
  std::optional<std::string> out = Replace(call.text, from, to, count, kOutputBytesMax);
  if (!out) return call.budget.ChargeString(kOutputBytesMax + 1);
  return MakeString(call.budget, *std::move(out), call.safety);
}

template <std::string (*kChange)(std::string_view)>
absl::StatusOr<Value> CallCase(const Call& call) {
  return MakeString(call.budget, kChange(call.text), call.safety);
}

template <Property kProperty>
absl::StatusOr<Value> CallProperty(const Call& call) {
  HEARTH_RETURN_IF_ERROR(call.budget.ChargeScan(call.text.size()));
  return Value::Bool(HasProperty(call.text, kProperty));
}

absl::StatusOr<Value> CallIsAscii(const Call& call) {
  return Value::Bool(std::all_of(call.text.begin(), call.text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

absl::StatusOr<Value> CallFind(const Call& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::string needle, call.TextOf(call.args[0]));
  HEARTH_RETURN_IF_ERROR(call.budget.ChargeScan(call.text.size()));
  const size_t at = call.name == "rfind" ? call.text.rfind(needle) : call.text.find(needle);
  if (at == std::string::npos) {
    if (call.name == "index") return absl::InvalidArgumentError("index(): substring not found");
    return Value::Int(-1);
  }
  return Value::Int(CountCodePoints(std::string_view(call.text).substr(0, at)));
}

absl::StatusOr<Value> CallCount(const Call& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::string needle, call.TextOf(call.args[0]));
  HEARTH_RETURN_IF_ERROR(call.budget.ChargeScan(call.text.size()));
  if (needle.empty()) return Value::Int(CountCodePoints(call.text) + 1);
  int64_t count = 0;
  for (size_t at = call.text.find(needle); at != std::string::npos;
       at = call.text.find(needle, at + needle.size())) {
    ++count;
  }
  return Value::Int(count);
}

absl::StatusOr<Value> CallJoin(const Call& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(call.budget, call.args[0]));
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += call.text;
    HEARTH_ASSIGN_OR_RETURN(const std::string piece, call.InsertedTextOf(items[i]));
    out += piece;
    if (out.size() > kOutputBytesMax) break;
  }
  return MakeString(call.budget, std::move(out), call.safety);
}

absl::StatusOr<Value> CallPartition(const Call& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::string separator, call.TextOf(call.args[0]));
  if (separator.empty()) return absl::InvalidArgumentError("empty separator");
  const std::string_view text = call.text;
  const bool from_left = call.name == "partition";
  const size_t at = from_left ? text.find(separator) : text.rfind(separator);
  std::vector<std::string_view> pieces;
  if (at != std::string_view::npos) {
    pieces = {text.substr(0, at), separator, text.substr(at + separator.size())};
  } else if (from_left) {
    pieces = {text, "", ""};
  } else {
    pieces = {"", "", text};
  }
  HEARTH_ASSIGN_OR_RETURN(const Value list, call.ResultList(pieces));
  return Value::Tuple(list.AsSequence());
}

absl::StatusOr<Value> CallRemoveAffix(const Call& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::string affix, call.TextOf(call.args[0]));
  std::string_view text = call.text;
  if (call.name == "removeprefix") {
    if (text.starts_with(affix)) text.remove_prefix(affix.size());
  } else if (text.ends_with(affix)) {
    text.remove_suffix(affix.size());
  }
  return call.Result(text);
}

// Sorted by name.
constexpr std::string_view kNames[] = {
    "capitalize",   "count",        "endswith",   "find",       "index",      "isalnum",
    "isalpha",      "isascii",      "isdecimal",  "isdigit",    "islower",    "isnumeric",
    "isspace",      "isupper",      "join",       "lower",      "lstrip",     "partition",
    "removeprefix", "removesuffix", "replace",    "rfind",      "rpartition", "rsplit",
    "rstrip",       "split",        "splitlines", "startswith", "strip",      "title",
    "upper"};

struct Method {
  Function function;
  Signature signature;
};

constexpr Signature kNothing{};
constexpr Signature kOne{.params = {"value"}, .required_count = 1};
constexpr Signature kChars{.params = {"chars"}, .required_count = 0};
constexpr Signature kSplit{.params = {"sep", "maxsplit"}, .required_count = 0};

// In the order of kNames.
constexpr Method kMethods[] = {
    {CallCase<ToCapitalized>, kNothing},
    {CallCount, kOne},
    {CallStartsOrEndsWith<From::kRight>, kOne},
    {CallFind, kOne},
    {CallFind, kOne},
    {CallProperty<Property::kAlnum>, kNothing},
    {CallProperty<Property::kAlpha>, kNothing},
    {CallIsAscii, kNothing},
    {CallProperty<Property::kDecimal>, kNothing},
    {CallProperty<Property::kDigit>, kNothing},
    {CallProperty<Property::kLower>, kNothing},
    {CallProperty<Property::kNumeric>, kNothing},
    {CallProperty<Property::kSpace>, kNothing},
    {CallProperty<Property::kUpper>, kNothing},
    {CallJoin, kOne},
    {CallCase<ToLower>, kNothing},
    {CallStrip<Sides::kLeft>, kChars},
    {CallPartition, kOne},
    {CallRemoveAffix, kOne},
    {CallRemoveAffix, kOne},
    {CallReplace, {.params = {"old", "new", "count"}, .required_count = 2}},
    {CallFind, kOne},
    {CallPartition, kOne},
    {CallSplit<From::kRight>, kSplit},
    {CallStrip<Sides::kRight>, kChars},
    {CallSplit<From::kLeft>, kSplit},
    {CallSplitLines, {.params = {"keepends"}, .required_count = 0}},
    {CallStartsOrEndsWith<From::kLeft>, kOne},
    {CallStrip<Sides::kBoth>, kChars},
    {CallCase<ToTitle>, kNothing},
    {CallCase<ToUpper>, kNothing},
};
static_assert(std::size(kNames) == std::size(kMethods));

}  // namespace

std::span<const std::string_view> StringMethodNames() { return kNames; }

absl::StatusOr<Value> CallStringMethod(Budget& budget, const MethodObject& method,
                                       const Arguments& arguments) {
  const auto* name = std::find(std::begin(kNames), std::end(kNames), method.name);
  HEARTH_CHECK(name != std::end(kNames));
  const Method& entry = kMethods[name - std::begin(kNames)];
  HEARTH_ASSIGN_OR_RETURN(const BoundArguments bound,
                          Bind(arguments, entry.signature, absl::StrCat(method.name, "()")));
  const StringObject& self = method.self.AsStringObject();
  return entry.function(Call{.budget = budget,
                             .name = method.name,
                             .text = self.text,
                             .safety = self.safety,
                             .args = bound});
}

}  // namespace hearth::jinja
