// Looks filters up, and those of single values: text, numbers, JSON, defaults.
#include "runtime/model/chat/jinja_filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_json.h"
#include "runtime/model/chat/jinja_operators.h"
#include "runtime/model/chat/jinja_text.h"

namespace hearth::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// The input as text that keeps its markup; other values as str() prints them.
Result SoftText(const FilterCall& call) {
  if (call.input.IsString()) return call.input;
  HEARTH_ASSIGN_OR_RETURN(std::string text, Str(call.input));
  return MakeString(call.budget, std::move(text));
}

template <std::string (*kChange)(std::string_view)>
Result FilterCase(const FilterCall& call) {
  HEARTH_ASSIGN_OR_RETURN(const Value text, SoftText(call));
  return MakeString(call.budget, kChange(text.AsString()), text.AsStringObject().safety);
}

// Title case as the filter has it: words begin after white space and -({[<.
std::string TitleWords(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto begins_word = [text](size_t i) {
      return IsSpace(DecodeAt(text, i)) ||
             std::string_view("-({[<").find(text[i]) != std::string_view::npos;
    };
    const bool is_gap = begins_word(at);
    size_t end = at;
    while (end < text.size() && begins_word(end) == is_gap) end = NextCodePoint(text, end);
    const size_t first_end = NextCodePoint(text, at);
    out += ToUpper(text.substr(at, first_end - at));
    out += ToLower(text.substr(first_end, end - first_end));
    at = end;
  }
  return out;
}

Result FilterTrim(const FilterCall& call) {
  HEARTH_ASSIGN_OR_RETURN(const Value text, SoftText(call));
  const StringObject& string = text.AsStringObject();
  std::optional<std::string> chars;
  if (call.args.Has(0) && !call.args[0].IsNone()) {
    if (!call.args[0].IsString()) {
      return absl::InvalidArgumentError("trim: strip arg must be None or str");
    }
    chars = call.args[0].AsString();
    if (chars->size() > 64) {
      HEARTH_RETURN_IF_ERROR(call.budget.ChargeScan(string.text.size() * (chars->size() / 64)));
    }
  }
  return MakeString(
      call.budget,
      std::string(Strip(string.text, Sides::kBoth,
                        chars ? std::optional<std::string_view>(*chars) : std::nullopt)),
      string.safety);
}

Result FilterReplace(const FilterCall& call) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, Str(call.input));
  HEARTH_ASSIGN_OR_RETURN(const std::string from, Str(call.args[0]));
  HEARTH_ASSIGN_OR_RETURN(const std::string to, Str(call.args[1]));
  int64_t count = -1;
  if (call.args.Has(2) && !call.args[2].IsNone()) {
    HEARTH_ASSIGN_OR_RETURN(count, call.args.IntAt(2, -1));
  }
  std::optional<std::string> out = Replace(text, from, to, count, kOutputBytesMax);
  if (!out) return call.budget.ChargeString(kOutputBytesMax + 1);
  return MakeString(call.budget, *std::move(out));
}

Result FilterEscape(const FilterCall& call) {
  if (call.input.IsString() && call.input.AsStringObject().safety == Safety::kMarkup) {
    return call.input;
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string text, Str(call.input));
  return MakeString(call.budget, EscapeMarkup(text), Safety::kMarkup);
}

Result FilterSafe(const FilterCall& call) {
  HEARTH_ASSIGN_OR_RETURN(std::string text, Str(call.input));
  return MakeString(call.budget, std::move(text), Safety::kMarkup);
}

Result FilterIndent(const FilterCall& call) {
  if (call.input.IsUndefined()) return UndefinedError(call.input);
  if (!call.input.IsString()) {
    return absl::InvalidArgumentError(
        absl::StrCat("indent needs a str, found '", ToAbsl(TypeName(call.input)), "'"));
  }
  std::string indent(4, ' ');
  if (call.args.Has(0) && call.args[0].IsString()) {
    indent = call.args[0].AsString();
  } else {
    HEARTH_ASSIGN_OR_RETURN(const int64_t width, call.args.IntAt(0, 4));
    indent.assign(static_cast<size_t>(std::clamp<int64_t>(width, 0, kOutputBytesMax)), ' ');
  }
  const std::string text = call.input.AsString() + "\n";
  const std::vector<std::string_view> lines = SplitLines(text, LineEnds::kDrop);
  HEARTH_RETURN_IF_ERROR(call.budget.ChargeIterations(static_cast<int64_t>(lines.size())));
  const bool indent_blank = call.args.IsTruthyAt(2, false);
  std::string out;
  if (call.args.IsTruthyAt(1, false)) out = indent;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      out += '\n';
      if (indent_blank || !lines[i].empty()) out += indent;
    }
    out += lines[i];
    if (out.size() > kOutputBytesMax) break;
  }
  return MakeString(call.budget, std::move(out), call.input.AsStringObject().safety);
}

Result FilterDefault(const FilterCall& call) {
  if (call.input.IsUndefined() || (call.args.IsTruthyAt(1, false) && !IsTruthy(call.input))) {
    return call.args.Has(0) ? call.args[0] : Value::String("");
  }
  return call.input;
}

Result FilterToJson(const FilterCall& call) {
  JsonFormat format{.indent = std::nullopt,
                    .sort_keys = call.args.IsTruthyAt(3, false),
                    .ensure_ascii = call.args.IsTruthyAt(0, false)};
  if (call.args.Has(1) && !call.args[1].IsNone()) {
    if (call.args[1].IsString()) {
      format.indent = call.args[1].AsString();
    } else {
      HEARTH_ASSIGN_OR_RETURN(const int64_t width, call.args.IntAt(1, 0));
      format.indent = std::string(static_cast<size_t>(std::clamp<int64_t>(width, 0, 1024)), ' ');
    }
    format.item_separator.assign(1, ',');
  }
  if (call.args.Has(2) && !call.args[2].IsNone()) {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> separators,
                            ItemsOf(call.budget, call.args[2]));
    if (separators.size() != 2 || !separators[0].IsString() || !separators[1].IsString()) {
      return absl::InvalidArgumentError("tojson: separators must be two strings");
    }
    format.item_separator = separators[0].AsString();
    format.key_separator = separators[1].AsString();
  }
  HEARTH_ASSIGN_OR_RETURN(std::string text, DumpJson(call.input, format));
  return MakeString(call.budget, std::move(text));
}

// Python's reading of a number: white space around it, underscores between digits.
std::optional<std::string> NumberText(std::string_view text) {
  text = Strip(text, Sides::kBoth);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
      continue;
    }
    const auto is_digit = [text](size_t at) {
      return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
  }
  return out;
}

std::optional<double> ParseFloat(std::string_view text) {
  std::optional<std::string> number = NumberText(text);
  if (!number || number->empty()) return std::nullopt;
  std::string_view digits = *number;
  if (digits[0] == '+') digits.remove_prefix(1);  // from_chars takes no plus
  if (digits.empty() || digits[0] == '+' || (number->front() == '+' && digits[0] == '-')) {
    return std::nullopt;
  }
  double value = 0;
  const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (result.ptr != digits.data() + digits.size()) return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) return std::strtod(number->c_str(), nullptr);
  if (result.ec != std::errc() || digits.find('(') != std::string_view::npos) return std::nullopt;
  return value;
}

// int(text, base), nothing where the text is no integer; OutOfRange beyond 64 bits.
absl::StatusOr<std::optional<int64_t>> ParseInteger(std::string_view text, int64_t base) {
  const std::optional<std::string> number = NumberText(text);
  if (!number) return std::optional<int64_t>();
  std::string_view digits = *number;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (base != 10 && digits.size() > 2 && digits[0] == '0') {
    const char letter = static_cast<char>(digits[1] | 0x20);
    if (letter == (base == 16 ? 'x' : base == 8 ? 'o' : 'b')) digits.remove_prefix(2);
  }
  if (digits.empty() || digits[0] == '-' || digits[0] == '+') return std::optional<int64_t>();
  const std::string signed_digits = absl::StrCat(negative ? "-" : "", ToAbsl(digits));
  int64_t value = 0;
  const char* end = signed_digits.data() + signed_digits.size();
  const auto result = std::from_chars(signed_digits.data(), end, value, static_cast<int>(base));
  if (result.ptr != end || result.ec == std::errc::invalid_argument) {
    return std::optional<int64_t>();
  }
  if (result.ec != std::errc()) return absl::OutOfRangeError("an integer beyond 64 bits");
  return std::optional<int64_t>(value);
}

Result FloatToInt(double value) {
  if (!(std::fabs(value) < 0x1p63)) return absl::OutOfRangeError("an integer beyond 64 bits");
  return Value::Int(static_cast<int64_t>(value));
}

Result FilterInt(const FilterCall& call) {
  const Value otherwise = call.args.Has(0) ? call.args[0] : Value::Int(0);
  HEARTH_ASSIGN_OR_RETURN(const int64_t base, call.args.IntAt(1, 10));
  if (base != 2 && base != 8 && base != 10 && base != 16) {
    return absl::UnimplementedError(absl::StrCat("int: base ", base, " is not supported"));
  }
  if (call.input.IsUndefined()) return UndefinedError(call.input);
  if (call.input.IsIntegral()) return Value::Int(call.input.AsInt());
  if (call.input.kind() == Kind::kWideInt) return call.input;
  if (call.input.kind() == Kind::kFloat) {
    if (std::isnan(call.input.AsDouble())) return otherwise;
    return FloatToInt(call.input.AsDouble());
  }
  if (!call.input.IsString()) return otherwise;
  HEARTH_ASSIGN_OR_RETURN(const std::optional<int64_t> value,
                          ParseInteger(call.input.AsString(), base));
  if (value) return Value::Int(*value);
  const std::optional<double> number = ParseFloat(call.input.AsString());
  if (!number || !std::isfinite(*number)) return otherwise;
  return FloatToInt(*number);
}

Result FilterFloat(const FilterCall& call) {
  if (call.input.IsUndefined()) return UndefinedError(call.input);
  if (call.input.IsNumber()) return Value::Float(call.input.AsDouble());
  std::optional<double> value;
  if (call.input.IsString() || call.input.kind() == Kind::kWideInt) {
    value = ParseFloat(call.input.AsString());
  }
  if (value) return Value::Float(*value);
  return call.args.Has(0) ? call.args[0] : Value::Float(0.0);
}

Result FilterAbs(const FilterCall& call) {
  if (call.input.IsIntegral()) {
    return call.input.AsInt() < 0 ? Negate(call.input) : Value::Int(call.input.AsInt());
  }
  if (call.input.kind() == Kind::kFloat) return Value::Float(std::fabs(call.input.AsDouble()));
  return absl::InvalidArgumentError(
      absl::StrCat("bad operand type for abs(): '", ToAbsl(TypeName(call.input)), "'"));
}

// Half to even on the exact binary value, which is what printf's %.*f does too.
Result RoundCommon(const Value& input, int64_t precision) {
  if (precision < 0 || precision > 300) {
    return absl::UnimplementedError(
        absl::StrCat("round: a precision of ", precision, " is not supported"));
  }
  if (input.IsIntegral()) return Value::Int(input.AsInt());
  if (!std::isfinite(input.AsDouble())) return input;
  char text[768];
  std::snprintf(text, sizeof(text), "%.*f", static_cast<int>(precision), input.AsDouble());
  return Value::Float(std::strtod(text, nullptr));
}

Result FilterRound(const FilterCall& call) {
  HEARTH_ASSIGN_OR_RETURN(const int64_t precision, call.args.IntAt(0, 0));
  std::string_view method("common");
  if (call.args.Has(1)) {
    method = call.args[1].IsString() ? std::string_view(call.args[1].AsString()) : "";
  }
  if (method != "common" && method != "ceil" && method != "floor") {
    return absl::InvalidArgumentError("round: method must be common, ceil or floor");
  }
  if (!call.input.IsNumber()) {
    return absl::InvalidArgumentError(
        absl::StrCat("round needs a number, found '", ToAbsl(TypeName(call.input)), "'"));
  }
  if (method == "common") return RoundCommon(call.input, precision);
  HEARTH_ASSIGN_OR_RETURN(const Value factor, Binary(call.budget, BinaryOp::kPow, Value::Int(10),
                                                     Value::Int(precision)));
  HEARTH_ASSIGN_OR_RETURN(const Value scaled,
                          Binary(call.budget, BinaryOp::kMul, call.input, factor));
  if (scaled.IsIntegral()) return Binary(call.budget, BinaryOp::kDiv, scaled, factor);
  const double rounded =
      method == "ceil" ? std::ceil(scaled.AsDouble()) : std::floor(scaled.AsDouble());
  HEARTH_ASSIGN_OR_RETURN(const Value whole, FloatToInt(rounded));
  return Binary(call.budget, BinaryOp::kDiv, whole, factor);
}

// Sorted by name.
constexpr FilterEntry kScalarFilters[] = {
    {"abs", FilterAbs, {}},
    {"capitalize", FilterCase<ToCapitalized>, {}},
    {"d", FilterDefault, {.params = {"default_value", "boolean"}}},
    {"default", FilterDefault, {.params = {"default_value", "boolean"}}},
    {"e", FilterEscape, {}},
    {"escape", FilterEscape, {}},
    {"float", FilterFloat, {.params = {"default"}}},
    {"indent", FilterIndent, {.params = {"width", "first", "blank"}}},
    {"int", FilterInt, {.params = {"default", "base"}}},
    {"lower", FilterCase<ToLower>, {}},
    {"replace", FilterReplace, {.params = {"old", "new", "count"}, .required_count = 2}},
    {"round", FilterRound, {.params = {"precision", "method"}}},
    {"safe", FilterSafe, {}},
    {"string", SoftText, {}},
    {"title", FilterCase<TitleWords>, {}},
    {"tojson", FilterToJson, {.params = {"ensure_ascii", "indent", "separators", "sort_keys"}}},
    {"trim", FilterTrim, {.params = {"chars"}}},
    {"upper", FilterCase<ToUpper>, {}},
};

const FilterEntry* FindFilter(std::string_view name) {
  for (const std::span<const FilterEntry> half : {ScalarFilters(), SequenceFilters()}) {
    for (const FilterEntry& filter : half) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

}  // namespace

std::span<const FilterEntry> ScalarFilters() { return kScalarFilters; }

bool IsFilter(std::string_view name) { return FindFilter(name) != nullptr; }

std::string KnownFilters() {
  std::vector<std::string_view> names;
  for (const FilterEntry& filter : ScalarFilters()) names.push_back(filter.name);
  for (const FilterEntry& filter : SequenceFilters()) names.push_back(filter.name);
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string_view name : names) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", ToAbsl(name));
  }
  return text;
}

absl::StatusOr<Value> ApplyFilter(Budget& budget, std::string_view name, const Value& input,
                                  const Arguments& arguments) {
  const FilterEntry* filter = FindFilter(name);
  if (filter == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("no filter named '", ToAbsl(name), "'"));
  }
  FilterCall call{.budget = budget, .input = input, .raw = arguments, .args = {}};
  if (!filter->takes_raw) {
    HEARTH_ASSIGN_OR_RETURN(call.args, Bind(arguments, filter->signature,
                                            absl::StrCat("the filter '", ToAbsl(name), "'")));
  }
  return filter->function(call);
}

}  // namespace hearth::jinja
