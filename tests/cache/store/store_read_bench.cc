// How fast experts come from a drive: through the RAM tier against the bare reader, and how fast a
// whole arena loads against plain reads through the page cache. Ratios within one run, rounds
// interleaved, the best round of each.
//   cache_store_bench [experts.bin]     without a file: one of 1 GiB in the temporary directory
#include <fcntl.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/io/open_reader.h"
#include "cache/store/blob_reads.h"
#include "cache/store/block_layout.h"
#include "cache/store/ram_blocks.h"
#include "cache/store/whole_arena.h"
#include "pack/writer/container_writers.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/file.h"
#include "runtime/base/prng.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint32_t kRounds = 7;
constexpr uint32_t kReads = 400;  // of a round

struct TemporaryDir {
  std::string path = (std::filesystem::temp_directory_path() / "hearth_store_bench").string();
  TemporaryDir() { std::filesystem::create_directories(path); }
  ~TemporaryDir() { std::filesystem::remove_all(path); }
};

std::string MakeExperts(const TemporaryDir& dir) {
  const ExpertLayout layout = *ExpertLayout::Create(ExpertFormat::kNvfp4, 2560, 640);
  auto writer = ExpertFileWriter::Create(dir.path, "experts.bin", {layout, layout, layout}, 128);
  HEARTH_CHECK(writer.ok());
  std::vector<std::byte> blob(layout.blob_bytes());
  Prng prng(1);
  for (uint32_t i = 0; i < 3 * 128; ++i) {
    for (size_t at = 0; at + 8 <= blob.size(); at += 8) {
      const uint64_t word = prng.Next();
      std::copy_n(reinterpret_cast<const std::byte*>(&word), 8, &blob[at]);
    }
    HEARTH_CHECK(writer->Append(blob, Crc32c(blob)).ok());
  }
  HEARTH_CHECK(writer->Finish().ok());
  return JoinPath(dir.path, "experts.bin");
}

struct Setting {
  uint32_t requests = 2;
  uint32_t depth = 8;
};

class Bench {
 public:
  explicit Bench(const ExpertFile& file)
      : file_(file),
        block_bytes_(file.layout(LayerId(0)).stride_bytes()),
        memory_(*AnonymousMapping::Create(LeastBlockBytes(file) + 60 * block_bytes_)) {
    for (size_t at = 0; at < memory_.data().size(); at += 4096) memory_.data()[at] = std::byte{1};
  }

  void Compare(const Setting& setting) {
    double raw = 0, tier = 0;
    const auto blocks = Tier(setting);
    for (uint32_t round = 0; round < kRounds; ++round) {
      raw = std::max(raw, RawRate(setting, round));
      tier = std::max(tier, TierRate(*blocks, setting, round));
    }
    std::printf("%u requests per blob, %2u blobs: reader %5.2f GB/s, RAM tier %5.2f GB/s, %.3f\n",
                setting.requests, setting.depth, raw, tier, tier / raw);
  }

  void CompareLoads(WorkerTeam& team) {
    double plain = 0, arena = 0;
    for (uint32_t round = 0; round < 3; ++round) {
      plain = std::max(plain, PlainLoadRate(team));
      arena = std::max(arena, ArenaLoadRate(team));
    }
    std::printf("load with %u workers: through the page cache %.2f GB/s, arena %.2f GB/s, %.2f\n",
                team.worker_count(), plain, arena, arena / plain);
  }

 private:
  std::unique_ptr<Reader> Open(const Setting& setting) {
    auto reader =
        OpenReader(file_.file().path(), {.in_flight_max = setting.requests * setting.depth,
                                         .buffers = memory_.data(),
                                         .clock = clock_});
    HEARTH_CHECK(reader.ok());
    return *std::move(reader);
  }
  std::unique_ptr<RamBlocks> Tier(const Setting& setting) {
    auto blocks = RamBlocks::Create(file_, memory_.data(), Open(setting), clock_,
                                    {.landing_count = 60,
                                     .blob_requests = setting.requests,
                                     .blobs_in_flight_max = setting.depth},
                                    nullptr);
    HEARTH_CHECK(blocks.ok());
    return *std::move(blocks);
  }
  ExpertKey AnyKey(Prng& prng) const {
    return {LayerId(static_cast<uint32_t>(prng.Below(file_.layer_count()))),
            ExpertId(static_cast<uint32_t>(prng.Below(file_.expert_count())))};
  }
  double Rate(int64_t begin_ns, uint64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(clock_.NowNs() - begin_ns);
  }

  double RawRate(const Setting& setting, uint64_t seed) {
    const auto reader = Open(setting);
    BlobReads reads(*reader, clock_, {setting.requests, setting.depth, INT64_MAX / 2});
    Prng prng(seed);
    uint64_t block = 0;
    const int64_t begin_ns = clock_.NowNs();
    for (uint32_t started = 0, ended = 0; ended < kReads;) {
      for (; started < kReads && reads.has_room(); ++started) {
        const uint64_t at = block++ % (memory_.data().size() / block_bytes_) * block_bytes_;
        reads.Add(BlockId(0), file_.offset_bytes(AnyKey(prng)),
                  memory_.data().subspan(at, block_bytes_));
      }
      reads.Submit();
      HEARTH_CHECK(reads.Wait(1'000'000'000).ok());
      ended += static_cast<uint32_t>(reads.ended().size());
      reads.ClearEnded();
    }
    return Rate(begin_ns, kReads * block_bytes_);
  }

  // As many experts are asked for as the drive may have under way, and as many again: a layer.
  double TierRate(RamBlocks& blocks, const Setting& setting, uint64_t seed) {
    Prng prng(seed);
    const uint64_t bytes_before = blocks.stats().read_bytes;
    const int64_t begin_ns = clock_.NowNs();
    std::atomic<uint32_t> under_way{0};
    for (uint32_t i = 0; i < kReads; ++i) {
      for (uint32_t n; (n = under_way.load()) >= 2 * setting.depth;) under_way.wait(n);
      ++under_way;
      blocks.Fetch(AnyKey(prng), [&](const absl::StatusOr<BlockId>& block) {
        HEARTH_CHECK(block.ok());
        blocks.Release(*block);
        --under_way;
        under_way.notify_one();
      });
    }
    for (uint32_t n; (n = under_way.load()) > 0;) under_way.wait(n);
    return Rate(begin_ns, blocks.stats().read_bytes - bytes_before);
  }

  uint64_t AllBytes() const { return AllBlockBytes(file_); }
  void DropPages() { ::posix_fadvise(file_.file().fd(), 0, 0, POSIX_FADV_DONTNEED); }
  double PlainLoadRate(WorkerTeam& team) {
    DropPages();
    const int64_t begin_ns = clock_.NowNs();
    const AnonymousMapping memory = *AnonymousMapping::Create(AllBytes());
    team.ForEach(file_.layer_count() * file_.expert_count(), [&](uint32_t, uint32_t i) {
      const ExpertKey key = {LayerId(i / file_.expert_count()), ExpertId(i % file_.expert_count())};
      HEARTH_CHECK(file_.Read(key, memory.data().subspan(i * block_bytes_, block_bytes_)).ok());
    });
    const double rate = Rate(begin_ns, AllBytes());
    DropPages();
    return rate;
  }
  double ArenaLoadRate(WorkerTeam& team) {
    const int64_t begin_ns = clock_.NowNs();
    HEARTH_CHECK(WholeArena::Load(file_, team, nullptr).ok());
    return Rate(begin_ns, AllBytes());
  }

  const ExpertFile& file_;
  const uint64_t block_bytes_;
  AnonymousMapping memory_;
  SteadyClock clock_;
};

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  using namespace hearth;
  const TemporaryDir dir;
  const auto file = ExpertFile::Open(argc > 1 ? argv[1] : MakeExperts(dir));
  if (!file.ok()) {
    std::fprintf(stderr, "%s\n", file.status().ToString().c_str());
    return 1;
  }
  {
    Bench bench(*file);
    for (const Setting& setting : {Setting{1, 4}, {2, 4}, {2, 8}, {4, 8}, {2, 16}}) {
      bench.Compare(setting);
    }
    WorkerTeam team(2);
    bench.CompareLoads(team);
  }
  return 0;
}
