// Values of the template language: Python's, as far as chat templates see them. A Value is cheap to
// copy; strings and containers are immutable and shared. Namespaces, macros and loops are the
// mutable objects; the rendering owns them and a Value only points to them. Thread-compatible.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"

#include "runtime/model/chat/jinja_limits.h"

namespace hearth::jinja {

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,      // 64 bits; what does not fit is an error
  kWideInt,  // an integer of the input beyond 64 bits: decimal text, can be printed and compared
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,      // dict.keys(), .values(), .items()
  kIterator,  // what a Python generator or reversed() would be: its items can be taken once
  kNamespace,
  kMacro,
  kLoop,
  kFunction,  // a global function
  kMethod,    // a method with its object
};

enum class Function : uint8_t { kRange, kDict, kNamespace, kRaiseException, kStrftimeNow };
enum class ViewKind : uint8_t { kKeys, kValues, kItems };
enum class Safety : uint8_t { kPlain, kMarkup };  // markup: marked by `safe` or `escape`

class Dict;
class Value;
struct NamespaceObject;
struct MacroObject;
struct LoopObject;

struct Object {
  virtual ~Object() = default;
};

// How large a value is: its levels of containers, and its scalars, each counted as often as it is
// reached. A scalar has depth 0 and weight 1.
struct Extent {
  int32_t depth = 0;
  int64_t weight = 1;
};

struct StringObject : Object {
  std::string text;    // UTF-8
  int64_t length = 0;  // code points
  Safety safety = Safety::kPlain;
};

struct UndefinedObject : Object {
  std::string message;  // what an operation on it reports
};

struct RangeObject : Object {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  int64_t count = 0;
};

struct SequenceObject;
struct ViewObject;
struct IteratorObject;
struct MethodObject;

class Value {
 public:
  Value() = default;  // undefined, without a message of its own

  static Value Undefined(std::string message);
  static Value None();
  static Value Bool(bool v);
  static Value Int(int64_t v);
  static Value WideInt(std::string digits);
  static Value Float(double v);
  // REQUIRES: `text` is UTF-8. Strings whose length a template controls go through MakeString().
  static Value String(std::string text, Safety safety = Safety::kPlain);
  static Value OfFunction(Function function);
  static Value OfNamespace(NamespaceObject* object);
  static Value OfMacro(MacroObject* object);
  static Value OfLoop(LoopObject* object);
  static Value Range(int64_t start, int64_t stop, int64_t step);

  // Containers: ResourceExhausted past kNestingDepthMax or kValueWeightMax.
  static absl::StatusOr<Value> List(std::vector<Value> items);
  static absl::StatusOr<Value> Tuple(std::vector<Value> items);
  // `failure` is what taking an item after the last one reports.
  static absl::StatusOr<Value> Iterator(std::vector<Value> items,
                                        absl::Status failure = absl::OkStatus());
  static absl::StatusOr<Value> OfDict(Dict dict);
  static absl::StatusOr<Value> View(const Value& dict, ViewKind kind);
  static absl::StatusOr<Value> Method(const Value& self, std::string_view name);

  Kind kind() const { return kind_; }
  bool IsUndefined() const { return kind_ == Kind::kUndefined; }
  bool IsNone() const { return kind_ == Kind::kNone; }
  bool IsString() const { return kind_ == Kind::kString; }
  bool IsDict() const { return kind_ == Kind::kDict; }
  bool IsIntegral() const { return kind_ == Kind::kBool || kind_ == Kind::kInt; }
  bool IsNumber() const { return IsIntegral() || kind_ == Kind::kFloat; }

  // REQUIRES for each: the kind that the name says.
  bool AsBool() const { return int_ != 0; }
  int64_t AsInt() const { return int_; }  // bool too, as Python has it
  double AsDouble() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_); }
  const StringObject& AsStringObject() const;
  const std::string& AsString() const { return AsStringObject().text; }
  const std::string& AsWideInt() const { return AsStringObject().text; }
  const std::vector<Value>& AsSequence() const;  // list or tuple
  const Dict& AsDict() const;
  const RangeObject& AsRange() const;
  const ViewObject& AsView() const;
  const IteratorObject& AsIterator() const;
  const MethodObject& AsMethod() const;
  Function AsFunction() const { return static_cast<Function>(int_); }
  NamespaceObject* AsNamespace() const { return static_cast<NamespaceObject*>(raw_); }
  MacroObject* AsMacro() const { return static_cast<MacroObject*>(raw_); }
  LoopObject* AsLoop() const { return static_cast<LoopObject*>(raw_); }

  std::string_view UndefinedMessage() const;
  Extent extent() const;
  int32_t depth() const { return extent().depth; }
  // Python's `is`, as far as it can be told from outside.
  bool IsSameObject(const Value& other) const;

 private:
  Kind kind_ = Kind::kUndefined;
  union {
    int64_t int_ = 0;
    double float_;
    void* raw_;
  };
  std::shared_ptr<const Object> object_;
};

struct SequenceObject : Object {
  std::vector<Value> items;
  Extent extent;
};

struct DictEntry {
  Value key;
  Value value;
};

// Insertion-ordered; keys are strings, numbers, None or tuples of such.
class Dict {
 public:
  const std::vector<DictEntry>& entries() const { return entries_; }
  const Value* Find(const Value& key) const;
  const Value* FindString(std::string_view key) const;
  // Replaces the value of an equal key, in its place. A key that Python cannot hash is an error,
  // and so are more than kCompoundKeysMax keys that are tuples or objects.
  absl::Status Set(const Value& key, Value value);

 private:
  std::optional<size_t> FindIndex(const Value& key) const;

  std::vector<DictEntry> entries_;
  absl::flat_hash_map<std::string, size_t> string_index_;  // text of string keys -> entry
  absl::flat_hash_map<std::string, size_t> scalar_index_;  // text of numbers and None -> entry
  std::vector<size_t> other_index_;                        // entries with another key
};

struct DictObject : Object {
  Dict dict;
  Extent extent;
};

struct ViewObject : Object {
  Value dict;
  ViewKind kind = ViewKind::kKeys;
};

struct IteratorObject : Object {
  std::vector<Value> items;
  mutable size_t next_index = 0;  // items before it have been taken
  absl::Status failure;           // a generator fails only when its items are asked for
  Extent extent;
};

struct MethodObject : Object {
  Value self;
  std::string name;
};

struct NamespaceObject {
  Dict attributes;
};

struct MacroObject {  // the interpreter's macros derive from it
  std::string name;
};

// What a caller passes: {{ f(1, 2, key=3) }}.
struct KeywordArgument {
  std::string name;
  Value value;
};
struct Arguments {
  std::vector<Value> positional;
  std::vector<KeywordArgument> keywords;
};

// A string that counts against the budget.
absl::StatusOr<Value> MakeString(Budget& budget, std::string text, Safety safety = Safety::kPlain);

// The items that iterating over `value` gives, charged to the budget; takes those of an iterator.
// InvalidArgument where Python would say that the object is not iterable.
absl::StatusOr<std::vector<Value>> ItemsOf(Budget& budget, const Value& value);

// len(value), or InvalidArgument.
absl::StatusOr<int64_t> LengthOf(const Value& value);

// The name of the value's type as Python spells it: "dict", "str", "NoneType".
std::string_view TypeName(const Value& value);

// InvalidArgument where Python cannot hash `key`: lists, dicts, and tuples of such.
absl::Status CheckHashable(const Value& key);

// The error of using an undefined value.
absl::Status UndefinedError(const Value& value);

}  // namespace hearth::jinja
