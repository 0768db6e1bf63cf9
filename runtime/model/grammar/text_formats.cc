// The formats of JSON schema as patterns. Each is a subset of what its specification allows, chosen
// so that every common checker accepts all of it.
#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/grammar/text_leaves.h"

namespace hearth::grammar {
namespace {

// RFC 3339. Years 0001 to 9999; February 29 in leap years only; no leap seconds.
constexpr std::string_view kYear = "([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)";
constexpr std::string_view kMonthAndDay =
    "((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|"
    "02-(0[1-9]|1[0-9]|2[0-8]))";
constexpr std::string_view kLeapDay =
    "([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29";
constexpr std::string_view kTime =
    "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])";
constexpr std::string_view kOctet = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])";
constexpr std::string_view kLabel = "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?";

std::string Date() {
  return absl::StrCat("(", ToAbsl(kYear), "-", ToAbsl(kMonthAndDay), "|", ToAbsl(kLeapDay), ")");
}

// Eight groups, or fewer with "::" for at least one.
std::string Ipv6() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  std::string all = absl::StrCat("(", group, ":){7}", group);
  for (int before = 0; before <= 7; ++before) {
    const int after_max = 7 - before;
    const std::string front =
        before == 0 ? "" : absl::StrCat("(", group, ":){", before - 1, "}", group);
    const std::string back =
        after_max == 0 ? "" : absl::StrCat("(", group, "(:", group, "){0,", after_max - 1, "})?");
    absl::StrAppend(&all, "|", front, "::", back);
  }
  return absl::StrCat("(", all, ")");
}

std::string Hostname() {
  const absl::string_view label = ToAbsl(kLabel);
  return absl::StrCat(label, "(\\.", label, "){0,3}");
}

std::string Email() {
  const std::string atom = "[A-Za-z0-9_+-]{1,20}";
  return absl::StrCat(atom, "(\\.", atom, "){0,2}@", ToAbsl(kLabel), "(\\.", ToAbsl(kLabel),
                      "){0,2}\\.[A-Za-z]{2,10}");
}

std::string Uri() {
  const std::string character = "([A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
  return absl::StrCat("[A-Za-z][A-Za-z0-9+.-]{0,15}://", ToAbsl(kLabel), "(\\.", ToAbsl(kLabel),
                      "){0,3}(:[1-9][0-9]{0,3})?(/", character, "*)*(\\?(", character,
                      "|[/?])*)?(#(", character, "|[/?])*)?");
}

constexpr std::string_view kFormats[] = {"date", "date-time", "time",     "duration", "uuid",
                                         "ipv4", "ipv6",      "hostname", "email",    "uri"};

std::string PatternOf(std::string_view format) {
  const std::string octet(kOctet);
  if (format == "date") return Date();
  if (format == "date-time") return absl::StrCat(Date(), "T", ToAbsl(kTime));
  if (format == "time") return std::string(kTime);
  if (format == "duration") {
    const std::string time =
        "T([0-9]{1,6}H([0-9]{1,6}M([0-9]{1,6}S)?)?|[0-9]{1,6}M([0-9]{1,6}S)?|[0-9]{1,6}S)";
    return absl::StrCat(
        "P([0-9]{1,6}W|([0-9]{1,6}Y([0-9]{1,6}M([0-9]{1,6}D)?)?|"
        "[0-9]{1,6}M([0-9]{1,6}D)?|[0-9]{1,6}D)(",
        time, ")?|", time, ")");
  }
  if (format == "uuid") {
    return "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}";
  }
  if (format == "ipv4") return absl::StrCat("(", octet, "\\.){3}", octet);
  if (format == "ipv6") return Ipv6();
  if (format == "hostname") return Hostname();
  if (format == "email") return Email();
  return Uri();
}

}  // namespace

std::optional<std::string> FormatPattern(std::string_view format) {
  if (std::find(std::begin(kFormats), std::end(kFormats), format) == std::end(kFormats)) {
    return std::nullopt;
  }
  return absl::StrCat("^", PatternOf(format), "$");
}

std::string SupportedFormats() {
  std::string all;
  for (const std::string_view format : kFormats) {
    absl::StrAppend(&all, all.empty() ? "" : ", ", ToAbsl(format));
  }
  return all;
}

}  // namespace hearth::grammar
