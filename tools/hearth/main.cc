// The program `hearth`: its arguments, streams and clock, handed to the frame.
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/cpus.h"
#include "runtime/base/service_notice.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/frame.h"

int main(int argc, char** argv, char** environment) {
  std::ios::sync_with_stdio(false);
  const std::vector<std::string> args(argv + 1, argv + argc);
  const auto start = hearth::ServiceStartOf(environment, getpid());
  if (!start.ok()) {
    std::cerr << "hearth: " << start.status().message() << "\n";
    return 1;
  }
  hearth::SteadyClock clock;
  const std::vector<hearth::cli::Command> commands = hearth::cli::AllCommands();
  const hearth::cli::CommandIo io{.results = std::cout,
                                  .talk = std::cerr,
                                  .clock = clock,
                                  .talk_is_terminal = isatty(STDERR_FILENO) == 1,
                                  .allowed_cpus = hearth::AllowedCpus(),
                                  .inherited_socket = start->inherited_socket,
                                  .notice = &start->notice};
  return static_cast<int>(hearth::cli::RunHearth(args, commands, io));
}
