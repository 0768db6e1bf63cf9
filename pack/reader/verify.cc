#include "pack/reader/verify.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pack/format/manifest.h"
#include "pack/reader/file_regions.h"
#include "pack/reader/pack.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kWorkersMax = 32;

class Verifier {
 public:
  Verifier(const std::string& dir, const VerifyProgressFn& progress, WorkerTeam& team)
      : dir_(dir), progress_(progress), team_(team) {}

  void CheckManifestText(const absl::StatusOr<Manifest>& manifest, uint64_t bytes) {
    ++report_.file_count;
    report_.bytes_read += bytes;
    if (!manifest.ok()) AddFault("manifest.json", "", manifest.status());
  }

  void CheckFiles(const Manifest& manifest) {
    for (const PackFile& file : manifest.files) total_bytes_ += file.bytes;
    total_bytes_ += report_.bytes_read;
    for (const PackFile& file : manifest.files) CheckFile(file);
    // Files that are as they were written may still not belong together.
    if (report_.fault_count > 0) return;
    if (const auto pack = Pack::Open(dir_); !pack.ok()) AddFault("", "", pack.status());
  }

  VerifyReport Take() { return std::move(report_); }

 private:
  void AddFault(const std::string& file, const std::string& where, const absl::Status& status) {
    AddFault(file, where, std::string(status.message()));
  }
  void AddFault(const std::string& file, const std::string& where, const std::string& what) {
    ++report_.fault_count;
    if (report_.faults.size() < kVerifyFaultsMax) {
      report_.faults.push_back({.file = file, .where = where, .what = what});
    }
  }

  void CheckFile(const PackFile& file) {
    ++report_.file_count;
    const absl::StatusOr<uint64_t> found = FileBytes(JoinPath(dir_, file.name));
    if (!found.ok()) return AddFault(file.name, "", found.status());
    if (*found != file.bytes) {
      return AddFault(file.name, "",
                      absl::StrCat("expected ", file.bytes, " bytes, found ", *found));
    }
    const absl::StatusOr<FileRegions> map = MapFile(dir_, file.name);
    if (!map.ok()) return AddFault(file.name, "header or directory", map.status());
    const uint64_t before = report_.bytes_read;
    const absl::StatusOr<RegionScan> scan =
        ScanRegions(*map, team_, [this, &file, before](uint64_t done_bytes) {
          report_.bytes_read = before + done_bytes;
          if (progress_) {
            progress_(
                {.file = file.name, .done_bytes = report_.bytes_read, .total_bytes = total_bytes_});
          }
        });
    if (!scan.ok()) return AddFault(file.name, "", scan.status());
    for (const RegionFault& fault : scan->faults) {
      const FileRegion& region = map->regions[fault.region];
      AddFault(file.name,
               region.check == RegionCheck::kCrc ? map->name(region)
                                                 : absl::StrCat("padding at ", region.begin_bytes),
               fault.what);
    }
    if (scan->faults.empty() && scan->xxh3_128 != file.xxh3_128) {
      AddFault(
          file.name, "",
          absl::StrCat("contents differ: hash ", scan->xxh3_128, ", expected ", file.xxh3_128));
    }
  }

  const std::string& dir_;
  const VerifyProgressFn& progress_;
  WorkerTeam& team_;
  uint64_t total_bytes_ = 0;
  VerifyReport report_;
};

}  // namespace

absl::StatusOr<VerifyReport> VerifyPack(const std::string& dir, const VerifyProgressFn& progress,
                                        uint32_t worker_count) {
  const std::string path = JoinPath(dir, "manifest.json");
  auto text = ReadFile(path, kManifestBytesMax);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat(dir, ": not a pack (no manifest.json)"));
  }
  HEARTH_RETURN_IF_ERROR(text.status());
  const uint32_t hardware = std::max(1u, std::thread::hardware_concurrency());
  WorkerTeam team(std::min(worker_count == 0 ? hardware : worker_count, kWorkersMax));
  Verifier verifier(dir, progress, team);
  const absl::StatusOr<Manifest> manifest = Manifest::FromJson(*text, path);
  verifier.CheckManifestText(manifest, text->size());
  if (manifest.ok()) verifier.CheckFiles(*manifest);
  return verifier.Take();
}

}  // namespace hearth
