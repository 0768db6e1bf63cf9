// How many bytes a second a reader brings from a file: blobs of one expert at random places, split
// over one or more requests, at several depths. All settings take turns, round after round, so that
// a noisy machine is noisy for each; the table has medians. tools/compare_fio.sh sets it against
// fio.
//   build/release/tests/cache/io/cache_io_bench [--file FILE] [--io uring,pread] [--split 1,2,4]
//       [--depth 1,2,4,8,16,32] [--threads 4] [--blob BYTES] [--rounds N] [--ms N]
//       [--arena-blobs N] [--registered 0|1] [--direct 0|1] [--plain]
#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

#include "cache/io/open_reader.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/base/prng.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kGeneratedBytes = 2_GiB;
constexpr uint64_t kBlockBytes = 4096;
constexpr const char* kGeneratedPath = "/tmp/hearth_io_bench.bin";

struct BenchOptions {
  std::string file;
  std::vector<std::string> io = {"uring", "pread"};
  std::vector<uint64_t> split = {1, 2, 4};
  std::vector<uint64_t> depth = {1, 2, 4, 8, 16, 32};  // requests in flight
  std::vector<uint64_t> threads = {4};
  uint64_t blob_bytes = 2'768'896;
  uint64_t rounds = 5;
  uint64_t ms = 400;
  uint64_t arena_blobs = 0;  // places that blobs land in; 0: as many as are in flight
  bool registered = true;
  bool direct = true;
  bool plain = false;  // one number a line, for scripts
};

struct Setting {
  std::string io;
  uint64_t split = 1;
  uint64_t depth = 1;
  uint64_t threads = 4;
};

struct Sample {
  double gb_per_sec = 0;
  double blob_ms_p50 = 0;
  double blob_ms_p99 = 0;
  double cpu_percent = 0;
};

double CpuSeconds() {
  struct rusage usage = {};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const struct timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

absl::Status MakeFile(const std::string& path) {
  std::fprintf(stderr, "writing %s, %s of random bytes\n", path.c_str(),
               FormatBytes(kGeneratedBytes).c_str());
  HEARTH_ASSIGN_OR_RETURN(SequentialFile file, SequentialFile::Create(path));
  std::vector<uint64_t> words(1_MiB / 8);
  Prng prng(1);
  while (file.bytes() < kGeneratedBytes) {
    for (uint64_t& word : words) word = prng.Next();
    HEARTH_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(words))));
  }
  return file.Finish();
}

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[static_cast<size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

// One measurement: keeps `depth` requests in flight for a while.
class Measurement {
 public:
  Measurement(const BenchOptions& options, const Setting& setting, uint64_t file_bytes,
              std::span<std::byte> arena, Clock& clock, uint64_t seed)
      : options_(options),
        setting_(setting),
        place_count_(file_bytes / options.blob_bytes),
        arena_(arena),
        clock_(clock),
        prng_(seed),
        blobs_(arena.size() / options.blob_bytes) {
    for (uint32_t i = static_cast<uint32_t>(blobs_.size()); i > 0; --i) free_.push_back(i - 1);
  }

  absl::StatusOr<Sample> Run(const std::string& path) {
    HEARTH_ASSIGN_OR_RETURN(
        const std::unique_ptr<Reader> reader,
        OpenReader(path, {.choice = setting_.io == "uring" ? IoChoice::kUring : IoChoice::kPread,
                          .in_flight_max = static_cast<uint32_t>(setting_.depth),
                          .pread_threads = static_cast<uint32_t>(setting_.threads),
                          .buffers = options_.registered ? arena_ : std::span<std::byte>(),
                          .direct = options_.direct,
                          .clock = clock_}));
    for (const std::string& note : reader->traits().notes) {
      std::fprintf(stderr, "%s\n", note.c_str());
    }
    std::vector<ReadCompletion> done(setting_.depth);
    const double cpu_before = CpuSeconds();
    const int64_t start_ns = clock_.NowNs();
    const int64_t end_ns = start_ns + static_cast<int64_t>(options_.ms) * 1'000'000;
    while (clock_.NowNs() < end_ns) {
      HEARTH_RETURN_IF_ERROR(Refill(*reader));
      HEARTH_ASSIGN_OR_RETURN(const size_t n, reader->Wait(done, int64_t{10'000'000'000}));
      for (const ReadCompletion& read : std::span(done).first(n))
        HEARTH_RETURN_IF_ERROR(Take(read));
    }
    const int64_t taken_ns = clock_.NowNs() - start_ns;
    const double cpu = CpuSeconds() - cpu_before;
    HEARTH_RETURN_IF_ERROR(Check(path));
    return Sample{.gb_per_sec = static_cast<double>(read_bytes_) / static_cast<double>(taken_ns),
                  .blob_ms_p50 = Percentile(blob_ms_, 0.5),
                  .blob_ms_p99 = Percentile(blob_ms_, 0.99),
                  .cpu_percent = 100 * cpu / (static_cast<double>(taken_ns) * 1e-9)};
  }

 private:
  struct Blob {
    uint64_t offset_bytes = 0;
    int64_t start_ns = 0;
    uint64_t parts_left = 0;
    bool is_whole = false;
  };

  absl::Status Refill(Reader& reader) {
    while (reader.in_flight() < setting_.depth) {
      if (queue_.empty() && !QueueBlob()) return absl::OkStatus();
      HEARTH_ASSIGN_OR_RETURN(const size_t n, reader.Submit(queue_));
      queue_.erase(queue_.begin(), queue_.begin() + static_cast<std::ptrdiff_t>(n));
    }
    return absl::OkStatus();
  }

  bool QueueBlob() {
    if (free_.empty()) return false;
    const uint32_t index = free_.front();
    free_.erase(free_.begin());
    const uint64_t offset_bytes = prng_.Below(place_count_) * options_.blob_bytes;
    blobs_[index] = {offset_bytes, clock_.NowNs(), setting_.split, false};
    const std::span<std::byte> into =
        arena_.subspan(index * options_.blob_bytes, options_.blob_bytes);
    const uint64_t block_count = options_.blob_bytes / kBlockBytes;
    for (uint64_t part = 0; part < setting_.split; ++part) {
      const uint64_t begin = block_count * part / setting_.split * kBlockBytes;
      const uint64_t end = block_count * (part + 1) / setting_.split * kBlockBytes;
      queue_.push_back({offset_bytes + begin, into.subspan(begin, end - begin), index});
    }
    return true;
  }

  absl::Status Take(const ReadCompletion& read) {
    HEARTH_RETURN_IF_ERROR(read.status);
    Blob& blob = blobs_[read.tag];
    if (--blob.parts_left > 0) return absl::OkStatus();
    blob.is_whole = true;
    read_bytes_ += options_.blob_bytes;
    blob_ms_.push_back(static_cast<double>(clock_.NowNs() - blob.start_ns) * 1e-6);
    free_.push_back(static_cast<uint32_t>(read.tag));
    return absl::OkStatus();
  }

  // The blobs that are whole hold what the file holds.
  absl::Status Check(const std::string& path) {
    HEARTH_ASSIGN_OR_RETURN(const RandomAccessFile file, RandomAccessFile::Open(path));
    std::vector<std::byte> want(options_.blob_bytes);
    int left_count = 2;
    for (size_t i = 0; i < blobs_.size() && left_count > 0; ++i) {
      if (!blobs_[i].is_whole) continue;
      --left_count;
      HEARTH_RETURN_IF_ERROR(file.ReadAt(blobs_[i].offset_bytes, want));
      if (std::memcmp(want.data(), arena_.data() + i * options_.blob_bytes, want.size()) != 0) {
        return absl::DataLossError("a blob differs from the file");
      }
    }
    return absl::OkStatus();
  }

  const BenchOptions& options_;
  const Setting& setting_;
  uint64_t place_count_;
  std::span<std::byte> arena_;
  Clock& clock_;
  Prng prng_;
  std::vector<Blob> blobs_;
  std::vector<uint32_t> free_;
  std::vector<ReadRequest> queue_;
  std::vector<double> blob_ms_;
  uint64_t read_bytes_ = 0;
};

std::vector<Setting> AllSettings(const BenchOptions& options) {
  std::vector<Setting> settings;
  for (const std::string& io : options.io) {
    for (const uint64_t threads : io == "pread" ? options.threads : std::vector<uint64_t>{0}) {
      for (const uint64_t split : options.split) {
        for (const uint64_t depth : options.depth) {
          settings.push_back({io, split, depth, std::max<uint64_t>(threads, 1)});
        }
      }
    }
  }
  return settings;
}

void Print(const Setting& setting, const std::vector<Sample>& samples, bool plain) {
  const auto median = [&](auto field) {
    std::vector<double> values;
    for (const Sample& sample : samples) values.push_back(sample.*field);
    return Percentile(std::move(values), 0.5);
  };
  if (plain) {
    std::printf("%.4f\n", median(&Sample::gb_per_sec));
    return;
  }
  double best = 0;
  for (const Sample& sample : samples) best = std::max(best, sample.gb_per_sec);
  const std::string name =
      setting.io == "pread" ? "pread x" + std::to_string(setting.threads) : setting.io;
  std::printf("| %-9s | %5llu | %5llu | %6.2f | %6.2f | %8.2f | %8.2f | %5.0f%% |\n", name.c_str(),
              static_cast<unsigned long long>(setting.split),
              static_cast<unsigned long long>(setting.depth), median(&Sample::gb_per_sec), best,
              median(&Sample::blob_ms_p50), median(&Sample::blob_ms_p99),
              median(&Sample::cpu_percent));
}

absl::Status Run(BenchOptions options) {
  if (options.file.empty()) {
    options.file = kGeneratedPath;
    if (!FileExists(options.file)) HEARTH_RETURN_IF_ERROR(MakeFile(options.file));
  }
  HEARTH_ASSIGN_OR_RETURN(const uint64_t file_bytes, FileBytes(options.file));
  const std::vector<Setting> settings = AllSettings(options);
  uint64_t blob_count = options.arena_blobs;
  for (const Setting& s : settings) blob_count = std::max(blob_count, s.depth / s.split + 2);
  HEARTH_ASSIGN_OR_RETURN(const AnonymousMapping arena,
                          AnonymousMapping::Create(blob_count * options.blob_bytes));
  std::memset(arena.data().data(), 1, arena.data().size());
  SteadyClock clock;
  std::vector<std::vector<Sample>> samples(settings.size());
  for (uint64_t round = 0; round < options.rounds; ++round) {
    for (size_t i = 0; i < settings.size(); ++i) {
      const uint64_t used_blobs =
          std::max(options.arena_blobs, settings[i].depth / settings[i].split + 2);
      Measurement measurement(options, settings[i], file_bytes,
                              arena.data().first(used_blobs * options.blob_bytes), clock,
                              round * 1000 + i);
      HEARTH_ASSIGN_OR_RETURN(const Sample sample, measurement.Run(options.file));
      samples[i].push_back(sample);
    }
  }
  if (!options.plain) {
    std::printf("| io        | split | depth |   GB/s |   best | p50 ms   | p99 ms   | cpu    |\n");
    std::printf("|-----------|-------|-------|--------|--------|----------|----------|--------|\n");
  }
  for (size_t i = 0; i < settings.size(); ++i) Print(settings[i], samples[i], options.plain);
  return absl::OkStatus();
}

bool ParseNumbers(const std::string& text, std::vector<uint64_t>& numbers) {
  numbers.clear();
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    uint64_t number = 0;
    if (!absl::SimpleAtoi(word, &number) || number == 0) return false;
    numbers.push_back(number);
  }
  return true;
}

bool Parse(int argc, char** argv, BenchOptions& options) {
  std::map<std::string, std::vector<uint64_t>*> lists = {
      {"--split", &options.split}, {"--depth", &options.depth}, {"--threads", &options.threads}};
  std::map<std::string, uint64_t*> numbers = {{"--blob", &options.blob_bytes},
                                              {"--rounds", &options.rounds},
                                              {"--ms", &options.ms},
                                              {"--arena-blobs", &options.arena_blobs}};
  std::map<std::string, bool*> flags = {{"--registered", &options.registered},
                                        {"--direct", &options.direct}};
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--plain") {
      options.plain = true;
      continue;
    }
    if (i + 1 >= argc) return false;
    const std::string value = argv[++i];
    if (name == "--file") {
      options.file = value;
    } else if (name == "--io") {
      options.io = absl::StrSplit(value, ',');
    } else if (lists.contains(name)) {
      if (!ParseNumbers(value, *lists[name])) return false;
    } else if (numbers.contains(name)) {
      if (!absl::SimpleAtoi(value, numbers[name])) return false;
    } else if (flags.contains(name)) {
      *flags[name] = value != "0";
    } else {
      return false;
    }
  }
  return options.blob_bytes % kBlockBytes == 0 && options.blob_bytes > 0;
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  hearth::BenchOptions options;
  if (!hearth::Parse(argc, argv, options)) {
    std::fprintf(stderr, "cache_io_bench: see the top of its source for the flags\n");
    return 2;
  }
  const absl::Status status = hearth::Run(std::move(options));
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
