// Sends telemetry to everyone who watches: one event at once, one every second.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "runtime/serve/http/http_handler.h"
#include "runtime/serve/http/sse_writer.h"

namespace hearth {

// Any number of threads may add watchers.
class TelemetryFeed {
 public:
  static constexpr uint32_t kWatchersMax = 64;

  // `json`: one line, of this moment; called from the feed's thread and Watch()'s callers.
  explicit TelemetryFeed(std::function<std::string()> json);
  // Ends the streams.
  ~TelemetryFeed();
  TelemetryFeed(const TelemetryFeed&) = delete;
  TelemetryFeed& operator=(const TelemetryFeed&) = delete;

  // False, and nothing sent, when kWatchersMax watch already.
  bool Watch(std::shared_ptr<ResponseWriter> client);
  // Ends the streams; nothing is sent afterwards.
  void Stop();

 private:
  void Main();

  const std::function<std::string()> json_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  std::vector<std::unique_ptr<SseWriter>> watchers_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace hearth
