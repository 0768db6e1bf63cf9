#include "pack/synth/build_synthetic.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pack/convert/ordered_batches.h"
#include "pack/format/content_hash.h"
#include "pack/synth/random_words.h"
#include "pack/synth/synthetic_dense.h"
#include "pack/synth/synthetic_expert.h"
#include "pack/synth/synthetic_texts.h"
#include "pack/writer/container_writers.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"
#include "runtime/base/worker_team.h"

namespace hearth {
namespace {

constexpr uint32_t kWorkersMax = 32;
constexpr uint64_t kNgramChunkBytes = 4_MiB;
constexpr uint64_t kManifestRoomBytes = 1_MiB;
constexpr NgramRowFormat kNgramFormat = NgramRowFormat::kFp8;
constexpr float kNgramScale = 1.67f;  // codes have an RMS of 0.6, values one of 1

// Everything about the pack that is known before a byte of it is written.
struct Plan {
  ModelGeometry geometry;
  std::vector<TensorInfo> dense;
  std::vector<TensorInfo> mtp;
  std::vector<ExpertLayout> layouts;  // of each layer, the MTP layer last
  std::vector<std::pair<std::string, std::string>> texts;
  uint64_t dense_bytes = 0;
  uint64_t mtp_bytes = 0;
  uint64_t experts_bytes = 0;
  uint64_t ngram_bytes = 0;
  uint64_t pack_bytes() const {
    uint64_t bytes = dense_bytes + mtp_bytes + experts_bytes + ngram_bytes;
    for (const auto& [name, text] : texts) bytes += text.size();
    return bytes;
  }
};

absl::StatusOr<Plan> MakePlan(const SyntheticShape& shape) {
  Plan plan;
  HEARTH_ASSIGN_OR_RETURN(plan.geometry, MakeSyntheticGeometry(shape));
  const ModelGeometry& g = plan.geometry;
  HEARTH_ASSIGN_OR_RETURN(
      const ExpertLayout layout,
      ExpertLayout::Create(shape.format, g.hidden, g.moe.expert_width, shape.xt_bits));
  plan.layouts.assign(g.layer_count(), layout);
  if (g.has_mtp) {  // what publishers keep them in
    HEARTH_ASSIGN_OR_RETURN(const ExpertLayout mtp,
                            ExpertLayout::Create(ExpertFormat::kFp8, g.hidden, g.moe.expert_width));
    plan.layouts.push_back(mtp);
    plan.mtp = SyntheticMtpTensors(g);
    plan.mtp_bytes = PlaceTensors(plan.mtp).file_bytes;
  }
  plan.dense = SyntheticDenseTensors(g);
  plan.dense_bytes = PlaceTensors(plan.dense).file_bytes;
  ExpertDirectory experts{.expert_count = g.moe.expert_count, .layouts = plan.layouts};
  plan.experts_bytes = PlaceExperts(experts).file_bytes;
  HEARTH_RETURN_IF_ERROR(NgramRowBytes(kNgramFormat, g.ngram.row_dim).status());
  plan.ngram_bytes =
      PlaceNgram(
          {.format = kNgramFormat, .row_count = g.ngram.row_count, .row_dim = g.ngram.row_dim})
          .file_bytes;
  plan.texts = SyntheticTexts(g);
  return plan;
}

class Builder {
 public:
  Builder(const Plan& plan, const SyntheticPackOptions& options, const BuildProgressFn& progress,
          const std::string& dir, WorkerTeam& team)
      : plan_(plan), options_(options), progress_(progress), dir_(dir), team_(team) {}

  absl::Status Run() {
    HEARTH_RETURN_IF_ERROR(WriteTensors("dense.bin", "dense weights", plan_.dense));
    if (plan_.geometry.has_mtp) {
      HEARTH_RETURN_IF_ERROR(WriteTensors("mtp.bin", "MTP head", plan_.mtp));
    }
    HEARTH_RETURN_IF_ERROR(WriteExperts());
    HEARTH_RETURN_IF_ERROR(WriteNgram());
    for (const auto& [name, text] : plan_.texts) {
      HEARTH_ASSIGN_OR_RETURN(HashedFile file, HashedFile::Create(dir_, name));
      HEARTH_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(text))));
      HEARTH_RETURN_IF_ERROR(Keep(file.Finish()));
    }
    return absl::OkStatus();
  }

  std::vector<PackFile> TakeFiles() {
    std::sort(files_.begin(), files_.end(),
              [](const PackFile& a, const PackFile& b) { return a.name < b.name; });
    return std::move(files_);
  }

 private:
  absl::Status Keep(absl::StatusOr<PackFile> file) {
    HEARTH_RETURN_IF_ERROR(file.status());
    files_.push_back(*std::move(file));
    return absl::OkStatus();
  }

  absl::Status Advance(std::string_view stage, uint64_t done_bytes, uint64_t total_bytes) {
    if (options_.is_cancelled && options_.is_cancelled()) {
      return absl::CancelledError(absl::StrCat(options_.out, ": the build was interrupted"));
    }
    if (progress_) {
      progress_(
          {.stage = std::string(stage), .done_bytes = done_bytes, .total_bytes = total_bytes});
    }
    return absl::OkStatus();
  }

  absl::Status WriteTensors(const std::string& name, std::string_view stage,
                            const std::vector<TensorInfo>& infos) {
    HEARTH_ASSIGN_OR_RETURN(TensorFileWriter writer, TensorFileWriter::Create(dir_, name, infos));
    std::vector<SyntheticTensor> tensors;
    uint64_t total_bytes = 0;
    for (const TensorInfo& info : writer.tensors()) {
      tensors.emplace_back(plan_.geometry, info, options_.seed);
      total_bytes += info.bytes;
    }
    const std::vector<SyntheticRange> ranges = SyntheticRanges(infos);
    uint64_t done_bytes = 0;
    const auto make = [&](uint64_t i, std::vector<std::byte>& bytes) {
      tensors[ranges[i].tensor].Fill(ranges[i], bytes);
      return absl::OkStatus();
    };
    const auto take = [&](uint64_t i, std::vector<std::byte>& bytes) {
      HEARTH_RETURN_IF_ERROR(writer.Append(ranges[i].tensor, bytes));
      done_bytes += bytes.size();
      return Advance(stage, done_bytes, total_bytes);
    };
    HEARTH_RETURN_IF_ERROR(ForEachInOrder<std::vector<std::byte>>(
        team_, ranges.size(), BatchCount(team_, kSyntheticRangeBytes), make, take));
    return Keep(writer.Finish());
  }

  absl::Status WriteExperts() {
    const uint32_t expert_count = plan_.geometry.moe.expert_count;
    HEARTH_ASSIGN_OR_RETURN(
        ExpertFileWriter writer,
        ExpertFileWriter::Create(dir_, "experts.bin", plan_.layouts, expert_count));
    if (options_.zero_experts) {
      HEARTH_RETURN_IF_ERROR(WriteHoles(writer));
      return Keep(writer.Finish());
    }
    struct Blob {
      std::vector<std::byte> bytes;
      uint32_t crc32c = 0;
    };
    uint64_t blob_bytes_max = 0;
    uint64_t total_bytes = 0;
    for (const ExpertLayout& layout : plan_.layouts) {
      blob_bytes_max = std::max(blob_bytes_max, layout.blob_bytes());
      total_bytes += layout.stride_bytes() * expert_count;
    }
    const auto make = [&](uint64_t i, Blob& blob) {
      const ExpertKey key{LayerId(static_cast<uint32_t>(i / expert_count)),
                          ExpertId(static_cast<uint32_t>(i % expert_count))};
      const ExpertLayout& layout = plan_.layouts[key.layer.value];
      blob.bytes.resize(layout.blob_bytes());
      FillSyntheticExpert(layout, key, options_.seed, blob.bytes);
      blob.crc32c = Crc32c(blob.bytes);
      return absl::OkStatus();
    };
    uint64_t done_bytes = 0;
    const auto take = [&](uint64_t i, Blob& blob) {
      HEARTH_RETURN_IF_ERROR(writer.Append(blob.bytes, blob.crc32c));
      done_bytes += plan_.layouts[i / expert_count].stride_bytes();
      return Advance("experts", done_bytes, total_bytes);
    };
    HEARTH_RETURN_IF_ERROR(ForEachInOrder<Blob>(team_,
                                                uint64_t{expert_count} * plan_.layouts.size(),
                                                BatchCount(team_, blob_bytes_max), make, take));
    return Keep(writer.Finish());
  }

  absl::Status WriteHoles(ExpertFileWriter& writer) {
    const uint32_t expert_count = plan_.geometry.moe.expert_count;
    for (const ExpertLayout& layout : plan_.layouts) {
      const uint32_t crc32c = Crc32c(std::vector<std::byte>(layout.blob_bytes()));
      for (uint32_t e = 0; e < expert_count; ++e) {
        HEARTH_RETURN_IF_ERROR(writer.AppendHole(crc32c));
      }
    }
    return absl::OkStatus();
  }

  absl::Status WriteNgram() {
    const NgramGeometry& n = plan_.geometry.ngram;
    HEARTH_ASSIGN_OR_RETURN(const uint64_t row_bytes, NgramRowBytes(kNgramFormat, n.row_dim));
    HEARTH_ASSIGN_OR_RETURN(NgramFileWriter writer,
                            NgramFileWriter::Create(dir_, "ngram.bin",
                                                    {.format = kNgramFormat,
                                                     .row_count = n.row_count,
                                                     .row_dim = n.row_dim,
                                                     .scale = kNgramScale}));
    const uint64_t stream = RandomStream(options_.seed, "n-gram table");
    // Items begin on a multiple of eight rows, so on a whole word.
    const uint64_t rows_per_item = std::max<uint64_t>(1, kNgramChunkBytes / row_bytes / 8) * 8;
    const uint64_t total_bytes = n.row_count * row_bytes;
    const auto make = [&](uint64_t i, std::vector<std::byte>& rows) {
      const uint64_t begin = i * rows_per_item;
      rows.resize(std::min(rows_per_item, n.row_count - begin) * row_bytes);
      FillRandomWords(stream, begin * row_bytes, rows,
                      [](uint64_t word) { return word & EveryByte(0xBF); });  // no NaN
      return absl::OkStatus();
    };
    uint64_t done_bytes = 0;
    const auto take = [&](uint64_t, std::vector<std::byte>& rows) {
      HEARTH_RETURN_IF_ERROR(writer.Append(rows));
      done_bytes += rows.size();
      return Advance("n-gram table", done_bytes, total_bytes);
    };
    HEARTH_RETURN_IF_ERROR(ForEachInOrder<std::vector<std::byte>>(
        team_, (n.row_count + rows_per_item - 1) / rows_per_item,
        BatchCount(team_, rows_per_item * row_bytes), make, take));
    return Keep(writer.Finish());
  }

  const Plan& plan_;
  const SyntheticPackOptions& options_;
  const BuildProgressFn& progress_;
  const std::string& dir_;
  WorkerTeam& team_;
  std::vector<PackFile> files_;
};

std::string HashOf(std::span<const PackFile> files, std::string_view name) {
  const auto it = std::find_if(files.begin(), files.end(),
                               [name](const PackFile& file) { return file.name == name; });
  return it == files.end() ? std::string() : it->xxh3_128;
}

// What profiles and traces know the model by.
std::string HashOfAll(std::span<const PackFile> files) {
  std::string text;
  for (const PackFile& file : files) absl::StrAppend(&text, file.name, " ", file.xxh3_128, "\n");
  return ContentHashHex(text);
}

}  // namespace

absl::StatusOr<SyntheticPackReport> BuildSyntheticPack(const SyntheticPackOptions& options,
                                                       const BuildProgressFn& progress) {
  HEARTH_ASSIGN_OR_RETURN(const Plan plan, MakePlan(options.shape));
  HEARTH_ASSIGN_OR_RETURN(PackDirectory dir, PackDirectory::Create(options.out, options.if_exists));
  const uint64_t hole_bytes = options.zero_experts ? plan.experts_bytes : 0;
  HEARTH_RETURN_IF_ERROR(dir.CheckRoom(plan.pack_bytes() - hole_bytes + kManifestRoomBytes));
  const uint32_t hardware = std::max(1u, std::thread::hardware_concurrency());
  WorkerTeam team(
      std::min(options.worker_count == 0 ? hardware : options.worker_count, kWorkersMax));
  Builder builder(plan, options, progress, dir.path(), team);
  HEARTH_RETURN_IF_ERROR(builder.Run());

  const uint64_t expert_stride_bytes = plan.layouts[0].stride_bytes();
  SyntheticPackReport report = {
      .geometry = plan.geometry,
      .expert_layout = ExpertLayoutName(plan.layouts[0]),
      .blob_bytes = plan.layouts[0].blob_bytes(),
      .experts_bytes =
          expert_stride_bytes * plan.geometry.moe.expert_count * plan.geometry.layer_count(),
      .dense_bytes = plan.dense_bytes,
      .pack_bytes = plan.pack_bytes(),
      .files = builder.TakeFiles()};
  Manifest manifest;
  manifest.geometry = plan.geometry;
  manifest.files = report.files;
  manifest.source_dialect = "synthetic";
  manifest.source_xxh3_128 = HashOfAll(report.files);
  manifest.tokenizer_xxh3_128 = HashOf(report.files, "tokenizer.json");
  manifest.dense = "q8_0";
  manifest.experts = report.expert_layout;
  manifest.made_by = absl::StrCat(options.made_by, "; made-up weights, like ",
                                  SyntheticModelName(options.shape.model), ", seed ", options.seed);
  HEARTH_RETURN_IF_ERROR(dir.Commit(manifest));
  return report;
}

}  // namespace hearth
