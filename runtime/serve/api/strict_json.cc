#include "runtime/serve/api/strict_json.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/tokenizer/utf8.h"
#include "runtime/serve/api/api_error.h"

namespace hearth {
namespace {

constexpr size_t kNameBytesMax = 64;

// Receives the parser's events and builds the value; false stops the parser. Adds members without
// looking for their keys, which a set of its own has checked.
class JsonBuilder {
 public:
  explicit JsonBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() { return Add(Json(nullptr)); }
  bool boolean(bool v) { return Add(Json(v)); }
  bool number_integer(int64_t v) { return Add(Json(v)); }
  bool number_unsigned(uint64_t v) { return Add(Json(v)); }
  bool number_float(double v, const std::string&) {
    if (!std::isfinite(v)) return Complain("the number is out of range");
    return Add(Json(v));
  }
  bool string(std::string& text) { return Add(Json(std::move(text))); }
  bool binary(Json::binary_t&) { return Complain("not JSON"); }
  bool start_object(size_t) { return Open(Json::object()); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_object() { return Close(); }
  bool end_array() { return Close(); }
  bool key(std::string& name) {
    Level& level = open_.back();
    level.key = std::move(name);
    if (level.keys.insert(level.key).second) return true;
    return Complain("occurs twice in one object");
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& error) {
    constexpr int kNumberOverflow = 406;  // nlohmann's out_of_range
    if (error.id == kNumberOverflow) return Complain("the number is out of range");
    return Complain(absl::StrCat("not JSON from byte ", position, " on"));
  }

  Json Take() { return std::move(root_); }
  const std::string& complaint() const { return complaint_; }
  // Where the last event was: "messages[2].content"; empty at the top.
  std::string Place() const {
    std::string place;
    for (const Level& level : open_) {
      if (level.value.is_array()) {
        absl::StrAppend(&place, "[", level.value.size(), "]");
      } else if (!level.key.empty()) {
        absl::StrAppend(&place, place.empty() ? "" : ".", PrintableName(level.key));
      }
    }
    return place;
  }

 private:
  struct Level {
    Json value;
    std::string key;  // of the member that is being read
    absl::flat_hash_set<std::string> keys;
  };

  bool Open(Json value) {
    if (open_.size() >= limits_.depth_max) {
      return Complain(absl::StrCat("nested deeper than ", limits_.depth_max, " levels"));
    }
    open_.push_back({std::move(value), "", {}});
    return true;
  }
  bool Close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return Add(std::move(value));
  }
  bool Add(Json value) {
    if (++values_ > limits_.values_max) {
      return Complain(absl::StrCat("more than ", limits_.values_max, " values"));
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Level& level = open_.back();
    if (level.value.is_array()) {
      level.value.get_ref<Json::array_t&>().push_back(std::move(value));
    } else {
      level.value.get_ref<Json::object_t&>().emplace_back(level.key, std::move(value));
    }
    return true;
  }
  bool Complain(std::string what) {
    if (complaint_.empty()) complaint_ = std::move(what);
    return false;
  }

  const JsonLimits limits_;
  std::vector<Level> open_;
  Json root_;
  uint32_t values_ = 0;
  std::string complaint_;
};

}  // namespace

absl::StatusOr<Json> ParseStrictJson(std::string_view text, std::string_view what,
                                     const JsonLimits& limits) {
  const auto refuse = [&](std::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(ToAbsl(what), ": ", ToAbsl(why)));
  };
  if (text.size() > limits.bytes_max) {
    return WithHttpStatus(
        absl::OutOfRangeError(absl::StrCat(ToAbsl(what), ": more than ", limits.bytes_max,
                                           " bytes, found ", text.size())),
        413);
  }
  if (text.empty()) return refuse("empty, expected JSON");
  if (!IsValidUtf8(text)) return refuse("not UTF-8");
  if (text.find('\0') != std::string_view::npos) return refuse("holds a NUL byte");
  JsonBuilder builder(limits);
  bool parsed = false;
  try {
    parsed = Json::sax_parse(text.begin(), text.end(), &builder);
  } catch (const Json::exception&) {
    return refuse("not JSON");
  }
  if (parsed) return builder.Take();
  const std::string place = builder.Place();
  if (place.empty()) return refuse(builder.complaint());
  return FieldError(place, builder.complaint());
}

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string_view DescribeJson(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return "an integer";
    case Json::value_t::number_float:
      return "a number";
    default:
      return "something else";
  }
}

std::string PrintableName(std::string_view name) {
  constexpr std::string_view kPrintable =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
  const bool plain = !name.empty() && name.size() <= kNameBytesMax &&
                     name.find_first_not_of(kPrintable) == std::string_view::npos;
  return plain ? std::string(name) : "(unprintable)";
}

}  // namespace hearth
