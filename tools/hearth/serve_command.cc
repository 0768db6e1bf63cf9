// hearth serve: answers requests over HTTP.
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/cpus.h"
#include "runtime/base/file.h"
#include "runtime/base/service_notice.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/config/serve_config.h"
#include "runtime/serve/model_server.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/config_file.h"
#include "tools/hearth/model_session.h"
#include "tools/hearth/serve_options.h"
#include "tools/hearth/signal_thread.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

LogLevel LevelOf(LogChoice choice) {
  switch (choice) {
    case LogChoice::kError:
      return LogLevel::kError;
    case LogChoice::kInfo:
      return LogLevel::kInfo;
    case LogChoice::kDebug:
      break;
  }
  return LogLevel::kDebug;
}

uint64_t SystemRandom() {
  std::array<uint8_t, sizeof(uint64_t)> bytes{};
  // A kernel without randomness is no reason to stop: what it seeds is no secret.
  (void)FillFromSystemRandom(bytes);
  uint64_t value = 0;
  for (const uint8_t byte : bytes) value = value << 8 | byte;
  return value;
}

int64_t UnixSeconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec;
}

std::string Url(const ServeConfig& config, uint16_t port) {
  if (!config.unix_socket.empty()) return absl::StrCat("unix:", config.unix_socket);
  const bool v6 = config.host.find(':') != std::string::npos;
  return absl::StrCat(config.tls_key.empty() ? "http://" : "https://", v6 ? "[" : "", config.host,
                      v6 ? "]:" : ":", port);
}

// Sequences of the planned length, all of whose states are the budget that requests share: one of
// the whole context fits, too.
ModelSession::Needs NeedsOf(const ServeConfig& config) {
  constexpr uint32_t kPlannedTokensMin = 8192;
  const uint32_t share = (config.context_tokens + config.sequences - 1) / config.sequences;
  return {.read_rate = ModelSession::ReadRate::kMeasure,
          .sequences = config.sequences,
          .context_tokens = std::max(kPlannedTokensMin, share),
          .prefix_bytes = config.prefix_ram_bytes};
}

// Made on a thread of its own: what it starts must not be held to the CPU of the first worker.
absl::StatusOr<std::unique_ptr<ModelServer>> MakeServer(const ModelServerDeps& deps,
                                                        ModelServerOptions options,
                                                        std::span<const uint32_t> cpus) {
  absl::StatusOr<std::unique_ptr<ModelServer>> server = absl::UnknownError("not made");
  std::thread starter([&] {
    (void)AllowCpus(cpus);  // then they share one CPU, and all the same do their work
    server = ModelServer::Create(deps, std::move(options));
  });
  starter.join();
  return server;
}

void Reload(const ServeConfig& config, const std::string& config_path, ServerLog& log,
            ModelServer& server) {
  if (!config_path.empty()) {
    ServeConfig again;
    GivenFields given;
    const absl::Status status = ApplyConfigFile(config_path, FieldsOf(again), given);
    if (status.ok()) {
      log.set_level(LevelOf(again.log));
      log.Info("reloaded the log level");
    } else {
      log.Error(absl::StrCat("the log level stays: ", status.message()));
    }
  }
  if (config.api_keys.empty()) return;
  absl::StatusOr<ApiKeys> keys = ApiKeys::Load(config.api_keys);
  if (!keys.ok()) {
    log.Error(absl::StrCat("the API keys stay: ", keys.status().message()));
    return;
  }
  log.Info(absl::StrCat("reloaded ", keys->count(), " API keys"));
  server.ReplaceKeys(std::make_shared<const ApiKeys>(*std::move(keys)));
}

void TellReady(const ServeConfig& config, const ModelServerOptions& options, uint16_t port,
               const CommandIo& io) {
  const std::string url = Url(config, port);
  if (io.json) {
    io.results << Json{{"ready", url},
                       {"port", port},
                       {"model", options.facts.id},
                       {"pid", ::getpid()}}
                      .dump()
               << std::endl;
    return;
  }
  io.results << "hearth serves " << options.facts.id << " at " << url << std::endl;
}

absl::Status Run(const ServeConfig& config, const CommandIo& io) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<SignalThread> signals, SignalThread::Create());
  HEARTH_RETURN_IF_ERROR(CheckServing(config, io));
  HEARTH_ASSIGN_OR_RETURN(
      const ModelSession session,
      ModelSession::Open(config.pack, config.compute, config.cache, io, NeedsOf(config)));
  HEARTH_ASSIGN_OR_RETURN(ModelServerOptions options,
                          ServeOptionsOf(config, session, NeedsOf(config), io, UnixSeconds()));
  ServerLog log(io.talk, LevelOf(config.log));
  ModelServerDeps deps{.runner = *session.runner,
                       .tokenizer = *session.tokenizer,
                       .clock = io.clock,
                       .log = log,
                       .random = SystemRandom,
                       .unix_seconds = UnixSeconds,
                       .process = ReadProcessUse};
  options.telemetry.start_id = absl::StrFormat("%016x", SystemRandom());
  const ModelServerOptions told = options;
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<ModelServer> server,
                          MakeServer(deps, std::move(options), io.allowed_cpus));
  signals->Start({.end =
                      [&](int signal) {
                        if (io.notice != nullptr) (void)io.notice->Send("STOPPING=1");
                        log.Info(absl::StrCat(signal == SIGINT ? "SIGINT" : "SIGTERM",
                                              ": no more requests; those at hand have ",
                                              config.drain_sec, " s"));
                        server->Shutdown(int64_t{config.drain_sec} * 1'000'000'000);
                      },
                  .reload = [&] { Reload(config, io.config_path, log, *server); }});
  TellReady(config, told, server->port(), io);
  // Whoever started the server learns less where this fails; clients are served all the same.
  if (io.notice != nullptr) (void)io.notice->Send("READY=1");
  server->Serve();
  signals->Stop();
  const ServeCounters counters = server->counters();
  log.Info(absl::StrCat("stopped after ", counters.submitted, " requests and ",
                        counters.output_tokens, " tokens"));
  return absl::OkStatus();
}

}  // namespace

Command ServeCommand() {
  return MakeCommand<ServeConfig>(
      {.name = "serve",
       .summary = "answer requests over HTTP as OpenAI's API does",
       .notes = "Anthropic's /v1/messages too; /metrics, /v1/telemetry and `hearth top` show what "
                "it does.\n"},
      Run);
}

}  // namespace hearth::cli
