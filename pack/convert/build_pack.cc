#include "pack/convert/build_pack.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <thread>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "pack/convert/dense_chunks.h"
#include "pack/convert/ordered_batches.h"
#include "pack/format/content_hash.h"
#include "pack/format/float_codes.h"
#include "pack/writer/container_writers.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"
#include "runtime/base/worker_team.h"

namespace hearth {
namespace {

constexpr uint32_t kWorkersMax = 32;
constexpr uint64_t kNgramChunkBytes = 4_MiB;
constexpr std::array<std::string_view, 4> kTextNames = {
    "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"};

// One build under way.
class Builder {
 public:
  Builder(const Checkpoint& checkpoint, const BuildOptions& options,
          const BuildProgressFn& progress, const std::string& dir, WorkerTeam& team)
      : checkpoint_(checkpoint), options_(options), progress_(progress), dir_(dir), team_(team) {}

  absl::StatusOr<BuildReport> Run(Manifest& manifest) {
    const std::span<const DenseInfo> all = checkpoint_.dense();
    const auto mtp = std::find_if(all.begin(), all.end(), [](const DenseInfo& info) {
      return info.name.starts_with("mtp.");
    });
    const auto trunk_count = static_cast<size_t>(mtp - all.begin());
    HEARTH_RETURN_IF_ERROR(WriteDense("dense.bin", "dense weights", all.first(trunk_count)));
    if (checkpoint_.geometry().has_mtp) {
      HEARTH_RETURN_IF_ERROR(WriteDense("mtp.bin", "MTP head", all.subspan(trunk_count)));
    }
    HEARTH_RETURN_IF_ERROR(WriteAllExperts());
    if (checkpoint_.ngram().row_count > 0) HEARTH_RETURN_IF_ERROR(WriteNgram());
    HEARTH_RETURN_IF_ERROR(WriteTexts(manifest));
    const auto hash_progress = [this](uint64_t done_bytes, uint64_t total_bytes) {
      Report("source hash", done_bytes, total_bytes);
    };
    HEARTH_ASSIGN_OR_RETURN(manifest.source_xxh3_128, checkpoint_.ContentHash(hash_progress));

    std::sort(report_.files.begin(), report_.files.end(),
              [](const PackFile& a, const PackFile& b) { return a.name < b.name; });
    for (const PackFile& file : report_.files) report_.pack_bytes += file.bytes;
    manifest.geometry = checkpoint_.geometry();
    manifest.files = report_.files;
    manifest.source_dialect = checkpoint_.dialect();
    manifest.dense = options_.dense == DenseChoice::kQ8 ? "q8_0" : "bf16";
    manifest.experts = report_.expert_layout;
    manifest.made_by = options_.made_by;
    if (report_.expert_format == ExpertFormat::kXt) {
      absl::StrAppend(&manifest.made_by, "; experts ", manifest.experts, " from ",
                      ExpertFormatName(report_.source_format), " without feedback");
    }
    return std::move(report_);
  }

 private:
  void Report(std::string_view stage, uint64_t done_bytes, uint64_t total_bytes) {
    if (!progress_) return;
    progress_({.stage = std::string(stage), .done_bytes = done_bytes, .total_bytes = total_bytes});
  }

  absl::Status WriteDense(const std::string& file_name, std::string_view stage,
                          std::span<const DenseInfo> infos) {
    HEARTH_ASSIGN_OR_RETURN(const DensePlan plan,
                            PlanDense(infos, options_.dense == DenseChoice::kQ8));
    HEARTH_ASSIGN_OR_RETURN(TensorFileWriter writer,
                            TensorFileWriter::Create(dir_, file_name, plan.tensors));
    uint64_t total_bytes = 0;
    for (const TensorInfo& t : writer.tensors()) total_bytes += t.bytes;
    uint64_t done_bytes = 0;
    const auto make = [&](uint64_t i, DenseChunk& chunk) {
      return EncodeDenseChunk(checkpoint_, plan, plan.ranges[i], chunk);
    };
    const auto take = [&](uint64_t i, DenseChunk& chunk) -> absl::Status {
      HEARTH_RETURN_IF_ERROR(writer.Append(plan.ranges[i].tensor, chunk.bytes));
      done_bytes += chunk.bytes.size();
      report_.dense_values += chunk.values.size();
      report_.dense_inexact_values += chunk.inexact_values;
      if (plan.tensors[plan.ranges[i].tensor].format == MatrixFormat::kQ8) {
        report_.dense_q8_values += chunk.values.size();
      }
      Report(stage, done_bytes, total_bytes);
      return absl::OkStatus();
    };
    HEARTH_RETURN_IF_ERROR(ForEachInOrder<DenseChunk>(
        team_, plan.ranges.size(), BatchCount(team_, plan.chunk_bytes_max), make, take));
    return FinishFile(writer);
  }

  absl::Status WriteAllExperts() {
    const ModelGeometry& g = checkpoint_.geometry();
    ExpertWritePlan plan = {
        .dir = dir_,
        .expert_count = g.moe.expert_count,
        .read = [this](ExpertKey key,
                       SourceExpert& into) { return checkpoint_.ReadExpert(key, into); },
        .progress = progress_};
    for (uint32_t layer = 0; layer < g.layer_count_with_mtp(); ++layer) {
      const bool is_mtp = layer >= g.layer_count();
      auto layout =
          LayoutFor(is_mtp ? ExpertTarget{} : options_.experts,
                    checkpoint_.expert_format(LayerId(layer)), g.hidden, g.moe.expert_width);
      if (!layout.ok()) return Annotate(layout.status(), absl::StrCat("layer ", layer));
      plan.layouts.push_back(*layout);
    }
    report_.source_format = checkpoint_.expert_format(LayerId(0));
    report_.expert_format = plan.layouts[0].format;
    report_.expert_layout = ExpertLayoutName(plan.layouts[0]);
    HEARTH_ASSIGN_OR_RETURN(ExpertWriteResult written, WriteExperts(plan, team_));
    report_.experts = written.stats;
    report_.files.push_back(std::move(written.file));
    return absl::OkStatus();
  }

  absl::Status WriteNgram() {
    const NgramSource& source = checkpoint_.ngram();
    HEARTH_ASSIGN_OR_RETURN(const uint64_t row_bytes, NgramRowBytes(source.format, source.row_dim));
    if (row_bytes != source.row_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("n-gram table: rows of ", source.row_bytes, " bytes, expected ", row_bytes,
                       " for ", source.row_dim, " values in ", NgramRowFormatName(source.format)));
    }
    HEARTH_ASSIGN_OR_RETURN(NgramFileWriter writer,
                            NgramFileWriter::Create(dir_, "ngram.bin",
                                                    {.format = source.format,
                                                     .row_count = source.row_count,
                                                     .row_dim = source.row_dim,
                                                     .scale = source.scale}));
    const uint64_t rows_per_item = std::max<uint64_t>(1, kNgramChunkBytes / row_bytes);
    const uint64_t item_count = (source.row_count + rows_per_item - 1) / rows_per_item;
    const auto make = [&](uint64_t i, std::vector<std::byte>& rows) -> absl::Status {
      const uint64_t begin = i * rows_per_item;
      const uint64_t count = std::min(rows_per_item, source.row_count - begin);
      rows.resize(count * row_bytes);
      HEARTH_RETURN_IF_ERROR(checkpoint_.ReadNgramRows(begin, count, rows));
      return CheckRowNumbers(source, begin, rows);
    };
    uint64_t done_bytes = 0;
    const auto take = [&](uint64_t, std::vector<std::byte>& rows) -> absl::Status {
      HEARTH_RETURN_IF_ERROR(writer.Append(rows));
      done_bytes += rows.size();
      Report("n-gram table", done_bytes, source.row_count * row_bytes);
      return absl::OkStatus();
    };
    HEARTH_RETURN_IF_ERROR(ForEachInOrder<std::vector<std::byte>>(
        team_, item_count, BatchCount(team_, kNgramChunkBytes), make, take));
    return FinishFile(writer);
  }

  // FP8 codes and NVFP4 scales that are not numbers, named by row.
  static absl::Status CheckRowNumbers(const NgramSource& source, uint64_t row_begin,
                                      std::span<const std::byte> rows) {
    uint64_t first = source.row_bytes;  // of the bytes of a row that are E4M3 codes
    if (source.format == NgramRowFormat::kFp8) first = 0;
    if (source.format == NgramRowFormat::kNvfp4) first = source.row_dim / 2;
    for (uint64_t start = 0; start < rows.size(); start += source.row_bytes) {
      for (uint64_t i = first; i < source.row_bytes; ++i) {
        const auto code = std::to_integer<uint8_t>(rows[start + i]);
        const bool negative = source.format == NgramRowFormat::kNvfp4 && (code & 0x80) != 0;
        if (!IsE4m3Nan(code) && !negative) continue;
        return absl::DataLossError(absl::StrCat("n-gram table: row ",
                                                row_begin + start / source.row_bytes, ": code ",
                                                code, " is negative or not a number"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status WriteTexts(Manifest& manifest) {
    for (const std::string_view name : kTextNames) {
      const absl::StatusOr<std::string> text = checkpoint_.ReadText(name);
      if (absl::IsNotFound(text.status())) continue;
      HEARTH_RETURN_IF_ERROR(text.status());
      HEARTH_ASSIGN_OR_RETURN(HashedFile file, HashedFile::Create(dir_, std::string(name)));
      HEARTH_RETURN_IF_ERROR(file.Append(std::as_bytes(std::span(*text))));
      HEARTH_RETURN_IF_ERROR(FinishFile(file));
      if (name == "tokenizer.json") manifest.tokenizer_xxh3_128 = report_.files.back().xxh3_128;
    }
    return absl::OkStatus();
  }

  template <class Writer>
  absl::Status FinishFile(Writer& writer) {
    HEARTH_ASSIGN_OR_RETURN(PackFile file, writer.Finish());
    report_.files.push_back(std::move(file));
    return absl::OkStatus();
  }

  const Checkpoint& checkpoint_;
  const BuildOptions& options_;
  const BuildProgressFn& progress_;
  const std::string& dir_;
  WorkerTeam& team_;
  BuildReport report_;
};

}  // namespace

absl::StatusOr<BuildReport> BuildPack(const Checkpoint& checkpoint, const BuildOptions& options,
                                      const BuildProgressFn& progress) {
  if (absl::Status status = checkpoint.geometry().Validate(); !status.ok()) {
    return Annotate(status, "geometry");
  }
  HEARTH_ASSIGN_OR_RETURN(PackDirectory dir, PackDirectory::Create(options.out, options.if_exists));
  const uint32_t hardware = std::max(1u, std::thread::hardware_concurrency());
  WorkerTeam team(
      std::min(options.worker_count == 0 ? hardware : options.worker_count, kWorkersMax));
  Manifest manifest;
  Builder builder(checkpoint, options, progress, dir.path(), team);
  HEARTH_ASSIGN_OR_RETURN(BuildReport report, builder.Run(manifest));
  HEARTH_RETURN_IF_ERROR(dir.Commit(manifest));
  return report;
}

}  // namespace hearth
