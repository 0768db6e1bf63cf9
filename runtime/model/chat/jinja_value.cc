// Construction of values, the ordered dictionary, and iteration.
#include "runtime/model/chat/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_operators.h"
#include "runtime/model/chat/jinja_text.h"

namespace hearth::jinja {
namespace {

absl::Status TooDeep() {
  return absl::ResourceExhaustedError(
      absl::StrCat("a value nested deeper than ", kNestingDepthMax, " levels"));
}

void Include(Extent& extent, const Value& item) {
  const Extent inner = item.extent();
  extent.depth = std::max(extent.depth, inner.depth + 1);
  extent.weight = std::min(extent.weight + inner.weight, kValueWeightMax + 1);
}

absl::Status CheckExtent(const Extent& extent) {
  if (extent.depth > kNestingDepthMax) return TooDeep();
  if (extent.weight > kValueWeightMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a value of more than ", kValueWeightMax, " scalars"));
  }
  return absl::OkStatus();
}

absl::StatusOr<Extent> ExtentOver(const std::vector<Value>& items) {
  Extent extent{.depth = 1, .weight = 1};
  for (const Value& item : items) Include(extent, item);
  HEARTH_RETURN_IF_ERROR(CheckExtent(extent));
  return extent;
}

bool IsHashable(const Value& key) {
  if (key.kind() == Kind::kTuple) {
    return std::all_of(key.AsSequence().begin(), key.AsSequence().end(), IsHashable);
  }
  return key.kind() != Kind::kList && key.kind() != Kind::kDict;
}

}  // namespace

Value Value::Undefined(std::string message) {
  Value v;
  auto object = std::make_shared<UndefinedObject>();
  object->message = std::move(message);
  v.object_ = std::move(object);
  return v;
}

Value Value::None() {
  Value v;
  v.kind_ = Kind::kNone;
  return v;
}

Value Value::Bool(bool b) {
  Value v;
  v.kind_ = Kind::kBool;
  v.int_ = b ? 1 : 0;
  return v;
}

Value Value::Int(int64_t i) {
  Value v;
  v.kind_ = Kind::kInt;
  v.int_ = i;
  return v;
}

Value Value::WideInt(std::string digits) {
  Value v = String(std::move(digits));
  v.kind_ = Kind::kWideInt;
  return v;
}

Value Value::Float(double d) {
  Value v;
  v.kind_ = Kind::kFloat;
  v.float_ = d;
  return v;
}

Value Value::String(std::string text, Safety safety) {
  Value v;
  v.kind_ = Kind::kString;
  auto object = std::make_shared<StringObject>();
  object->length = CountCodePoints(text);
  object->text = std::move(text);
  object->safety = safety;
  v.object_ = std::move(object);
  return v;
}

Value Value::OfFunction(Function function) {
  Value v;
  v.kind_ = Kind::kFunction;
  v.int_ = static_cast<int64_t>(function);
  return v;
}

Value Value::OfNamespace(NamespaceObject* object) {
  Value v;
  v.kind_ = Kind::kNamespace;
  v.raw_ = object;
  return v;
}

Value Value::OfMacro(MacroObject* object) {
  Value v;
  v.kind_ = Kind::kMacro;
  v.raw_ = object;
  return v;
}

Value Value::OfLoop(LoopObject* object) {
  Value v;
  v.kind_ = Kind::kLoop;
  v.raw_ = object;
  return v;
}

Value Value::Range(int64_t start, int64_t stop, int64_t step) {
  HEARTH_CHECK(step != 0);
  Value v;
  v.kind_ = Kind::kRange;
  auto object = std::make_shared<RangeObject>();
  object->start = start;
  object->stop = stop;
  object->step = step;
  // In 128 bits, since stop - start may not fit in 64.
  const __int128 span = static_cast<__int128>(stop) - start;
  const __int128 count = step > 0 ? (span + step - 1) / step : (span + step + 1) / step;
  object->count = static_cast<int64_t>(std::clamp<__int128>(count, 0, INT64_MAX));
  v.object_ = std::move(object);
  return v;
}

absl::StatusOr<Value> Value::List(std::vector<Value> items) {
  HEARTH_ASSIGN_OR_RETURN(const Extent extent, ExtentOver(items));
  Value v;
  v.kind_ = Kind::kList;
  auto object = std::make_shared<SequenceObject>();
  object->items = std::move(items);
  object->extent = extent;
  v.object_ = std::move(object);
  return v;
}

absl::StatusOr<Value> Value::Tuple(std::vector<Value> items) {
  HEARTH_ASSIGN_OR_RETURN(Value v, List(std::move(items)));
  v.kind_ = Kind::kTuple;
  return v;
}

absl::StatusOr<Value> Value::Iterator(std::vector<Value> items, absl::Status failure) {
  HEARTH_ASSIGN_OR_RETURN(const Extent extent, ExtentOver(items));
  Value v;
  v.kind_ = Kind::kIterator;
  auto object = std::make_shared<IteratorObject>();
  object->failure = std::move(failure);
  object->items = std::move(items);
  object->extent = extent;
  v.object_ = std::move(object);
  return v;
}

absl::StatusOr<Value> Value::OfDict(Dict dict) {
  auto object = std::make_shared<DictObject>();
  object->extent.depth = 1;
  for (const DictEntry& entry : dict.entries()) {
    Include(object->extent, entry.key);
    Include(object->extent, entry.value);
  }
  HEARTH_RETURN_IF_ERROR(CheckExtent(object->extent));
  object->dict = std::move(dict);
  Value v;
  v.kind_ = Kind::kDict;
  v.object_ = std::move(object);
  return v;
}

absl::StatusOr<Value> Value::View(const Value& dict, ViewKind kind) {
  HEARTH_CHECK(dict.IsDict());
  if (dict.depth() + 2 > kNestingDepthMax) return TooDeep();  // the view, and the pairs of items()
  auto object = std::make_shared<ViewObject>();
  object->dict = dict;
  object->kind = kind;
  Value v;
  v.kind_ = Kind::kView;
  v.object_ = std::move(object);
  return v;
}

absl::StatusOr<Value> Value::Method(const Value& self, std::string_view name) {
  if (self.depth() + 1 > kNestingDepthMax) return TooDeep();
  auto object = std::make_shared<MethodObject>();
  object->self = self;
  object->name = name;
  Value v;
  v.kind_ = Kind::kMethod;
  v.object_ = std::move(object);
  return v;
}

const StringObject& Value::AsStringObject() const {
  return static_cast<const StringObject&>(*object_);
}
const std::vector<Value>& Value::AsSequence() const {
  return static_cast<const SequenceObject&>(*object_).items;
}
const Dict& Value::AsDict() const { return static_cast<const DictObject&>(*object_).dict; }
const RangeObject& Value::AsRange() const { return static_cast<const RangeObject&>(*object_); }
const ViewObject& Value::AsView() const { return static_cast<const ViewObject&>(*object_); }
const IteratorObject& Value::AsIterator() const {
  return static_cast<const IteratorObject&>(*object_);
}
const MethodObject& Value::AsMethod() const { return static_cast<const MethodObject&>(*object_); }

std::string_view Value::UndefinedMessage() const {
  if (!object_) return "the value is undefined";
  return static_cast<const UndefinedObject&>(*object_).message;
}

Extent Value::extent() const {
  switch (kind_) {
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<const SequenceObject&>(*object_).extent;
    case Kind::kDict:
      return static_cast<const DictObject&>(*object_).extent;
    case Kind::kIterator:
      return AsIterator().extent;
    case Kind::kView: {
      const Extent dict = AsView().dict.extent();
      return {.depth = dict.depth + 2, .weight = dict.weight};
    }
    case Kind::kMethod: {
      const Extent self = AsMethod().self.extent();
      return {.depth = self.depth + 1, .weight = self.weight};
    }
    default:
      return {};
  }
}

bool Value::IsSameObject(const Value& other) const {
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::kUndefined:
    case Kind::kNone:
      return kind_ == Kind::kNone || object_ == other.object_;
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kFunction:
      return int_ == other.int_;
    case Kind::kFloat:
      return float_ == other.float_;
    case Kind::kString:
      return AsString() == other.AsString();
    case Kind::kNamespace:
    case Kind::kMacro:
    case Kind::kLoop:
      return raw_ == other.raw_;
    default:
      return object_ == other.object_;
  }
}

const Value* Dict::FindString(std::string_view key) const {
  const auto it = string_index_.find(ToAbsl(key));
  return it == string_index_.end() ? nullptr : &entries_[it->second].value;
}

namespace {

// A text that is the same for keys that Python takes as equal: 1, 1.0 and True. Nothing for keys
// that are neither numbers nor None.
std::optional<std::string> ScalarKey(const Value& key) {
  if (key.IsNone()) return "none";
  if (key.IsIntegral()) return absl::StrCat("i", key.AsInt());
  if (key.kind() != Kind::kFloat) return std::nullopt;
  const double number = key.AsDouble();
  if (number == std::floor(number) && std::fabs(number) < 0x1p63) {
    return absl::StrCat("i", static_cast<int64_t>(number));
  }
  return "f" + FloatRepr(number);
}

}  // namespace

const Value* Dict::Find(const Value& key) const {
  if (key.IsString()) return FindString(key.AsString());
  const std::optional<size_t> index = FindIndex(key);
  return index ? &entries_[*index].value : nullptr;
}

std::optional<size_t> Dict::FindIndex(const Value& key) const {
  if (key.IsString()) {
    const auto it = string_index_.find(key.AsString());
    return it == string_index_.end() ? std::nullopt : std::optional(it->second);
  }
  if (const std::optional<std::string> text = ScalarKey(key)) {
    const auto it = scalar_index_.find(*text);
    return it == scalar_index_.end() ? std::nullopt : std::optional(it->second);
  }
  for (const size_t index : other_index_) {
    if (Equals(entries_[index].key, key)) return index;
  }
  return std::nullopt;
}

absl::Status Dict::Set(const Value& key, Value value) {
  HEARTH_RETURN_IF_ERROR(CheckHashable(key));
  if (const std::optional<size_t> index = FindIndex(key)) {
    entries_[*index].value = std::move(value);
    return absl::OkStatus();
  }
  if (key.IsString()) {
    string_index_.emplace(key.AsString(), entries_.size());
  } else if (std::optional<std::string> text = ScalarKey(key)) {
    scalar_index_.emplace(*std::move(text), entries_.size());
  } else if (other_index_.size() < kCompoundKeysMax) {
    other_index_.push_back(entries_.size());
  } else {
    return absl::ResourceExhaustedError(
        absl::StrCat("a dict of more than ", kCompoundKeysMax, " keys that are not scalars"));
  }
  entries_.push_back({key, std::move(value)});
  return absl::OkStatus();
}

absl::StatusOr<Value> MakeString(Budget& budget, std::string text, Safety safety) {
  HEARTH_RETURN_IF_ERROR(budget.ChargeString(text.size()));
  return Value::String(std::move(text), safety);
}

namespace {

absl::StatusOr<std::vector<Value>> ItemsOfView(const ViewObject& view) {
  std::vector<Value> items;
  for (const DictEntry& entry : view.dict.AsDict().entries()) {
    if (view.kind == ViewKind::kKeys) {
      items.push_back(entry.key);
    } else if (view.kind == ViewKind::kValues) {
      items.push_back(entry.value);
    } else {
      HEARTH_ASSIGN_OR_RETURN(Value pair, Value::Tuple({entry.key, entry.value}));
      items.push_back(std::move(pair));
    }
  }
  return items;
}

std::vector<Value> CodePointsOf(const std::string& text) {
  std::vector<Value> items;
  for (size_t at = 0; at < text.size();) {
    const size_t next = NextCodePoint(text, at);
    items.push_back(Value::String(text.substr(at, next - at)));
    at = next;
  }
  return items;
}

}  // namespace

absl::StatusOr<std::vector<Value>> ItemsOf(Budget& budget, const Value& value) {
  if (value.kind() == Kind::kIterator) {
    const IteratorObject& iterator = value.AsIterator();
    HEARTH_RETURN_IF_ERROR(iterator.failure);
    const size_t from = std::exchange(iterator.next_index, iterator.items.size());
    HEARTH_RETURN_IF_ERROR(
        budget.ChargeIterations(static_cast<int64_t>(iterator.items.size() - from)));
    return std::vector<Value>(iterator.items.begin() + static_cast<std::ptrdiff_t>(from),
                              iterator.items.end());
  }
  const absl::StatusOr<int64_t> length = LengthOf(value);
  if (!length.ok() || value.kind() == Kind::kLoop) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", ToAbsl(TypeName(value)), "' object is not iterable"));
  }
  HEARTH_RETURN_IF_ERROR(budget.ChargeIterations(*length));
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple:
      return value.AsSequence();
    case Kind::kString:
      return CodePointsOf(value.AsString());
    case Kind::kView:
      return ItemsOfView(value.AsView());
    case Kind::kDict: {
      std::vector<Value> keys;
      for (const DictEntry& entry : value.AsDict().entries()) keys.push_back(entry.key);
      return keys;
    }
    case Kind::kRange: {
      const RangeObject& range = value.AsRange();
      std::vector<Value> items;
      for (int64_t i = 0; i < range.count; ++i) {
        items.push_back(Value::Int(range.start + i * range.step));
      }
      return items;
    }
    default:
      return std::vector<Value>();  // undefined
  }
}

absl::StatusOr<int64_t> LengthOf(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.AsStringObject().length;
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.AsSequence().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.AsDict().entries().size());
    case Kind::kView:
      return LengthOf(value.AsView().dict);
    case Kind::kRange:
      return value.AsRange().count;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("object of type '", ToAbsl(TypeName(value)), "' has no len()"));
  }
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kWideInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return value.AsStringObject().safety == Safety::kMarkup ? "Markup" : "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kView:
      return value.AsView().kind == ViewKind::kItems    ? "dict_items"
             : value.AsView().kind == ViewKind::kValues ? "dict_values"
                                                        : "dict_keys";
    case Kind::kIterator:
      return "generator";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kLoop:
      return "LoopContext";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "method";
  }
  return "object";
}

absl::Status CheckHashable(const Value& key) {
  if (IsHashable(key)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("unhashable type: '", ToAbsl(TypeName(key)), "'"));
}

absl::Status UndefinedError(const Value& value) {
  return absl::InvalidArgumentError(ToAbsl(value.UndefinedMessage()));
}

}  // namespace hearth::jinja
