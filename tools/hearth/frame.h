// The frame of a program: finds the subcommand, parses its flags, answers --help, --version and
// --print-config, runs it, and turns what went wrong into one line and an exit code.
#pragma once

#include <span>
#include <string>

#include "tools/hearth/command.h"
#include "tools/hearth/exit_code.h"

namespace hearth::cli {

// `args` without the program's name. Writes to io.results and io.talk; io.json comes from the
// flags.
ExitCode RunHearth(std::span<const std::string> args, std::span<const Command> commands,
                   const CommandIo& io);

// The same for a command that is a program of its own.
ExitCode RunProgram(std::span<const std::string> args, const Command& command, const CommandIo& io);

}  // namespace hearth::cli
