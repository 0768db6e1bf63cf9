// The texts of --help, for the program, a group of commands and one command.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/field.h"
#include "tools/hearth/command.h"

namespace hearth::cli {

// The commands whose name begins with `group` (empty: all), one line each.
std::string CommandListHelp(std::span<const Command> commands, std::string_view group);

// Every field of the command on one line, with default and bounds; then what every command has.
// Fields that would not fit a screen together are on pages by group: the main page (group "") names
// the others.
std::string CommandHelp(const CommandText& text, std::span<const Field> fields,
                        std::string_view group = {});

// The groups that have a page of their own: none when everything fits the main page.
std::vector<std::string> HelpGroups(std::span<const Field> fields);

}  // namespace hearth::cli
