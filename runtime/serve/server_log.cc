#include "runtime/serve/server_log.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/ostream_sink.h>

#include <string>

namespace hearth {
namespace {

spdlog::level::level_enum LevelOf(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kDebug:
      break;
  }
  return spdlog::level::debug;
}

}  // namespace

struct ServerLog::Logger {
  explicit Logger(std::ostream& out)
      : log("hearth", std::make_shared<spdlog::sinks::ostream_sink_mt>(out, /*force_flush=*/true)) {
    log.set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l: %v");
  }
  spdlog::logger log;
};

ServerLog::ServerLog(std::ostream& out, LogLevel level) : logger_(std::make_unique<Logger>(out)) {
  set_level(level);
}

ServerLog::~ServerLog() = default;

void ServerLog::set_level(LogLevel level) { logger_->log.set_level(LevelOf(level)); }

bool ServerLog::Logs(LogLevel level) const { return logger_->log.should_log(LevelOf(level)); }

void ServerLog::Write(LogLevel level, std::string_view line) {
  logger_->log.log(LevelOf(level), "{}", fmt::string_view(line.data(), line.size()));
}

}  // namespace hearth
