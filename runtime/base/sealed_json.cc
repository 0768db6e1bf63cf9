#include "runtime/base/sealed_json.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr size_t kHashDigits = 32;
constexpr size_t kLengthDigitsMax = 9;
constexpr size_t kDepthMax = 6;  // objects and lists within each other
constexpr std::string_view kEnd = "\"\n}\n";

std::string HeadOf(const JsonSeal& seal) {
  return absl::StrCat("{\n  \"format\": \"", ToAbsl(seal.format), "\",\n  \"", ToAbsl(seal.noun),
                      "_bytes\": ");
}

std::string HashKeyOf(const JsonSeal& seal) {
  return absl::StrCat(",\n  \"", ToAbsl(seal.noun), "_xxh3_128\": \"");
}

std::string HashOf(std::string_view text) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(text.data(), text.size()));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const unsigned char byte : canonical.digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

// Watches a parse without keeping what it reads.
class StrictSax final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Open(); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    return Complain(absl::StrCat("key ",
                                 nlohmann::json(name.substr(0, 64))
                                     .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace),
                                 " occurs twice"));
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Complain(absl::StrCat("not JSON from byte ", position, " on"));
  }
  const std::string& complaint() const { return complaint_; }

 private:
  bool Open() {
    keys_.emplace_back();
    return keys_.size() <= kDepthMax || Complain("nested too deeply");
  }
  bool Close() {
    keys_.pop_back();
    return true;
  }
  bool Complain(std::string what) {
    if (complaint_.empty()) complaint_ = std::move(what);
    return false;
  }
  std::vector<std::set<std::string>> keys_;  // of each object and list that is open
  std::string complaint_;
};

absl::Status WrongLength(const std::string& path, const std::string& expected, size_t found) {
  return absl::DataLossError(
      absl::StrCat(path, ": expected ", expected, " bytes, found ", found, " (was it cut?)"));
}

// Length and hash over the raw text.
absl::Status CheckSeal(const JsonSeal& seal, std::string_view text, const std::string& path) {
  const std::string head = HeadOf(seal);
  const std::string hash_key = HashKeyOf(seal);
  const size_t tail_bytes = hash_key.size() + kHashDigits + kEnd.size();
  const std::string at_least = absl::StrCat("more than ", head.size() + tail_bytes);
  if (!text.starts_with(head)) {
    if (std::string_view(head).starts_with(text)) return WrongLength(path, at_least, text.size());
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": not ", ToAbsl(seal.article), " (it does not begin as one)"));
  }
  uint64_t expected = 0;
  size_t digits = head.size();
  while (digits < text.size() && digits < head.size() + kLengthDigitsMax && text[digits] >= '0' &&
         text[digits] <= '9') {
    expected = expected * 10 + static_cast<uint64_t>(text[digits++] - '0');
  }
  // Cut inside the number, or right after it.
  if (digits == text.size()) return WrongLength(path, at_least, text.size());
  if (expected != text.size() || text.size() < digits + tail_bytes) {
    return WrongLength(path, absl::StrCat(expected), text.size());
  }
  const std::string_view body = text.substr(0, text.size() - tail_bytes);
  if (text.substr(body.size()) != absl::StrCat(hash_key, HashOf(body), ToAbsl(kEnd))) {
    return absl::DataLossError(absl::StrCat(
        path, ": damaged: its own checksum does not match, expected ", HashOf(body), ", found ",
        nlohmann::json(std::string(text.substr(body.size() + hash_key.size(), kHashDigits)))
            .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
  }
  return absl::OkStatus();
}

}  // namespace

std::string SealJson(const JsonSeal& seal, std::string_view fields) {
  const std::string head = HeadOf(seal);
  const std::string hash_key = HashKeyOf(seal);
  // 1: the comma after the number.
  const uint64_t fixed =
      head.size() + 1 + fields.size() + hash_key.size() + kHashDigits + kEnd.size();
  uint64_t total = fixed;
  while (total != fixed + absl::StrCat(total).size()) total = fixed + absl::StrCat(total).size();
  const std::string body = absl::StrCat(head, total, ",", ToAbsl(fields));
  return absl::StrCat(body, hash_key, HashOf(body), ToAbsl(kEnd));
}

absl::Status CheckSealedJson(const JsonSeal& seal, std::string_view text, const std::string& path) {
  if (absl::Status status = CheckSeal(seal, text, path); !status.ok()) return status;
  StrictSax sax;
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &sax)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", sax.complaint()));
}

}  // namespace hearth
