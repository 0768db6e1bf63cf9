// The list of subcommands.
#include "tools/hearth/commands.h"

namespace hearth::cli {

std::vector<Command> AllCommands() { return {}; }

}  // namespace hearth::cli
