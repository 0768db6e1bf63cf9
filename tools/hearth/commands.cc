// The list of subcommands.
#include "tools/hearth/commands.h"

namespace hearth::cli {

std::vector<Command> AllCommands() {
  return {PackBuildCommand(),     PackRequantizeCommand(),
          PackVerifyCommand(),    PackInspectCommand(),
          PackSynthCommand(),     RunCommand(),
          ScoreCommand(),         ProfileCommand(),
          ProfileReportCommand(), ProfileMergeCommand(),
          ProfileDiffCommand(),   ReplayCommand(),
          DevicesCommand(),       PlanCommand(),
          DoctorCommand(),        BenchKernelsCommand(),
          BenchWindowCommand(),   ServeCommand(),
          KeyMakeCommand(),       TopCommand()};
}

}  // namespace hearth::cli
