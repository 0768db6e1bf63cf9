// hearth key make: a new API key for `hearth serve`.
#include <array>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"

#include "runtime/base/status.h"
#include "runtime/config/field.h"
#include "runtime/serve/http/api_keys.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"

namespace hearth::cli {
namespace {

struct KeyConfig {
  std::string name;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("name", name, "who will use it: letters, digits, . _ -", {.metavar = "NAME"});
  }
  absl::Status Validate(const GivenFields& given) const {
    if (!given.Has("name")) return absl::InvalidArgumentError("name: is required");
    return absl::OkStatus();
  }
};

absl::Status Make(const KeyConfig& config, const CommandIo& io) {
  std::array<uint8_t, kApiKeyRandomBytes> random{};
  HEARTH_RETURN_IF_ERROR(FillFromSystemRandom(random));
  HEARTH_ASSIGN_OR_RETURN(const MadeApiKey made, MakeApiKey(config.name, random));
  if (io.json) {
    io.results << nlohmann::ordered_json{{"key", made.key}, {"line", made.line}}.dump() << "\n";
    return absl::OkStatus();
  }
  io.talk << "the key, shown only here: " << made.key << "\nits line for the file of --api-keys:\n";
  io.results << made.line << "\n";
  return absl::OkStatus();
}

}  // namespace

Command KeyMakeCommand() {
  return MakeCommand<KeyConfig>(
      {.name = "key make",
       .summary = "a new API key for `hearth serve`",
       .notes = "The key goes to stderr, its line to stdout: hearth key make --name me >> keys\n"},
      Make);
}

}  // namespace hearth::cli
