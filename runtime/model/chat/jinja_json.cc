// JSON in (through nlohmann's event parser, which does not recurse) and out (as json.dumps prints).
#include "runtime/model/chat/jinja_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/chat/jinja_operators.h"
#include "runtime/model/chat/jinja_text.h"

namespace hearth::jinja {
namespace {

// Receives the parser's events and builds the value; false stops the parser.
class ValueBuilder {
 public:
  bool null() { return Add(Value::None()); }
  bool boolean(bool v) { return Add(Value::Bool(v)); }
  bool number_integer(int64_t v) { return Add(Value::Int(v)); }
  bool number_unsigned(uint64_t v) {
    if (v > static_cast<uint64_t>(INT64_MAX)) return Add(Value::WideInt(std::to_string(v)));
    return Add(Value::Int(static_cast<int64_t>(v)));
  }
  bool number_float(double v, const std::string& text) {
    if (text.find_first_of(".eE") == std::string::npos) return Add(Value::WideInt(text));
    return Add(Value::Float(v));
  }
  bool string(std::string& text) { return Add(Value::String(std::move(text))); }
  bool binary(std::vector<uint8_t>& /*bytes*/) { return false; }
  bool start_object(size_t /*count*/) { return Open(true); }
  bool start_array(size_t /*count*/) { return Open(false); }
  bool key(std::string& text) {
    open_.back().key = Value::String(std::move(text));
    return true;
  }
  bool end_object() {
    absl::StatusOr<Value> value = Value::OfDict(std::move(open_.back().dict));
    open_.pop_back();
    return AddResult(std::move(value));
  }
  bool end_array() {
    absl::StatusOr<Value> value = Value::List(std::move(open_.back().items));
    open_.pop_back();
    return AddResult(std::move(value));
  }
  bool parse_error(size_t position, const std::string& token, const nlohmann::detail::exception&) {
    status_ = absl::InvalidArgumentError(
        absl::StrCat("not JSON at byte ", position, ", after '", token.substr(0, 40), "'"));
    return false;
  }

  absl::StatusOr<Value> Take() {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }

 private:
  struct Container {
    bool is_object = false;
    std::vector<Value> items;
    Dict dict;
    Value key;
  };

  bool Open(bool is_object) {
    if (open_.size() >= static_cast<size_t>(kNestingDepthMax)) {
      status_ = absl::ResourceExhaustedError(
          absl::StrCat("JSON nested deeper than ", kNestingDepthMax, " levels"));
      return false;
    }
    open_.emplace_back();
    open_.back().is_object = is_object;
    return true;
  }

  bool AddResult(absl::StatusOr<Value> value) {
    if (value.ok()) return Add(*std::move(value));
    status_ = value.status();
    return false;
  }

  bool Add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_object) {
      status_ = open_.back().dict.Set(open_.back().key, std::move(value));
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return status_.ok();
  }

  absl::Status status_;
  Value root_;
  std::vector<Container> open_;
};

class Dumper {
 public:
  Dumper(std::string& out, const JsonFormat& format) : out_(out), format_(format) {}

  absl::Status Write(const Value& value, int32_t depth) {
    if (out_.size() > kOutputBytesMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("JSON text of more than ", kOutputBytesMax, " bytes"));
    }
    switch (value.kind()) {
      case Kind::kNone:
        out_ += "null";
        return absl::OkStatus();
      case Kind::kBool:
        out_ += value.AsBool() ? "true" : "false";
        return absl::OkStatus();
      case Kind::kInt:
      case Kind::kWideInt:
        return AppendStr(out_, value);
      case Kind::kFloat:
        out_ += Number(value.AsDouble());
        return absl::OkStatus();
      case Kind::kString:
        WriteString(value.AsString());
        return absl::OkStatus();
      case Kind::kList:
      case Kind::kTuple:
        return WriteArray(value.AsSequence(), depth);
      case Kind::kDict:
        return WriteObject(value.AsDict(), depth);
      default:
        return absl::InvalidArgumentError(
            absl::StrCat("Object of type ", ToAbsl(TypeName(value)), " is not JSON serializable"));
    }
  }

  void WriteString(std::string_view text) {
    out_ += '"';
    for (size_t at = 0; at < text.size();) {
      const size_t next = NextCodePoint(text, at);
      WriteCodePoint(DecodeAt(text, at), text.substr(at, next - at));
      at = next;
    }
    out_ += '"';
  }

 private:
  static std::string Number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return FloatRepr(value);
  }

  void NewLine(int32_t depth) {
    if (!format_.indent) return;
    out_ += '\n';
    for (int32_t i = 0; i < depth; ++i) out_ += *format_.indent;
  }

  absl::Status WriteArray(const std::vector<Value>& items, int32_t depth) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += format_.item_separator;
      NewLine(depth + 1);
      HEARTH_RETURN_IF_ERROR(Write(items[i], depth + 1));
    }
    if (!items.empty()) NewLine(depth);
    out_ += ']';
    return absl::OkStatus();
  }

  absl::Status WriteKey(const Value& key) {
    switch (key.kind()) {
      case Kind::kString:
        WriteString(key.AsString());
        return absl::OkStatus();
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kFloat:
        out_ += '"';
        HEARTH_RETURN_IF_ERROR(Write(key, 0));
        out_ += '"';
        return absl::OkStatus();
      default:
        return absl::InvalidArgumentError(absl::StrCat(
            "keys must be str, int, float, bool or None, not ", ToAbsl(TypeName(key))));
    }
  }

  absl::Status WriteObject(const Dict& dict, int32_t depth) {
    std::vector<const DictEntry*> entries;
    for (const DictEntry& entry : dict.entries()) entries.push_back(&entry);
    if (format_.sort_keys) {
      absl::Status status;
      std::stable_sort(entries.begin(), entries.end(),
                       [&status](const DictEntry* a, const DictEntry* b) {
                         const absl::StatusOr<int> order = Order(a->key, b->key);
                         if (!order.ok()) status = order.status();
                         return order.ok() && *order < 0;
                       });
      HEARTH_RETURN_IF_ERROR(status);
    }
    out_ += '{';
    bool first = true;
    for (const DictEntry* entry : entries) {
      if (!first) out_ += format_.item_separator;
      first = false;
      NewLine(depth + 1);
      HEARTH_RETURN_IF_ERROR(WriteKey(entry->key));
      out_ += format_.key_separator;
      HEARTH_RETURN_IF_ERROR(Write(entry->value, depth + 1));
    }
    if (!entries.empty()) NewLine(depth);
    out_ += '}';
    return absl::OkStatus();
  }

  void AppendUnicodeEscape(unsigned unit) {
    char escape[16];
    std::snprintf(escape, sizeof(escape), "\\u%04x", unit);
    out_ += escape;
  }

  void WriteCodePoint(char32_t c, std::string_view bytes) {
    static constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
    static constexpr std::string_view kLetters = "\"\\nrtbf";
    const size_t index = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (index != std::string_view::npos) {
      out_ += '\\';
      out_ += kLetters[index];
    } else if (c < 0x20 || (format_.ensure_ascii && c > 0x7E && c < 0x10000)) {
      AppendUnicodeEscape(c);
    } else if (format_.ensure_ascii && c >= 0x10000) {
      AppendUnicodeEscape(0xD800 + ((c - 0x10000) >> 10));
      AppendUnicodeEscape(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else {
      out_.append(bytes);
    }
  }

  std::string& out_;
  const JsonFormat& format_;
};

}  // namespace

absl::StatusOr<Value> ParseJson(std::string_view text, std::string_view what) {
  ValueBuilder builder;
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  absl::StatusOr<Value> value = builder.Take();
  if (!value.ok()) return Annotate(value.status(), what);
  return value;
}

std::string QuoteJson(std::string_view text) {
  std::string out;
  const JsonFormat format;
  Dumper(out, format).WriteString(text);
  return out;
}

absl::StatusOr<std::string> DumpJson(const Value& value, const JsonFormat& format) {
  std::string out;
  HEARTH_RETURN_IF_ERROR(Dumper(out, format).Write(value, 0));
  if (out.size() > kOutputBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("JSON text of more than ", kOutputBytesMax, " bytes"));
  }
  return out;
}

}  // namespace hearth::jinja
