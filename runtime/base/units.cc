#include "runtime/base/units.h"

#include <array>
#include <charconv>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

struct Unit {
  std::string_view suffix;
  double bytes;
};
constexpr std::array<Unit, 5> kUnits = {{{"TiB", 1099511627776.0},
                                         {"GiB", 1073741824.0},
                                         {"MiB", 1048576.0},
                                         {"KiB", 1024.0},
                                         {"B", 1.0}}};

absl::Status Refuse(std::string_view text) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", ToAbsl(text), "' is not a size; write a number with a unit, such as 24GiB, "
                   "1.5GiB, 512MiB, 64KiB or 4096B"));
}

}  // namespace

absl::StatusOr<uint64_t> ParseBytes(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] =
      std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(value) || value < 0) return Refuse(text);
  std::string_view suffix(rest, static_cast<size_t>(end - rest));
  while (!suffix.empty() && suffix.front() == ' ') suffix.remove_prefix(1);
  for (const Unit& unit : kUnits) {
    if (suffix != unit.suffix) continue;
    const double bytes = value * unit.bytes;
    if (bytes >= 0x1p63 || (unit.bytes == 1.0 && bytes != std::floor(bytes))) return Refuse(text);
    return static_cast<uint64_t>(bytes);
  }
  return Refuse(text);
}

std::string FormatBytes(uint64_t bytes) {
  for (const Unit& unit : kUnits) {
    const double value = static_cast<double>(bytes) / unit.bytes;
    if (value < 1.0) continue;
    return absl::StrFormat("%.*f %s", value < 10 && unit.bytes > 1 ? 2 : (value < 100 && unit.bytes > 1 ? 1 : 0),
                           value, ToAbsl(unit.suffix));
  }
  return "0 B";
}

}  // namespace hearth
