// The forms of the cache's values and what they must satisfy together.
#include "runtime/config/cache_config.h"

#include <charconv>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

// A number that is all of `text`.
template <class T>
bool ReadWhole(std::string_view text, T* value) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && rest == end;
}

absl::Status AtMostOne(const GivenFields& given, std::string_view a, std::string_view b) {
  if (!given.Has(a) || !given.Has(b)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(ToAbsl(a), ", ", ToAbsl(b), ": expected at most one of them, found both"));
}

absl::Status NoEffect(std::string_view name, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), ": has no effect ", ToAbsl(why)));
}

}  // namespace

absl::StatusOr<SlotsChoice> ParseSlots(std::string_view text) {
  SlotsChoice choice;
  if (text.empty()) return choice;
  double percent = 0;
  if (text.back() == '%') {
    if (ReadWhole(text.substr(0, text.size() - 1), &percent) && percent >= 0 && percent <= 100) {
      choice.share = percent / 100;
      return choice;
    }
  } else if (ReadWhole(text, &choice.count)) {
    return choice;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("slots: found '", ToAbsl(text.substr(0, 60)),
                   "', expected a number of experts or a share of all, such as 400 or 40%"));
}

absl::StatusOr<double> ParsePcieShare(std::string_view text) {
  if (text == "auto") return -1;
  double share = 0;
  if (ReadWhole(text, &share) && share >= 0 && share <= 1) return share;
  return absl::InvalidArgumentError(absl::StrCat("pcie_share: found '", ToAbsl(text.substr(0, 60)),
                                                 "', expected auto or a number from 0 to 1"));
}

absl::Status CacheConfig::Validate(const GivenFields& given) const {
  HEARTH_RETURN_IF_ERROR(ParseSlots(slots).status());
  HEARTH_RETURN_IF_ERROR(ParsePcieShare(pcie_share).status());
  HEARTH_RETURN_IF_ERROR(AtMostOne(given, "slots", "vram_budget"));
  HEARTH_RETURN_IF_ERROR(AtMostOne(given, "ram_budget", "mmap_experts"));
  HEARTH_RETURN_IF_ERROR(AtMostOne(given, "ram_budget", "daemon"));
  HEARTH_RETURN_IF_ERROR(AtMostOne(given, "mmap_experts", "daemon"));
  const bool vram = given.Has("slots") || given.Has("vram_budget");
  for (const std::string_view name : {"pcie_share", "pcie_window_bytes_max"}) {
    if (given.Has(name) && !vram) return NoEffect(name, "without slots or vram_budget");
  }
  if (given.Has("policy") && !vram && !given.Has("ram_budget")) {
    return NoEffect("policy", "without slots, vram_budget or ram_budget");
  }
  if (given.Has("profile") && !vram && !given.Has("ram_budget") && !given.Has("daemon")) {
    return NoEffect("profile", "without slots, vram_budget, ram_budget or daemon");
  }
  if (given.Has("io") && given.Has("mmap_experts")) return NoEffect("io", "with mmap_experts");
  if (given.Has("io") && given.Has("daemon")) return NoEffect("io", "with daemon, which reads");
  return absl::OkStatus();
}

}  // namespace hearth
