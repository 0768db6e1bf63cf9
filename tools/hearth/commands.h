// The subcommands that exist: one maker each, and the list that the frame walks.
#pragma once

#include <vector>

#include "tools/hearth/command.h"

namespace hearth::cli {

std::vector<Command> AllCommands();  // in the order of --help

Command PackBuildCommand();
Command PackRequantizeCommand();
Command PackVerifyCommand();
Command PackInspectCommand();
Command PackSynthCommand();
Command RunCommand();
Command ScoreCommand();
Command ServeCommand();
Command KeyMakeCommand();
Command ProfileCommand();
Command ProfileReportCommand();
Command ProfileMergeCommand();
Command ProfileDiffCommand();
Command ReplayCommand();
Command DevicesCommand();
Command PlanCommand();
Command DoctorCommand();
Command BenchKernelsCommand();
Command BenchWindowCommand();
Command TopCommand();

}  // namespace hearth::cli
