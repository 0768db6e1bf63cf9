// A fixed order of places that is as good as random to a drive.
#include "tools/hearth/plan/drive_rate.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "cache/io/open_reader.h"
#include "cache/io/reader.h"
#include "runtime/base/file.h"
#include "runtime/base/prng.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

constexpr uint64_t kAlignBytes = 4096;
constexpr int64_t kWaitNs = 10'000'000'000;  // for one read

}  // namespace

absl::StatusOr<DriveRate> MeasureDriveRate(const DriveRateOptions& options, Clock& clock) {
  const uint64_t read_bytes = AlignUp(std::max<uint64_t>(options.read_bytes, 1), kAlignBytes);
  HEARTH_ASSIGN_OR_RETURN(const uint64_t file_bytes, FileBytes(options.path));
  const uint64_t places = file_bytes / read_bytes;
  if (places == 0) {
    return absl::OutOfRangeError(absl::StrCat(options.path, ": ", FormatBytes(file_bytes),
                                              ", a read takes ", FormatBytes(read_bytes)));
  }
  HEARTH_ASSIGN_OR_RETURN(const AnonymousMapping memory,
                          AnonymousMapping::Create(read_bytes * options.in_flight));
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Reader> reader,
                          OpenReader(options.path, {.in_flight_max = options.in_flight,
                                                    .buffers = memory.data(),
                                                    .align_bytes = kAlignBytes,
                                                    .clock = clock}));
  const int64_t start_ns = clock.NowNs();
  const auto request = [&](uint64_t number, uint64_t slot) {
    return ReadRequest{.offset_bytes = SplitMix64(number) % places * read_bytes,
                       .into = memory.data().subspan(slot * read_bytes, read_bytes),
                       .tag = slot};
  };
  uint64_t started = 0;
  uint64_t done = 0;
  std::vector<ReadCompletion> finished(options.in_flight);
  for (; started < options.in_flight; ++started) {
    const ReadRequest one = request(started, started);
    HEARTH_RETURN_IF_ERROR(reader->Submit({&one, 1}).status());
  }
  while (done < started) {
    HEARTH_ASSIGN_OR_RETURN(const size_t count, reader->Wait(finished, kWaitNs));
    if (count == 0) return absl::DeadlineExceededError(absl::StrCat(options.path, ": no answer"));
    const bool goes_on = clock.NowNs() - start_ns < options.duration_ns;
    for (size_t i = 0; i < count; ++i) {
      HEARTH_RETURN_IF_ERROR(finished[i].status);
      ++done;
      if (!goes_on) continue;
      const ReadRequest one = request(started, finished[i].tag);
      HEARTH_RETURN_IF_ERROR(reader->Submit({&one, 1}).status());
      ++started;
    }
  }
  const int64_t took_ns = std::max<int64_t>(clock.NowNs() - start_ns, 1);
  return DriveRate{
      .bytes_per_sec = static_cast<double>(done * read_bytes) * 1e9 / static_cast<double>(took_ns),
      .direct = reader->traits().direct,
      .notes = reader->traits().notes};
}

}  // namespace hearth::cli
