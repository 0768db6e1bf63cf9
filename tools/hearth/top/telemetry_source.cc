#include "tools/hearth/top/telemetry_source.h"

#include <signal.h>

#include <chrono>
#include <exception>
#include <fstream>
#include <utility>

#include <httplib.h>

#include "absl/strings/str_cat.h"

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/serve/telemetry/telemetry_json.h"

namespace hearth::cli {
namespace {

constexpr size_t kAnswerBytesMax = 4 << 20;
constexpr uint64_t kReplayBytesMax = uint64_t{256} << 20;
constexpr uint64_t kKeyBytesMax = 4096;
constexpr std::string_view kUnixScheme = "unix:";
constexpr const char* kPath = "/v1/telemetry";
constexpr std::string_view kStreamType = "text/event-stream";

// The data of the first whole event of a stream; none: not yet.
std::optional<std::string> FirstEvent(std::string_view body) {
  std::string data;
  size_t at = 0;
  for (size_t end = body.find('\n'); end != std::string_view::npos; end = body.find('\n', at)) {
    std::string_view line = body.substr(at, end - at);
    if (line.ends_with('\r')) line.remove_suffix(1);
    at = end + 1;
    if (line.empty() && !data.empty()) return data;
    if (!line.starts_with("data:")) continue;
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    if (!data.empty()) data += '\n';
    data += line;
  }
  return std::nullopt;
}

absl::Status StatusOfAnswer(int code, const std::string& url) {
  const std::string what = absl::StrCat(url, kPath, " answered ", code);
  if (code == 401 || code == 403) {
    return absl::UnauthenticatedError(
        absl::StrCat(what, ": give the server's key with --key-file"));
  }
  if (code == 404) {
    return absl::NotFoundError(absl::StrCat(what, ": no hearth serve, or one without telemetry"));
  }
  return absl::UnavailableError(what);
}

class HttpSource final : public TelemetrySource {
 public:
  HttpSource(const HttpSourceOptions& options, std::unique_ptr<httplib::Client> client)
      : options_(options), client_(std::move(client)) {}

  absl::StatusOr<std::string> Next() override {
    try {
      return Ask();
    } catch (const std::exception& e) {  // httplib's own, as of std::regex
      return absl::UnavailableError(absl::StrCat(options_.url, ": ", e.what()));
    }
  }
  void Interrupt() override { client_->stop(); }

 private:
  absl::StatusOr<std::string> Ask() {
    std::string body;
    std::optional<std::string> event;
    int code = 0;
    bool is_stream = false;
    bool is_too_long = false;
    const auto on_head = [&](const httplib::Response& response) {
      code = response.status;
      is_stream = response.get_header_value("Content-Type").starts_with(kStreamType);
      return code == 200;
    };
    const auto on_body = [&](const char* data, size_t count) {
      is_too_long = body.size() + count > kAnswerBytesMax;
      if (is_too_long) return false;
      body.append(data, count);
      if (is_stream) event = FirstEvent(body);
      return !event;
    };
    httplib::Headers headers = {{"Accept", "application/json"}};
    if (!options_.key.empty()) headers.emplace("Authorization", "Bearer " + options_.key);
    const httplib::Result result = client_->Get(kPath, headers, on_head, on_body);
    if (code != 0 && code != 200) return StatusOfAnswer(code, options_.url);
    if (event) return *std::move(event);
    if (is_too_long) {
      return absl::UnavailableError(absl::StrCat(options_.url, ": more than 4 MiB of telemetry"));
    }
    if (!result) {
      return absl::UnavailableError(
          absl::StrCat(options_.url, ": ", httplib::to_string(result.error())));
    }
    return body;
  }

  const HttpSourceOptions options_;
  const std::unique_ptr<httplib::Client> client_;
};

class ReplaySource final : public TelemetrySource {
 public:
  explicit ReplaySource(std::string path, std::ifstream file)
      : path_(std::move(path)), file_(std::move(file)) {}
  absl::StatusOr<std::string> Next() override {
    std::string line;
    while (std::getline(file_, line)) {
      if (!line.empty()) return line;
    }
    return absl::OutOfRangeError(absl::StrCat(path_, ": no more snapshots"));
  }

 private:
  const std::string path_;
  std::ifstream file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TelemetrySource>> OpenHttpSource(const HttpSourceOptions& options) {
  const std::string_view url = options.url;
  const bool is_unix = url.starts_with(kUnixScheme);
  if (!is_unix && !url.starts_with("http://") && !url.starts_with("https://")) {
    return absl::InvalidArgumentError(absl::StrCat(
        "url: expected http://HOST:PORT, https://HOST:PORT or unix:PATH, found ", options.url));
  }
  std::unique_ptr<httplib::Client> client;
  try {
    client = std::make_unique<httplib::Client>(is_unix ? std::string(url.substr(kUnixScheme.size()))
                                                       : options.url);
  } catch (const std::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("url: ", options.url, ": ", e.what()));
  }
  if (is_unix) {
    client->set_address_family(AF_UNIX);
    client->set_default_headers({{"Host", "localhost"}});
  } else if (!client->is_valid()) {
    return absl::InvalidArgumentError(absl::StrCat("url: ", options.url, ": no such address"));
  }
  const std::chrono::nanoseconds wait(options.wait_ns);
  client->set_connection_timeout(std::chrono::duration_cast<std::chrono::microseconds>(wait));
  client->set_read_timeout(std::chrono::duration_cast<std::chrono::microseconds>(wait));
  client->set_write_timeout(std::chrono::duration_cast<std::chrono::microseconds>(wait));
  client->set_keep_alive(true);
  return std::make_unique<HttpSource>(options, std::move(client));
}

absl::StatusOr<std::unique_ptr<TelemetrySource>> OpenReplaySource(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const uint64_t bytes, FileBytes(path));
  if (bytes > kReplayBytesMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": ", bytes, " bytes, expected at most ", kReplayBytesMax));
  }
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  return std::make_unique<ReplaySource>(path, std::move(file));
}

absl::StatusOr<std::string> ReadKeyFile(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kKeyBytesMax));
  text = text.substr(0, text.find('\n'));
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": expected a key on the first line"));
  }
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

SnapshotFeed::SnapshotFeed(std::unique_ptr<TelemetrySource> source, int64_t interval_ns)
    : source_(std::move(source)), interval_ns_(interval_ns) {
  // Signals are for the thread that owns the terminal.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, &before);
  thread_ = std::thread([this] { Main(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

SnapshotFeed::~SnapshotFeed() {
  {
    std::unique_lock lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
    // More than once: one that came just before a wait began has not ended it.
    while (!is_done_) {
      lock.unlock();
      source_->Interrupt();
      lock.lock();
      wake_.wait_for(lock, std::chrono::milliseconds(20), [this] { return is_done_; });
    }
  }
  thread_.join();
}

SnapshotFeed::State SnapshotFeed::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

void SnapshotFeed::Main() {
  std::unique_lock lock(mutex_);
  while (!stopping_ && !state_.is_over) {
    lock.unlock();
    absl::StatusOr<std::string> json = source_->Next();
    absl::StatusOr<TelemetrySnapshot> snapshot =
        json.ok() ? ParseTelemetry(*json) : absl::StatusOr<TelemetrySnapshot>(json.status());
    lock.lock();
    state_.is_over = absl::IsOutOfRange(snapshot.status());
    if (state_.is_over) break;
    state_.trouble = snapshot.status();
    if (snapshot.ok()) {
      const bool is_other =
          state_.snapshot && state_.snapshot->facts.start_id != snapshot->facts.start_id;
      state_.restarts += is_other ? 1 : 0;
      state_.snapshot = *std::move(snapshot);
      state_.json = *std::move(json);
      state_.bad_count = 0;
      ++state_.good_count;
    } else {
      ++state_.bad_count;
    }
    wake_.wait_for(lock, std::chrono::nanoseconds(interval_ns_), [this] { return stopping_; });
  }
  is_done_ = true;
  wake_.notify_all();
}

}  // namespace hearth::cli
