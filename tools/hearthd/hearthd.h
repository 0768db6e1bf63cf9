// The program `hearthd`: its command line, its memory plan, and the daemon it runs.
#pragma once

#include <span>
#include <string>

#include "tools/hearth/command.h"
#include "tools/hearth/exit_code.h"

namespace hearth::cli {

// `args` without the program's name. Serves until `stop_fd` is readable. One line of results when
// engines can connect, one when it has ended.
ExitCode RunHearthd(std::span<const std::string> args, const CommandIo& io, int stop_fd);

}  // namespace hearth::cli
