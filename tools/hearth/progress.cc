// When to write a progress line, and what is in it.
#include "tools/hearth/progress.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

constexpr int64_t kSecondNs = 1'000'000'000;
constexpr int64_t kQuietNs = 2 * kSecondNs;              // shorter work needs no bar
constexpr int64_t kTerminalIntervalNs = kSecondNs / 10;  // faster than this is flicker
constexpr int64_t kPlainIntervalNs = 10 * kSecondNs;     // in a log file
constexpr const char* kEraseLine = "\r\x1b[K";

std::string FormatCount(ProgressUnit unit, uint64_t count) {
  if (unit == ProgressUnit::kBytes) return FormatBytes(count);
  if (unit == ProgressUnit::kWeights) {
    return absl::StrFormat("%.2f M", static_cast<double>(count) * 1e-6);
  }
  return absl::StrCat(count);
}

}  // namespace

std::string FormatSeconds(uint64_t seconds) {
  if (seconds < 60) return absl::StrCat(seconds, " s");
  if (seconds < 3600) return absl::StrFormat("%d min %02d s", seconds / 60, seconds % 60);
  return absl::StrFormat("%d h %02d min", seconds / 3600, seconds / 60 % 60);
}

Progress::Progress(const CommandIo& io, ProgressOptions options)
    : talk_(io.talk),
      clock_(io.clock),
      terminal_(io.talk_is_terminal),
      options_(std::move(options)),
      start_ns_(clock_.NowNs()),
      next_ns_(start_ns_ + (terminal_ ? kQuietNs : kPlainIntervalNs)) {}

Progress::~Progress() { Hide(); }

void Progress::Hide() {
  if (line_open_) talk_ << kEraseLine << std::flush;
  line_open_ = false;
}

void Progress::Update(uint64_t done) {
  const int64_t now_ns = clock_.NowNs();
  if (now_ns < next_ns_) return;
  next_ns_ = now_ns + (terminal_ ? kTerminalIntervalNs : kPlainIntervalNs);
  const std::string line = Line(done, now_ns - start_ns_);
  if (terminal_) {
    talk_ << kEraseLine << line << std::flush;
    line_open_ = true;
  } else {
    talk_ << line << std::endl;
  }
}

std::string Progress::Line(uint64_t done, int64_t elapsed_ns) const {
  const double seconds = static_cast<double>(elapsed_ns) / kSecondNs;
  const double per_second = static_cast<double>(done) / seconds;
  std::string line = absl::StrCat(options_.label, ": ", FormatCount(options_.unit, done));
  if (options_.total > 0) {
    const uint64_t shown = std::min(done, options_.total);
    absl::StrAppendFormat(
        &line, " of %s (%d%%)", FormatCount(options_.unit, options_.total),
        static_cast<int>(100.0 * static_cast<double>(shown) / static_cast<double>(options_.total)));
  }
  if (options_.unit == ProgressUnit::kCases) {
    absl::StrAppend(&line, " cases");
  } else {
    const char* const noun = options_.unit == ProgressUnit::kTokens    ? " tokens, "
                             : options_.unit == ProgressUnit::kWeights ? " weights, "
                                                                       : ", ";
    absl::StrAppend(&line, noun, FormatCount(options_.unit, static_cast<uint64_t>(per_second)),
                    "/s");
  }
  if (options_.total > done && done > 0) {
    const double left = static_cast<double>(options_.total - done) / per_second;
    absl::StrAppend(&line, ", ", FormatSeconds(static_cast<uint64_t>(std::min(left, 3.6e6)) + 1),
                    " left");
  }
  return line;
}

}  // namespace hearth::cli
