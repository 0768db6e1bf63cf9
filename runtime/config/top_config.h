// Where `hearth top` looks, and how it shows what it sees.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

#include "runtime/config/field.h"

namespace hearth {

enum class ColourChoice : uint8_t { kAuto, kAlways, kNever };
constexpr std::array<EnumEntry<ColourChoice>, 3> EnumEntriesOf(ColourChoice) {
  return {{{ColourChoice::kAuto, "auto"},
           {ColourChoice::kAlways, "always"},
           {ColourChoice::kNever, "never"}}};
}

struct TopConfig {
  std::string url = "http://127.0.0.1:8080";
  std::string key_file;
  float interval = 1;
  bool once = false;
  std::string replay;
  std::string record;
  uint32_t rows = 0;
  uint32_t columns = 0;
  bool ascii = false;
  ColourChoice colour = ColourChoice::kAuto;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("url", url, "http(s)://HOST:PORT, unix:PATH", {.metavar = "URL"});
    v("key_file", key_file, "its first line is the server's API key", {.metavar = "FILE"});
    v("interval", interval, "seconds between two looks", {.minimum = 0.1, .maximum = 3600});
    v("once", once, "print one picture and end");
    v("replay", replay, "show what --record wrote, instead of a server", {.metavar = "FILE"});
    v("record", record, "write every snapshot as a line of JSON, too", {.metavar = "FILE"});
    v("rows", rows, "of what --once prints, 0 = the terminal's", {.minimum = 0, .maximum = 1000});
    v("columns", columns, "of what --once prints, 0 = the terminal's",
      {.minimum = 0, .maximum = 1000});
    v("ascii", ascii, "no block characters, even where the locale has them");
    v("colour", colour, "of the picture that --once prints");
  }

  // Fields without effect.
  absl::Status Validate(const GivenFields& given) const {
    if (!replay.empty() && given.Has("url")) {
      return absl::InvalidArgumentError("url: has no effect with replay");
    }
    if (!replay.empty() && given.Has("key_file")) {
      return absl::InvalidArgumentError("key_file: has no effect with replay");
    }
    return absl::OkStatus();
  }
};

}  // namespace hearth
