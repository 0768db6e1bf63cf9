// Dispatch and error reporting of `hearth`.
#include "tools/hearth/frame.h"

#include <algorithm>
#include <exception>
#include <new>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"

#include "runtime/base/status.h"
#include "runtime/config/nearest.h"
#include "tools/hearth/config_file.h"
#include "tools/hearth/flag_parser.h"
#include "tools/hearth/help_text.h"

namespace hearth::cli {
namespace {

constexpr std::string_view kVersion = HEARTH_VERSION;

// The flags that every command has.
struct FrameFlags {
  bool json = false;
  std::string config;
  bool print_config = false;
  bool help = false;
  template <class Visitor>
  void Visit(Visitor&& v) {
    v("json", json, "results as one JSON object");
    v("config", config, "TOML file of flags; the command line wins", {.metavar = "FILE"});
    v("print_config", print_config, "print what the flags come to as such a file, and stop");
    v("help", help, "print this, and stop");
  }
};

constexpr std::string_view kHearth = "hearth";

ExitCode Fail(const CommandIo& io, std::string_view message, ExitCode code,
              std::string_view program = kHearth) {
  io.talk << program << ": " << absl::StrReplaceAll(ToAbsl(message), {{"\n", " "}}) << std::endl;
  return code;
}

// Results that nobody received are a failure too: a full disk must not look like success.
ExitCode Flushed(const CommandIo& io, ExitCode code) {
  io.results.flush();
  if (io.results.good() || code != ExitCode::kOk) return code;
  return Fail(io, "cannot write the results to standard output", ExitCode::kFailure);
}

// The command whose name is the first word or the first two, and the words after it.
const Command* FindCommand(std::span<const std::string> args, std::span<const Command> commands,
                           std::span<const std::string>* rest) {
  for (const size_t word_count : {size_t{2}, size_t{1}}) {
    if (args.size() < word_count) continue;
    const std::string name = absl::StrJoin(args.first(word_count), " ");
    for (const Command& command : commands) {
      if (command.text.name != name) continue;
      *rest = args.subspan(word_count);
      return &command;
    }
  }
  return nullptr;
}

bool IsGroup(std::string_view word, std::span<const Command> commands) {
  return std::ranges::any_of(commands, [&](const Command& command) {
    return absl::StartsWith(command.text.name, absl::StrCat(ToAbsl(word), " "));
  });
}

ExitCode UnknownCommand(std::span<const std::string> args, std::span<const Command> commands,
                        const CommandIo& io) {
  const bool in_group = args.size() > 1 && IsGroup(args[0], commands);
  const std::string word = in_group ? absl::StrCat(args[0], " ", args[1]) : args[0];
  std::vector<std::string> names = {"--help", "--version"};
  for (const Command& command : commands) {
    names.push_back(command.text.name);
    if (!in_group) names.push_back(command.text.name.substr(0, command.text.name.find(' ')));
  }
  const std::string_view nearest = NearestName(word, names);
  const char* noun = word.starts_with('-') ? "unknown flag " : "unknown command ";
  const std::string remedy = nearest.empty()
                                 ? "; `hearth --help` lists what there is"
                                 : absl::StrCat("; did you mean `hearth ", ToAbsl(nearest), "`?");
  return Fail(io, absl::StrCat(noun, "'", word, "'", remedy), ExitCode::kUsage);
}

void PrintConfig(std::span<const Field> fields, const GivenFields& given, const CommandIo& io,
                 bool json) {
  if (!json) {
    io.results << ConfigFileText(fields, given);
    return;
  }
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const Field& field : fields) {
    const std::string value = field.print();
    const bool verbatim = field.kind == FieldKind::kSwitch || field.metavar == "N";
    object[field.name] = verbatim && !value.empty()
                             ? nlohmann::ordered_json::parse(value, nullptr, false)
                             : nlohmann::ordered_json(value);
  }
  io.results << object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

ExitCode RunCommand(const Command& command, std::span<const std::string> args,
                    const CommandIo& io) {
  const std::unique_ptr<Invocation> invocation = command.make();
  const std::vector<Field> own_fields = invocation->Fields();
  FrameFlags flags;
  std::vector<Field> fields = own_fields;
  flags.Visit(FieldCollector{fields});
  if (const auto help = std::ranges::find(args, "--help"); help != args.end()) {
    const std::vector<std::string> groups = HelpGroups(own_fields);
    const bool of_group = help + 1 != args.end() && std::ranges::count(groups, help[1]) > 0;
    io.results << CommandHelp(command.text, own_fields, of_group ? help[1] : std::string());
    return ExitCode::kOk;  // however wrong the rest is
  }
  const auto usage = [&](const absl::Status& status) {
    return Fail(io,
                absl::StrCat(InFlagWords(status, fields).message(), " (see `", command.text.Title(),
                             " --help`)"),
                ExitCode::kUsage, command.text.ProgramName());
  };
  absl::StatusOr<GivenFields> given = ParseFlags(args, fields);
  if (!given.ok()) return usage(given.status());
  if (!flags.config.empty()) {
    if (const absl::Status status = ApplyConfigFile(flags.config, own_fields, *given);
        !status.ok()) {
      return usage(status);
    }
  }
  if (flags.print_config) {
    PrintConfig(own_fields, *given, io, flags.json);
    return ExitCode::kOk;
  }
  if (const absl::Status status = invocation->Validate(*given); !status.ok()) return usage(status);
  const CommandIo command_io{.results = io.results,
                             .talk = io.talk,
                             .clock = io.clock,
                             .json = flags.json,
                             .talk_is_terminal = io.talk_is_terminal,
                             .allowed_cpus = io.allowed_cpus,
                             .config_path = flags.config,
                             .inherited_socket = io.inherited_socket,
                             .notice = io.notice};
  const absl::Status status = invocation->Run(command_io);
  if (status.ok()) return ExitCode::kOk;
  io.results.flush();
  return Fail(io, ToStd(status.message()), ExitCodeFor(status), command.text.ProgramName());
}

void PrintVersion(std::string_view program, const CommandIo& io) {
  io.results << program << " " << kVersion << "\n";
}

// What `run` returns, or what an exception that came through it comes to.
template <class Run>
ExitCode Guarded(const CommandIo& io, std::string_view program, Run&& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return Fail(io, "not enough memory", ExitCode::kResources, program);
  } catch (const std::exception& error) {  // a library's, that its wrapper let through
    return Fail(io, error.what(), ExitCode::kFailure, program);
  }
}

ExitCode Dispatch(std::span<const std::string> args, std::span<const Command> commands,
                  const CommandIo& io) {
  if (args.empty()) {
    io.talk << CommandListHelp(commands, {});
    return ExitCode::kUsage;
  }
  if (args[0] == "--help") {
    io.results << CommandListHelp(commands, {});
    return ExitCode::kOk;
  }
  if (args[0] == "--version" && (args.size() == 1 || (args.size() == 2 && args[1] == "--json"))) {
    if (args.size() == 1) {
      PrintVersion(kHearth, io);
    } else {
      io.results << nlohmann::json{{"version", kVersion}}.dump() << "\n";
    }
    return ExitCode::kOk;
  }
  std::span<const std::string> rest;
  if (const Command* command = FindCommand(args, commands, &rest); command != nullptr) {
    return RunCommand(*command, rest, io);
  }
  const bool group = IsGroup(args[0], commands);
  if (group && args.size() == 1) {
    io.talk << CommandListHelp(commands, args[0]);
    return ExitCode::kUsage;
  }
  if (group && args[1] == "--help") {
    io.results << CommandListHelp(commands, args[0]);
    return ExitCode::kOk;
  }
  return UnknownCommand(args, commands, io);
}

}  // namespace

ExitCode RunHearth(std::span<const std::string> args, std::span<const Command> commands,
                   const CommandIo& io) {
  return Guarded(io, kHearth, [&] { return Flushed(io, Dispatch(args, commands, io)); });
}

ExitCode RunProgram(std::span<const std::string> args, const Command& command,
                    const CommandIo& io) {
  const std::string& program = command.text.ProgramName();
  return Guarded(io, program, [&] {
    if (args.size() != 1 || args[0] != "--version") return RunCommand(command, args, io);
    PrintVersion(program, io);
    return ExitCode::kOk;
  });
}

}  // namespace hearth::cli
