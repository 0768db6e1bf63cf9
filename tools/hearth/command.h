// What a subcommand of `hearth` is: a name, a config struct whose Visit list is its flags, and a
// function. The frame (main.cc, frame.h) parses the flags, answers --help, --version and
// --print-config, calls Validate() and maps the Status to an exit code; a command only works.
//
// Adding one: write `Command MyCommand()` with MakeCommand<MyConfig>(...) in my_command.cc, declare
// it in commands.h and add it to the list in commands.cc.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "runtime/base/clock.h"
#include "runtime/base/service_notice.h"
#include "runtime/config/field.h"

namespace hearth::cli {

// Where a command writes and what it may know of its surroundings.
struct CommandIo {
  std::ostream& results;          // stdout: results only; with `json`, one JSON object
  std::ostream& talk;             // stderr: everything else
  Clock& clock;                   // for rates and progress
  bool json = false;              // --json, which every command has
  bool talk_is_terminal = false;  // then progress lines may overwrite themselves
  // At the start of the program: pinning changes what a thread may use. Empty: as it is now.
  std::vector<uint32_t> allowed_cpus{};
  std::string config_path{};              // --config; empty: none was given
  std::optional<int> inherited_socket{};  // listening, from whoever started the program
  const ServiceNotice* notice = nullptr;  // told when a service is ready and when it stops
};

// A config with its fields, on its way from flags to Run.
class Invocation {
 public:
  virtual ~Invocation() = default;
  virtual std::vector<Field> Fields() = 0;
  virtual absl::Status Validate(const GivenFields& given) const = 0;  // wrong: exit code 2
  virtual absl::Status Run(const CommandIo& io) const = 0;            // wrong: ExitCodeFor()
};

struct CommandText {
  std::string name;     // "run"; two words where a group has several: "pack build"
  std::string summary;  // one line of at most 60 columns, for the list of commands
  std::string notes;    // lines under the flags in --help, each at most 100 columns; may be empty
  std::string program = "hearth";  // empty: the command is a program of its own

  // What one types: "hearth pack build".
  std::string Title() const { return program.empty() ? name : program + " " + name; }
  // Stands before messages.
  const std::string& ProgramName() const { return program.empty() ? name : program; }
};

struct Command {
  CommandText text;
  std::function<std::unique_ptr<Invocation>()> make;
};

template <class Config>
class ConfigInvocation final : public Invocation {
 public:
  using Function = absl::Status (*)(const Config&, const CommandIo&);
  explicit ConfigInvocation(Function run) : run_(run) {}
  std::vector<Field> Fields() override { return FieldsOf(config_); }
  absl::Status Validate(const GivenFields& given) const override { return config_.Validate(given); }
  absl::Status Run(const CommandIo& io) const override { return run_(config_, io); }

 private:
  Config config_;
  Function run_;
};

// Config: default-constructible, Visit(visitor), Validate(const GivenFields&) const.
template <class Config>
Command MakeCommand(CommandText text, absl::Status (*run)(const Config&, const CommandIo&)) {
  return {std::move(text), [run] { return std::make_unique<ConfigInvocation<Config>>(run); }};
}

}  // namespace hearth::cli
