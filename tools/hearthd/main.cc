// The program `hearthd`: its arguments, streams, clock and the signals that end it.
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <iostream>
#include <string>
#include <vector>

#include "runtime/base/clock.h"
#include "runtime/base/service_notice.h"
#include "runtime/base/unique_handle.h"
#include "tools/hearthd/hearthd.h"

int main(int argc, char** argv, char** environment) {
  // Blocked before there is any other thread, so that they come through the descriptor only.
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  sigprocmask(SIG_BLOCK, &ending, nullptr);
  const hearth::UniqueFd stop(::signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!stop.valid()) {
    std::cerr << "hearthd: signals cannot be received\n";
    return 1;
  }
  const auto start = hearth::ServiceStartOf(environment, ::getpid());
  if (!start.ok()) {
    std::cerr << "hearthd: " << start.status().message() << "\n";
    return 1;
  }
  hearth::SteadyClock clock;
  const hearth::cli::CommandIo io{.results = std::cout,
                                  .talk = std::cerr,
                                  .clock = clock,
                                  .inherited_socket = start->inherited_socket,
                                  .notice = &start->notice};
  const std::vector<std::string> args(argv + 1, argv + argc);
  return static_cast<int>(hearth::cli::RunHearthd(args, io, stop.get()));
}
