// JSON files that prove themselves: the first key says what the file is, the second how many bytes
// it has, the last is a hash of all the text before it. A cut, a flipped bit or an edit by hand is
// found before anything in the file is believed.
//
//   {
//     "format": "hearth-pack",
//     "manifest_bytes": 1234,
//     ...fields...,
//     "manifest_xxh3_128": "32 lower-case hex digits"
//   }
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace hearth {

struct JsonSeal {
  std::string_view format;   // value of "format": "hearth-pack"
  std::string_view noun;     // "manifest": begins the names of the two other keys
  std::string_view article;  // for messages: "the manifest of a Hearth pack"
};

// `fields`: "\n  \"key\": value,\n  \"key\": value", as a dump with two columns of indent has it.
std::string SealJson(const JsonSeal& seal, std::string_view fields);

// InvalidArgument when the text does not begin as one of these or is not JSON without repeated keys
// and deep nesting, DataLoss when its length or hash is not what it says: naming `path`, expected
// and found.
absl::Status CheckSealedJson(const JsonSeal& seal, std::string_view text, const std::string& path);

}  // namespace hearth
