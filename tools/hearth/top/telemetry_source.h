// Where snapshots come from: a server over HTTP or a UNIX socket, or a file of them.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/serve/telemetry/telemetry_snapshot.h"

namespace hearth::cli {

class TelemetrySource {
 public:
  virtual ~TelemetrySource() = default;
  // The JSON of one snapshot, on one line. Unavailable: not now, ask again; OutOfRange: there are
  // no more; Unauthenticated and others: asking again will not help, but may be tried.
  virtual absl::StatusOr<std::string> Next() = 0;
  // Ends a Next() of another thread soon.
  virtual void Interrupt() {}
};

struct HttpSourceOptions {
  std::string url;  // "http://127.0.0.1:8080", "https://...", "unix:/run/hearth.sock"
  std::string key;  // sent as a bearer token; empty: none
  int64_t wait_ns = 5'000'000'000;  // for an answer
};

// Asks for one object, and takes the first event where it is answered with a stream. At most 4 MiB.
// InvalidArgument for an address that is none of these.
absl::StatusOr<std::unique_ptr<TelemetrySource>> OpenHttpSource(const HttpSourceOptions& options);

// One snapshot for each line of a file of at most 256 MiB.
absl::StatusOr<std::unique_ptr<TelemetrySource>> OpenReplaySource(const std::string& path);

// The key in a file: its first line, without spaces around it; at most 4 KiB.
absl::StatusOr<std::string> ReadKeyFile(const std::string& path);

// Asks a source now and then on a thread of its own; shows the last answer.
class SnapshotFeed {
 public:
  struct State {
    std::optional<TelemetrySnapshot> snapshot;  // the last good one
    std::string json;                           // of it
    absl::Status trouble;                       // of the last time; OK: it was good
    uint64_t good_count = 0;
    uint64_t bad_count = 0;  // in a row
    uint32_t restarts = 0;   // changes of start_id
    bool is_over = false;    // the source has no more
  };
  SnapshotFeed(std::unique_ptr<TelemetrySource> source, int64_t interval_ns);
  ~SnapshotFeed();  // ends a Next() that is under way
  State state() const;

 private:
  void Main();

  const std::unique_ptr<TelemetrySource> source_;
  const int64_t interval_ns_;
  mutable std::mutex mutex_;  // guards what follows
  State state_;
  bool stopping_ = false;
  bool is_done_ = false;  // the thread asks no more
  std::condition_variable wake_;
  std::thread thread_;
};

}  // namespace hearth::cli
