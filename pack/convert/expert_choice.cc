#include "pack/convert/expert_choice.h"

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

// "3" or "4-3-3"; zeros for anything else.
XtBits ParseBits(std::string_view text) {
  const auto digit = [](char c) {
    return static_cast<uint8_t>(c >= '2' && c <= '4' ? c - '0' : 0);
  };
  XtBits bits;
  if (text.size() == 1) bits = XtBits::All(digit(text[0]));
  if (text.size() == 5 && text[1] == '-' && text[3] == '-') {
    bits = {.gate = digit(text[0]), .up = digit(text[2]), .down = digit(text[4])};
  }
  return bits.gate == 0 || bits.up == 0 || bits.down == 0 ? XtBits{} : bits;
}

}  // namespace

absl::StatusOr<ExpertTarget> ParseExpertTarget(std::string_view text) {
  if (text == "source") return ExpertTarget{};
  if (text == "nvfp4") return ExpertTarget{.choice = ExpertChoice::kNvfp4};
  if (text == "bf16") return ExpertTarget{.choice = ExpertChoice::kBf16};
  if (text.starts_with("xt")) {
    const XtBits bits = ParseBits(text.substr(2));
    if (bits.gate != 0) return ExpertTarget{.choice = ExpertChoice::kXt, .xt_bits = bits};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "experts: \"", ToAbsl(text),
      "\": expected source, nvfp4, bf16, xt2, xt3, xt4, or xt with bits for gate, up and down, "
      "such as xt4-3-3"));
}

absl::StatusOr<ExpertLayout> LayoutFor(const ExpertTarget& target, ExpertFormat source,
                                       uint32_t hidden, uint32_t width) {
  ExpertFormat format = source;
  switch (target.choice) {
    case ExpertChoice::kSource:
      break;
    case ExpertChoice::kNvfp4:
      format = ExpertFormat::kNvfp4;
      break;
    case ExpertChoice::kBf16:
      if (source == ExpertFormat::kNvfp4) format = ExpertFormat::kBf16;
      break;
    case ExpertChoice::kXt:
      return ExpertLayout::Create(ExpertFormat::kXt, hidden, width, target.xt_bits);
  }
  return ExpertLayout::Create(format, hidden, width);
}

}  // namespace hearth
