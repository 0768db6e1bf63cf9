#include "runtime/base/units.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

struct Unit {
  std::string_view suffix;
  uint64_t bytes;
};
constexpr std::array<Unit, 5> kUnits = {{{"TiB", uint64_t{1} << 40},
                                         {"GiB", uint64_t{1} << 30},
                                         {"MiB", uint64_t{1} << 20},
                                         {"KiB", uint64_t{1} << 10},
                                         {"B", 1}}};

absl::Status Refuse(std::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", ToAbsl(text),
                   "' is not a size; write a number with a unit, such as 24GiB, "
                   "1.5GiB, 512MiB, 64KiB or 4096B"));
}

// The number in front of the unit: all of `digits`, times `unit_bytes`. Whole numbers are exact; a
// decimal fraction is rounded down to bytes. Nothing when it is no such number, or 2^63 and more.
std::optional<uint64_t> Scale(std::string_view digits, uint64_t unit_bytes) {
  constexpr uint64_t kLimit = uint64_t{1} << 63;
  const char* end = digits.data() + digits.size();
  if (digits.empty()) return std::nullopt;
  if (digits.find('.') == std::string_view::npos) {
    uint64_t count = 0;
    const auto [rest, error] = std::from_chars(digits.data(), end, count);
    if (error != std::errc() || rest != end || count >= kLimit / unit_bytes) return std::nullopt;
    return count * unit_bytes;
  }
  double value = 0;
  const auto [rest, error] = std::from_chars(digits.data(), end, value, std::chars_format::fixed);
  if (error != std::errc() || rest != end || unit_bytes == 1) return std::nullopt;
  const double bytes = value * static_cast<double>(unit_bytes);
  if (!(bytes < static_cast<double>(kLimit))) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  const size_t number_count = std::min(text.find_first_not_of("0123456789."), text.size());
  std::string_view suffix = text.substr(number_count);
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  for (const Unit& unit : kUnits) {
    if (suffix != unit.suffix) continue;
    const std::optional<uint64_t> bytes = Scale(text.substr(0, number_count), unit.bytes);
    return bytes.has_value() ? absl::StatusOr<uint64_t>(*bytes) : Refuse(text);
  }
  return Refuse(text);
}

std::string FormatBytes(uint64_t bytes) {
  for (const Unit& unit : kUnits) {
    if (bytes < unit.bytes) continue;
    const double value = static_cast<double>(bytes) / static_cast<double>(unit.bytes);
    int decimals = value < 9.995 ? 2 : (value < 99.95 ? 1 : 0);
    if (unit.bytes == 1) decimals = 0;
    return absl::StrFormat("%.*f %s", decimals, value, ToAbsl(unit.suffix));
  }
  return "0 B";
}

}  // namespace hearth
