// Where the experts are kept and how they get to whoever computes them: what run, score, profile
// and serve share.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/units.h"
#include "runtime/config/field.h"

namespace hearth {

enum class ReadMethod { kAuto, kUring, kPread };

constexpr std::array<EnumEntry<ReadMethod>, 3> EnumEntriesOf(ReadMethod) {
  return {
      {{ReadMethod::kAuto, "auto"}, {ReadMethod::kUring, "uring"}, {ReadMethod::kPread, "pread"}}};
}

struct CacheConfig {
  std::optional<uint64_t> vram_budget;
  std::optional<uint64_t> vram_reserve;
  std::string slots;  // "400" or "40%", read by ParseSlots
  std::string policy = "forecast";
  std::string pcie_share = "auto";           // or 0 to 1, read by ParsePcieShare
  uint64_t pcie_window_bytes_max = 256_MiB;  // 5 ms of a Gen5 x16 link
  std::optional<uint64_t> ram_budget;
  bool mmap_experts = false;
  std::string daemon;
  std::string profile;
  ReadMethod io = ReadMethod::kAuto;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v.Group("cache");
    v("slots", slots, "experts kept in VRAM, or their share; a card: what fits",
      {.metavar = "N|P%"});
    v("vram_budget", vram_budget, "the same as a size, spares included", {.metavar = "SIZE"});
    v("vram_reserve", vram_reserve, "of a card's memory, left for others; none: 512MiB",
      {.metavar = "SIZE"});
    v("policy", policy, "which experts VRAM and RAM keep", {.metavar = "NAME"});
    v("profile", profile, "routing profile to start from", {.metavar = "FILE"});
    v("pcie_share", pcie_share, "misses uploaded, not computed by the CPU, 0 to 1",
      {.metavar = "auto|N"});
    v("pcie_window_bytes_max", pcie_window_bytes_max, "uploads of one window, promotions too");
    v("ram_budget", ram_budget, "RAM for experts, the others stay on the drive",
      {.metavar = "SIZE"});
    v("mmap_experts", mmap_experts, "let the page cache decide what is in RAM");
    v("daemon", daemon, "use the RAM tier of a running hearthd", {.metavar = "SOCKET"});
    v("io", io, "how the drive is read");
  }

  // Fields that exclude each other or have no effect without another.
  absl::Status Validate(const GivenFields& given) const;
};

struct SlotsChoice {  // at most one is not zero
  uint64_t count = 0;
  double share = 0;
};
// "400", "40%", "0"; empty is none.
absl::StatusOr<SlotsChoice> ParseSlots(std::string_view text);
// "auto" is -1.
absl::StatusOr<double> ParsePcieShare(std::string_view text);

}  // namespace hearth
