// What a server says while it works, one line each, with the time in front. Nothing of what
// clients send is in it but fixed words and numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <ostream>
#include <string_view>

namespace hearth {

enum class LogLevel : uint8_t {
  kError,  // what somebody must look at
  kInfo,   // start, stop, and a line for each request
  kDebug   // refusals by the transport too
};

// Any number of threads may log at once.
class ServerLog {
 public:
  // `out` outlives the log.
  ServerLog(std::ostream& out, LogLevel level);
  ~ServerLog();
  ServerLog(const ServerLog&) = delete;
  ServerLog& operator=(const ServerLog&) = delete;

  void set_level(LogLevel level);
  bool Logs(LogLevel level) const;
  void Write(LogLevel level, std::string_view line);
  void Info(std::string_view line) { Write(LogLevel::kInfo, line); }
  void Error(std::string_view line) { Write(LogLevel::kError, line); }

 private:
  struct Logger;
  std::unique_ptr<Logger> logger_;
};

}  // namespace hearth
