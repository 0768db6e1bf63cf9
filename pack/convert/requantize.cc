#include "pack/convert/requantize.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pack/writer/hashed_file.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/base/worker_team.h"

namespace hearth {
namespace {

constexpr uint32_t kWorkersMax = 32;
constexpr uint64_t kCopyChunkBytes = 4_MiB;
constexpr const char* kExpertsName = "experts.bin";

absl::StatusOr<std::vector<ExpertLayout>> LayoutsFor(const Pack& pack,
                                                     const ExpertTarget& experts) {
  const ModelGeometry& g = pack.manifest.geometry;
  std::vector<ExpertLayout> layouts;
  for (uint32_t layer = 0; layer < pack.experts.layer_count(); ++layer) {
    const ExpertLayout& found = pack.experts.layout(LayerId(layer));
    if (layer >= g.layer_count()) {
      layouts.push_back(found);
      continue;
    }
    absl::StatusOr<ExpertLayout> layout =
        LayoutFor(experts, found.format, g.hidden, g.moe.expert_width);
    if (!layout.ok()) return Annotate(layout.status(), absl::StrCat("layer ", layer));
    const bool offered = layout->format == ExpertFormat::kXt
                             ? CanEncodeXt(found.format)
                             : CanRepack(found.format, layout->format);
    if (!offered) {
      return absl::InvalidArgumentError(
          absl::StrCat(kExpertsName, ": layer ", layer, ": experts in ", ExpertLayoutName(found),
                       " cannot become ", ExpertLayoutName(*layout),
                       "; start from the pack of the original checkpoint"));
    }
    layouts.push_back(*layout);
  }
  return layouts;
}

// Copies a file and proves on the way that it is what the manifest says.
absl::Status CopyFile(const std::string& from_dir, const PackFile& expected,
                      const std::string& to_dir, const BuildProgressFn& progress) {
  const std::string path = JoinPath(from_dir, expected.name);
  HEARTH_ASSIGN_OR_RETURN(const RandomAccessFile source, RandomAccessFile::Open(path));
  HEARTH_ASSIGN_OR_RETURN(HashedFile target, HashedFile::Create(to_dir, expected.name));
  std::vector<std::byte> chunk(std::min<uint64_t>(kCopyChunkBytes, expected.bytes));
  for (uint64_t at = 0; at < expected.bytes; at += chunk.size()) {
    const std::span<std::byte> part =
        std::span(chunk).first(std::min<uint64_t>(chunk.size(), expected.bytes - at));
    HEARTH_RETURN_IF_ERROR(source.ReadAt(at, part));
    HEARTH_RETURN_IF_ERROR(target.Append(part));
    if (progress) {
      progress({.stage = absl::StrCat("copying ", expected.name),
                .done_bytes = at + part.size(),
                .total_bytes = expected.bytes});
    }
  }
  HEARTH_ASSIGN_OR_RETURN(const PackFile copied, target.Finish());
  if (copied.xxh3_128 == expected.xxh3_128) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": damaged: expected hash ", expected.xxh3_128,
                                          ", found ", copied.xxh3_128));
}

absl::StatusOr<ExpertWriteResult> EncodeExperts(const Pack& pack, const RequantizeOptions& options,
                                                const std::string& dir, WorkerTeam& team,
                                                const BuildProgressFn& progress) {
  ExpertWritePlan plan = {.dir = dir,
                          .expert_count = pack.experts.expert_count(),
                          .feedback = options.feedback,
                          .progress = progress,
                          .device = options.device};
  HEARTH_ASSIGN_OR_RETURN(plan.layouts, LayoutsFor(pack, options.experts));
  plan.read = [&pack](ExpertKey key, SourceExpert& into) -> absl::Status {
    const ExpertLayout& layout = pack.experts.layout(key.layer);
    std::vector<std::byte> blob(layout.blob_bytes());
    HEARTH_RETURN_IF_ERROR(pack.experts.Read(key, blob));
    UnpackExpert(layout, blob, into);
    return absl::OkStatus();
  };
  return WriteExperts(plan, team);
}

}  // namespace

absl::Status CheckRequantize(const Pack& pack, const ExpertTarget& experts) {
  return Annotate(LayoutsFor(pack, experts).status(), pack.dir);
}

absl::StatusOr<BuildReport> RequantizePack(const Pack& pack, const RequantizeOptions& options,
                                           const BuildProgressFn& progress) {
  HEARTH_RETURN_IF_ERROR(CheckRequantize(pack, options.experts));
  HEARTH_ASSIGN_OR_RETURN(PackDirectory dir, PackDirectory::Create(options.out, options.if_exists));
  const uint32_t hardware = std::max(1u, std::thread::hardware_concurrency());
  WorkerTeam team(
      std::min(options.worker_count == 0 ? hardware : options.worker_count, kWorkersMax));
  HEARTH_ASSIGN_OR_RETURN(ExpertWriteResult written,
                          EncodeExperts(pack, options, dir.path(), team, progress));
  Manifest manifest = pack.manifest;
  BuildReport report;
  for (PackFile& file : manifest.files) {
    if (file.name == kExpertsName) {
      file = written.file;
    } else {
      HEARTH_RETURN_IF_ERROR(CopyFile(pack.dir, file, dir.path(), progress));
    }
    report.pack_bytes += file.bytes;
  }
  const ExpertLayout& first = pack.experts.layout(LayerId(0));
  HEARTH_ASSIGN_OR_RETURN(const ExpertLayout target,
                          LayoutFor(options.experts, first.format, first.hidden, first.width));
  report.files = manifest.files;
  report.source_format = first.format;
  report.expert_format = target.format;
  report.expert_layout = ExpertLayoutName(target);
  report.experts = written.stats;
  manifest.experts = report.expert_layout;
  manifest.made_by =
      absl::StrCat(options.made_by, "; experts ", report.expert_layout, " from ",
                   ExpertLayoutName(first), options.feedback_note.empty() ? "" : " ",
                   options.feedback_note, "; source pack made by ", pack.manifest.made_by);
  HEARTH_RETURN_IF_ERROR(dir.Commit(manifest));
  return report;
}

}  // namespace hearth
