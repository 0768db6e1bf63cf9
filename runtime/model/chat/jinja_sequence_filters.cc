// Filters over what can be iterated: lengths, items, mapping, selecting, sorting, sums.
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_access.h"
#include "runtime/model/chat/jinja_filters.h"
#include "runtime/model/chat/jinja_operators.h"
#include "runtime/model/chat/jinja_tests.h"
#include "runtime/model/chat/jinja_text.h"

namespace hearth::jinja {
namespace {

using Result = absl::StatusOr<Value>;

// Reads "a.b.0" from items: names are keys or attributes, digits are indices.
class AttributePath {
 public:
  // Null or None is the item itself.
  static absl::StatusOr<AttributePath> From(const Value* attribute) {
    AttributePath path;
    if (attribute == nullptr || attribute->IsNone()) return path;
    if (!attribute->IsString()) {
      path.parts_.push_back(*attribute);
      return path;
    }
    for (const absl::string_view part : absl::StrSplit(attribute->AsString(), '.')) {
      HEARTH_ASSIGN_OR_RETURN(Value key, KeyOf(std::string(part)));
      path.parts_.push_back(std::move(key));
    }
    return path;
  }

  Result Read(Budget& budget, Value item, const Value* otherwise = nullptr) const {
    HEARTH_RETURN_IF_ERROR(budget.ChargeIterations(static_cast<int64_t>(parts_.size())));
    for (const Value& part : parts_) {
      HEARTH_ASSIGN_OR_RETURN(item, GetItem(budget, item, part));
      if (otherwise != nullptr && !otherwise->IsNone() && item.IsUndefined()) item = *otherwise;
    }
    return item;
  }

 private:
  static Result KeyOf(std::string part) {
    if (!HasProperty(part, Property::kDigit)) return Value::String(std::move(part));
    if (part.size() > 9) return absl::OutOfRangeError("an index of more than 9 digits");
    return Value::Int(std::atoll(part.c_str()));
  }

  std::vector<Value> parts_;
};

Value IgnoreCase(const Value& value) {
  return value.IsString() ? Value::String(ToLower(value.AsString())) : value;
}

// The value that an item is compared by.
struct KeyReader {
  std::vector<AttributePath> paths;
  bool case_sensitive = false;
  bool is_list = false;  // compare as Python compares lists: equal elements need no order

  // `attribute` may be null; "a,b" reads two where `several`.
  static absl::StatusOr<KeyReader> From(const Value* attribute, bool case_sensitive, bool several) {
    KeyReader reader;
    reader.case_sensitive = case_sensitive;
    reader.is_list = several;
    if (several && attribute != nullptr && attribute->IsString()) {
      for (const absl::string_view part : absl::StrSplit(attribute->AsString(), ',')) {
        const Value text = Value::String(std::string(part));
        HEARTH_ASSIGN_OR_RETURN(AttributePath path, AttributePath::From(&text));
        reader.paths.push_back(std::move(path));
      }
      return reader;
    }
    HEARTH_ASSIGN_OR_RETURN(AttributePath path, AttributePath::From(attribute));
    reader.paths.push_back(std::move(path));
    return reader;
  }

  Result Read(Budget& budget, const Value& item) const {
    std::vector<Value> keys;
    for (const AttributePath& path : paths) {
      HEARTH_ASSIGN_OR_RETURN(Value key, path.Read(budget, item));
      keys.push_back(case_sensitive ? std::move(key) : IgnoreCase(key));
    }
    return is_list ? Value::List(std::move(keys)) : keys[0];
  }
};

const Value* ArgOrNull(const FilterCall& call, size_t index) { return call.args.values[index]; }

Result FilterLength(const FilterCall& call) {
  HEARTH_ASSIGN_OR_RETURN(const int64_t length, LengthOf(call.input));
  return Value::Int(length);
}

Result FilterList(const FilterCall& call) {
  HEARTH_ASSIGN_OR_RETURN(std::vector<Value> items, ItemsOf(call.budget, call.input));
  return Value::List(std::move(items));
}

Result FilterFirst(const FilterCall& call) {
  if (call.input.kind() == Kind::kIterator) {
    const IteratorObject& iterator = call.input.AsIterator();
    if (iterator.next_index < iterator.items.size()) return iterator.items[iterator.next_index++];
    HEARTH_RETURN_IF_ERROR(iterator.failure);
  } else {
    HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(call.budget, call.input));
    if (!items.empty()) return items.front();
  }
  return Value::Undefined("No first item, sequence was empty.");
}

absl::Status NotReversible(const Value& value) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", ToAbsl(TypeName(value)), "' object is not reversible"));
}

Result FilterLast(const FilterCall& call) {
  if (call.input.kind() == Kind::kIterator) return NotReversible(call.input);
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(call.budget, call.input));
  if (!items.empty()) return items.back();
  return Value::Undefined("No last item, sequence was empty.");
}

Result FilterReverse(const FilterCall& call) {
  if (call.input.IsString()) {
    const Value step = Value::Int(-1);
    return GetSlice(call.budget, call.input, {.step = &step});
  }
  HEARTH_ASSIGN_OR_RETURN(std::vector<Value> items, ItemsOf(call.budget, call.input));
  std::reverse(items.begin(), items.end());
  return call.input.kind() == Kind::kIterator ? Value::List(std::move(items))
                                              : Value::Iterator(std::move(items));
}

Result FilterItems(const FilterCall& call) {
  if (call.input.IsUndefined()) return Value::Iterator({});
  if (!call.input.IsDict()) {
    return Value::Iterator({},
                           absl::InvalidArgumentError("Can only get item pairs from a mapping."));
  }
  HEARTH_ASSIGN_OR_RETURN(const Value view, Value::View(call.input, ViewKind::kItems));
  HEARTH_ASSIGN_OR_RETURN(std::vector<Value> pairs, ItemsOf(call.budget, view));
  return Value::Iterator(std::move(pairs));
}

Result FilterJoin(const FilterCall& call) {
  HEARTH_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::From(ArgOrNull(call, 1)));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(call.budget, call.input));
  std::string separator;
  if (call.args.Has(0)) {
    HEARTH_ASSIGN_OR_RETURN(separator, Str(call.args[0]));
  }
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += separator;
    HEARTH_ASSIGN_OR_RETURN(const Value item, path.Read(call.budget, items[i]));
    HEARTH_RETURN_IF_ERROR(AppendStr(out, item));
    if (out.size() > kOutputBytesMax) break;
  }
  return MakeString(call.budget, std::move(out));
}

Arguments Rest(const Arguments& arguments, size_t from) {
  Arguments rest;
  rest.positional.assign(arguments.positional.begin() + static_cast<std::ptrdiff_t>(from),
                         arguments.positional.end());
  rest.keywords = arguments.keywords;
  return rest;
}

// The result of a filter that is a generator in Python: what it has yielded so far, and where it
// failed. Running out of budget is reported at once.
Result Generator(std::vector<Value> items, absl::Status status) {
  if (status.code() == absl::StatusCode::kResourceExhausted) return status;
  return Value::Iterator(std::move(items), std::move(status));
}

using Yielded = std::vector<Value>;

// The items of the input, or nothing where it is falsy, as map and select have it.
absl::StatusOr<std::vector<Value>> ItemsIfTruthy(const FilterCall& call) {
  if (!IsTruthy(call.input)) return std::vector<Value>();
  return ItemsOf(call.budget, call.input);
}

absl::Status MapAttribute(const FilterCall& call, Yielded& out) {
  const Value* attribute = nullptr;
  const Value* otherwise = nullptr;
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsIfTruthy(call));
  for (const KeywordArgument& keyword : call.raw.keywords) {
    if (keyword.name == "attribute") {
      attribute = &keyword.value;
    } else if (keyword.name == "default") {
      otherwise = &keyword.value;
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("map: unexpected keyword argument '", keyword.name, "'"));
    }
  }
  HEARTH_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::From(attribute));
  for (const Value& item : items) {
    HEARTH_ASSIGN_OR_RETURN(Value mapped, path.Read(call.budget, item, otherwise));
    out.push_back(std::move(mapped));
  }
  return absl::OkStatus();
}

absl::Status MapFilter(const FilterCall& call, Yielded& out) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsIfTruthy(call));
  if (items.empty()) return absl::OkStatus();
  if (call.raw.positional.empty() || !call.raw.positional[0].IsString()) {
    return absl::InvalidArgumentError("map requires a filter argument");
  }
  const std::string& name = call.raw.positional[0].AsString();
  // A filter inside of a filter inside of a filter would recurse as deep as a template is long.
  if (name == "map" || name == "select" || name == "reject" || name == "selectattr" ||
      name == "rejectattr") {
    return absl::UnimplementedError(absl::StrCat("map('", name, "') is not supported"));
  }
  const Arguments rest = Rest(call.raw, 1);
  for (const Value& item : items) {
    HEARTH_ASSIGN_OR_RETURN(Value mapped, ApplyFilter(call.budget, name, item, rest));
    out.push_back(std::move(mapped));
  }
  return absl::OkStatus();
}

Result FilterMap(const FilterCall& call) {
  const bool has_attribute =
      std::any_of(call.raw.keywords.begin(), call.raw.keywords.end(),
                  [](const KeywordArgument& keyword) { return keyword.name == "attribute"; });
  Yielded out;
  absl::Status status =
      call.raw.positional.empty() && has_attribute ? MapAttribute(call, out) : MapFilter(call, out);
  return Generator(std::move(out), std::move(status));
}

enum class Keep : uint8_t { kMatching, kOthers };
enum class Look : uint8_t { kItem, kAttribute };

absl::Status Select(const FilterCall& call, Keep keep, Look look, Yielded& out) {
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsIfTruthy(call));
  if (items.empty()) return absl::OkStatus();
  const std::vector<Value>& args = call.raw.positional;
  const size_t offset = look == Look::kAttribute ? 1 : 0;
  if (args.size() < offset) {
    return absl::InvalidArgumentError("Missing parameter for attribute name");
  }
  HEARTH_ASSIGN_OR_RETURN(const AttributePath path,
                          AttributePath::From(offset == 1 ? &args[0] : nullptr));
  const bool has_test = args.size() > offset;
  if (has_test && !args[offset].IsString()) {
    return absl::InvalidArgumentError("the name of a test must be a str");
  }
  const Arguments rest = has_test ? Rest(call.raw, offset + 1) : Arguments{};
  for (const Value& item : items) {
    HEARTH_ASSIGN_OR_RETURN(const Value subject, path.Read(call.budget, item));
    bool matches = IsTruthy(subject);
    if (has_test) {
      HEARTH_ASSIGN_OR_RETURN(matches,
                              ApplyTest(call.budget, args[offset].AsString(), subject, rest));
    }
    if (matches == (keep == Keep::kMatching)) out.push_back(item);
  }
  return absl::OkStatus();
}

template <Keep kKeep, Look kLook>
Result FilterSelect(const FilterCall& call) {
  Yielded out;
  absl::Status status = Select(call, kKeep, kLook, out);
  return Generator(std::move(out), std::move(status));
}

struct KeyedItem {
  Value key;
  Value item;
};

// Sorts by key, keeping the order of equal ones; an error of any comparison is the result.
absl::Status SortByKey(Budget& budget, std::vector<KeyedItem>& items, bool reverse) {
  int64_t weight = 1;
  for (const KeyedItem& item : items) weight = std::max(weight, item.key.extent().weight);
  for (size_t n = items.size(); n > 1; n /= 2) {  // n log n comparisons of at most `weight`
    HEARTH_RETURN_IF_ERROR(budget.ChargeIterations(
        std::min(weight * static_cast<int64_t>(items.size()) / 8 + 1, kIterationsMax + 1)));
  }
  absl::Status status;
  std::stable_sort(items.begin(), items.end(),
                   [&status, reverse](const KeyedItem& a, const KeyedItem& b) {
                     const absl::StatusOr<int> order = Order(a.key, b.key);
                     if (!order.ok()) {
                       status = order.status();
                       return false;
                     }
                     return reverse ? *order > 0 : *order < 0;
                   });
  return status;
}

absl::StatusOr<std::vector<KeyedItem>> WithKeys(const FilterCall& call, const KeyReader& reader,
                                                const std::vector<Value>& items) {
  std::vector<KeyedItem> keyed;
  for (const Value& item : items) {
    HEARTH_ASSIGN_OR_RETURN(Value key, reader.Read(call.budget, item));
    keyed.push_back({std::move(key), item});
  }
  return keyed;
}

Result ListOfItems(std::vector<KeyedItem> keyed) {
  std::vector<Value> items;
  for (KeyedItem& item : keyed) items.push_back(std::move(item.item));
  return Value::List(std::move(items));
}

Result FilterSort(const FilterCall& call) {
  HEARTH_ASSIGN_OR_RETURN(
      const KeyReader reader,
      KeyReader::From(ArgOrNull(call, 2), call.args.IsTruthyAt(1, false), true));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(call.budget, call.input));
  HEARTH_ASSIGN_OR_RETURN(std::vector<KeyedItem> keyed, WithKeys(call, reader, items));
  HEARTH_RETURN_IF_ERROR(SortByKey(call.budget, keyed, call.args.IsTruthyAt(0, false)));
  return ListOfItems(std::move(keyed));
}

Result FilterDictSort(const FilterCall& call) {
  if (call.input.IsUndefined()) return UndefinedError(call.input);
  if (!call.input.IsDict()) {
    return absl::InvalidArgumentError(
        absl::StrCat("dictsort needs a dict, found '", ToAbsl(TypeName(call.input)), "'"));
  }
  const bool by_value = call.args.Has(1) && Equals(call.args[1], Value::String("value"));
  if (call.args.Has(1) && !by_value && !Equals(call.args[1], Value::String("key"))) {
    return absl::InvalidArgumentError("You can only sort by either \"key\" or \"value\"");
  }
  HEARTH_ASSIGN_OR_RETURN(const Value view, Value::View(call.input, ViewKind::kItems));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> pairs, ItemsOf(call.budget, view));
  const bool case_sensitive = call.args.IsTruthyAt(0, false);
  std::vector<KeyedItem> keyed;
  for (const Value& pair : pairs) {
    const Value& key = pair.AsSequence()[by_value ? 1 : 0];
    keyed.push_back({case_sensitive ? key : IgnoreCase(key), pair});
  }
  HEARTH_RETURN_IF_ERROR(SortByKey(call.budget, keyed, call.args.IsTruthyAt(2, false)));
  return ListOfItems(std::move(keyed));
}

absl::Status Unique(const FilterCall& call, Yielded& out) {
  HEARTH_ASSIGN_OR_RETURN(
      const KeyReader reader,
      KeyReader::From(ArgOrNull(call, 1), call.args.IsTruthyAt(0, false), false));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(call.budget, call.input));
  Dict seen;
  for (const Value& item : items) {
    HEARTH_ASSIGN_OR_RETURN(const Value key, reader.Read(call.budget, item));
    const size_t count = seen.entries().size();
    HEARTH_RETURN_IF_ERROR(seen.Set(key, Value::None()));
    if (seen.entries().size() > count) out.push_back(item);
  }
  return absl::OkStatus();
}

Result FilterUnique(const FilterCall& call) {
  Yielded out;
  absl::Status status = Unique(call, out);
  return Generator(std::move(out), std::move(status));
}

// The first of the smallest (sign -1) or largest (sign 1) items.
template <int kSign>
Result FilterExtreme(const FilterCall& call) {
  HEARTH_ASSIGN_OR_RETURN(
      const KeyReader reader,
      KeyReader::From(ArgOrNull(call, 1), call.args.IsTruthyAt(0, false), false));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(call.budget, call.input));
  if (items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  HEARTH_ASSIGN_OR_RETURN(const std::vector<KeyedItem> keyed, WithKeys(call, reader, items));
  const KeyedItem* best = &keyed[0];
  for (size_t i = 1; i < keyed.size(); ++i) {
    HEARTH_ASSIGN_OR_RETURN(const int order, Order(keyed[i].key, best->key));
    if (order == kSign) best = &keyed[i];
  }
  return best->item;
}

Result FilterSum(const FilterCall& call) {
  HEARTH_ASSIGN_OR_RETURN(const AttributePath path, AttributePath::From(ArgOrNull(call, 0)));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<Value> items, ItemsOf(call.budget, call.input));
  Value total = call.args.Has(1) ? call.args[1] : Value::Int(0);
  if (total.IsString()) return absl::InvalidArgumentError("sum() can't sum strings");
  for (const Value& item : items) {
    HEARTH_ASSIGN_OR_RETURN(const Value term, path.Read(call.budget, item));
    HEARTH_ASSIGN_OR_RETURN(total, Binary(call.budget, BinaryOp::kAdd, total, term));
  }
  return total;
}

// Sorted by name.
constexpr FilterEntry kSequenceFilters[] = {
    {"count", FilterLength, {}},
    {"dictsort", FilterDictSort, {.params = {"case_sensitive", "by", "reverse"}}},
    {"first", FilterFirst, {}},
    {"items", FilterItems, {}},
    {"join", FilterJoin, {.params = {"d", "attribute"}}},
    {"last", FilterLast, {}},
    {"length", FilterLength, {}},
    {"list", FilterList, {}},
    {"map", FilterMap, {}, true},
    {"max", FilterExtreme<1>, {.params = {"case_sensitive", "attribute"}}},
    {"min", FilterExtreme<-1>, {.params = {"case_sensitive", "attribute"}}},
    {"reject", FilterSelect<Keep::kOthers, Look::kItem>, {}, true},
    {"rejectattr", FilterSelect<Keep::kOthers, Look::kAttribute>, {}, true},
    {"reverse", FilterReverse, {}},
    {"select", FilterSelect<Keep::kMatching, Look::kItem>, {}, true},
    {"selectattr", FilterSelect<Keep::kMatching, Look::kAttribute>, {}, true},
    {"sort", FilterSort, {.params = {"reverse", "case_sensitive", "attribute"}}},
    {"sum", FilterSum, {.params = {"attribute", "start"}}},
    {"unique", FilterUnique, {.params = {"case_sensitive", "attribute"}}},
};

}  // namespace

std::span<const FilterEntry> SequenceFilters() { return kSequenceFilters; }

}  // namespace hearth::jinja
