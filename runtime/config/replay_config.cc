#include "runtime/config/replay_config.h"

#include <charconv>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kWindowTokensMax = 8;

absl::Status NoEffect(std::string_view name, std::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(name), ": has no effect ", ToAbsl(why)));
}

}  // namespace

std::vector<std::string> SplitCommas(std::string_view text) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
    if (text.empty()) parts.emplace_back();  // "a," ends with an empty part
  }
  return parts;
}

absl::StatusOr<std::vector<SlotsChoice>> ParseSlotsList(std::string_view text) {
  std::vector<SlotsChoice> choices;
  for (const std::string& part : SplitCommas(text)) {
    HEARTH_ASSIGN_OR_RETURN(const SlotsChoice choice, ParseSlots(part));
    if (choice.count == 0 && choice.share == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "slots: found '", part, "', expected numbers or shares above 0, such as 10%,400"));
    }
    choices.push_back(choice);
  }
  if (choices.empty()) return absl::InvalidArgumentError("slots: found none, expected one or more");
  return choices;
}

absl::StatusOr<std::vector<uint32_t>> ParseWindowList(std::string_view text) {
  std::vector<uint32_t> windows;
  for (const std::string& part : SplitCommas(text)) {
    uint32_t tokens = 0;
    const char* const end = part.data() + part.size();
    const auto [rest, error] = std::from_chars(part.data(), end, tokens);
    if (error != std::errc() || rest != end || tokens == 0 || tokens > kWindowTokensMax) {
      return absl::InvalidArgumentError(absl::StrCat("window: found '", part.substr(0, 60),
                                                     "', expected whole numbers from 1 to ",
                                                     kWindowTokensMax, ", such as 1,4"));
    }
    windows.push_back(tokens);
  }
  if (windows.empty())
    return absl::InvalidArgumentError("window: found none, expected one or more");
  return windows;
}

absl::Status ReplayConfig::Validate(const GivenFields& given) const {
  if (given.Has("trace") == given.Has("synthetic")) {
    return absl::InvalidArgumentError(
        absl::StrCat("trace, synthetic: expected exactly one of them, found ",
                     given.Has("trace") ? "both" : "neither"));
  }
  if (given.Has("synthetic") && synthetic != "diffuse" && synthetic != "sticky") {
    return absl::InvalidArgumentError(absl::StrCat("synthetic: found '", synthetic.substr(0, 60),
                                                   "', expected diffuse or sticky"));
  }
  if (given.Has("layers") && given.Has("trace")) {
    return NoEffect("layers", "on a trace, which has its own");
  }
  if (per_layer && given.Has("layer_slots_min")) {
    return NoEffect("layer_slots_min", "with per_layer: no layer takes another's slots");
  }
  HEARTH_RETURN_IF_ERROR(ParseSlotsList(slots).status());
  return ParseWindowList(window).status();
}

}  // namespace hearth
