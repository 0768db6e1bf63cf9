#include "runtime/serve/telemetry_feed.h"

#include <chrono>
#include <utility>

namespace hearth {
namespace {

constexpr std::chrono::seconds kPeriod{1};
constexpr uint64_t kBehindBytesMax = 256 << 10;  // about eight events: a slow reader skips some

}  // namespace

TelemetryFeed::TelemetryFeed(std::function<std::string()> json)
    : json_(std::move(json)), thread_([this] { Main(); }) {}

TelemetryFeed::~TelemetryFeed() { Stop(); }

bool TelemetryFeed::Watch(std::shared_ptr<ResponseWriter> client) {
  const std::string first = json_();
  const std::lock_guard lock(mutex_);
  if (stopping_ || watchers_.size() >= kWatchersMax) return false;
  auto watcher = std::make_unique<SseWriter>(std::move(client), SseOptions{});
  watcher->Data(first);
  watchers_.push_back(std::move(watcher));
  return true;
}

void TelemetryFeed::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const auto& watcher : watchers_) watcher->Finish();
    watchers_.clear();
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void TelemetryFeed::Main() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kPeriod, [this] { return stopping_; })) {
    if (watchers_.empty()) continue;
    lock.unlock();
    const std::string json = json_();
    lock.lock();
    std::erase_if(watchers_, [&](const std::unique_ptr<SseWriter>& watcher) {
      if (watcher->writer().queued_bytes() > kBehindBytesMax) return watcher->writer().gone();
      return watcher->Data(json) == WriteResult::kGone;
    });
  }
}

}  // namespace hearth
