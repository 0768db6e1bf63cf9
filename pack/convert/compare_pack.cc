#include "pack/convert/compare_pack.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"

#include "pack/convert/dense_chunks.h"
#include "pack/convert/expert_repack.h"
#include "pack/convert/ordered_batches.h"
#include "pack/quant/expert_bands.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kWorkersMax = 32;
constexpr uint64_t kNgramChunkBytes = 4_MiB;
// Root mean square error of XT weights, in units of 2^-bits of theirs: three times what a good
// encoder leaves, which errors fed back and short streams stay below.
constexpr double kXtRelativeErrorMax = 3.0;

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

// The first part of the matrix that differs, null when all bits are equal.
const char* DifferenceOf(const SourceMatrix& a, const SourceMatrix& b) {
  if (a.rows != b.rows || a.cols != b.cols) return "shape";
  if (a.codes != b.codes) return "codes";
  if (a.scales != b.scales) return "block scales";
  if (std::bit_cast<uint32_t>(a.multiplier) != std::bit_cast<uint32_t>(b.multiplier)) {
    return "multiplier";
  }
  if (!SameBits(a.block_scales, b.block_scales)) return "block scales";
  if (!SameBits(a.values, b.values)) return "values";
  return nullptr;
}

// Only what the format uses: a reader may leave other vectors of a reused matrix as they were.
void KeepFormatFields(SourceMatrix& m, ExpertFormat format) {
  if (format != ExpertFormat::kNvfp4) {
    m.scales.clear();
    m.multiplier = 1;
  }
  if (format != ExpertFormat::kFp8) m.block_scales.clear();
  if (format != ExpertFormat::kNvfp4 && format != ExpertFormat::kFp8) m.codes.clear();
  if (format != ExpertFormat::kBf16 && format != ExpertFormat::kF32) m.values.clear();
}

std::string ExpertDifference(SourceExpert& source, SourceExpert& packed) {
  const struct {
    const char* name;
    SourceMatrix& source;
    SourceMatrix& packed;
  } parts[] = {{"gate", source.gate, packed.gate},
               {"up", source.up, packed.up},
               {"down", source.down, packed.down}};
  for (const auto& part : parts) {
    KeepFormatFields(part.source, source.format);
    KeepFormatFields(part.packed, source.format);
    if (const char* what = DifferenceOf(part.source, part.packed); what != nullptr) {
      return absl::StrCat(part.name, ": ", what, " differ");
    }
  }
  return "";
}

class Comparer {
 public:
  Comparer(const Pack& pack, const Checkpoint& checkpoint, const BuildProgressFn& progress,
           WorkerTeam& team)
      : pack_(pack), checkpoint_(checkpoint), progress_(progress), team_(team) {}

  absl::StatusOr<CompareReport> Run() {
    HEARTH_RETURN_IF_ERROR(CheckGeometry());
    HEARTH_RETURN_IF_ERROR(CompareExperts());
    const auto is_mtp = [](const DenseInfo& info) { return info.name.starts_with("mtp."); };
    const std::span<const DenseInfo> all = checkpoint_.dense();
    const auto trunk =
        static_cast<size_t>(std::find_if(all.begin(), all.end(), is_mtp) - all.begin());
    HEARTH_RETURN_IF_ERROR(CompareDense(pack_.dense, "dense weights", all.first(trunk)));
    if (pack_.mtp != nullptr) {
      HEARTH_RETURN_IF_ERROR(CompareDense(*pack_.mtp, "MTP head", all.subspan(trunk)));
    }
    if (pack_.ngram != nullptr) HEARTH_RETURN_IF_ERROR(CompareNgram());
    return std::move(report_);
  }

 private:
  void Report(std::string_view stage, uint64_t done_bytes, uint64_t total_bytes) {
    if (!progress_) return;
    progress_({.stage = std::string(stage), .done_bytes = done_bytes, .total_bytes = total_bytes});
  }

  void AddDifference(const std::string& what) {
    ++report_.difference_count;
    if (report_.differences.size() < kDifferencesMax) report_.differences.push_back(what);
  }

  absl::Status CheckGeometry() const {
    Manifest ours;
    Manifest theirs;
    ours.geometry = pack_.manifest.geometry;
    theirs.geometry = checkpoint_.geometry();
    if (ours.ToJson() == theirs.ToJson()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(pack_.dir, ": is a pack of another model: the geometries differ"));
  }

  struct ExpertItem {
    SourceExpert source;
    SourceExpert unpacked;
    std::vector<std::byte> blob;
    std::vector<std::byte> encoded;
    std::string difference;
  };

  absl::Status CompareOneExpert(ExpertKey key, ExpertItem& item) const {
    const ExpertLayout& layout = pack_.experts.layout(key.layer);
    item.blob.resize(layout.blob_bytes());
    item.difference.clear();
    HEARTH_RETURN_IF_ERROR(pack_.experts.Read(key, item.blob));
    HEARTH_RETURN_IF_ERROR(checkpoint_.ReadExpert(key, item.source));
    if (item.source.format == layout.format) {
      UnpackExpert(layout, item.blob, item.unpacked);
      item.difference = ExpertDifference(item.source, item.unpacked);
      return absl::OkStatus();
    }
    if (layout.format == ExpertFormat::kXt && CanEncodeXt(item.source.format)) {
      return CompareXt(layout, item);
    }
    if (!CanRepack(item.source.format, layout.format)) {
      item.difference = absl::StrCat("is ", ExpertFormatName(layout.format), ", the source ",
                                     ExpertFormatName(item.source.format));
      return absl::OkStatus();
    }
    RepackStats stats;
    item.encoded.resize(item.blob.size());
    HEARTH_RETURN_IF_ERROR(PackExpert(layout, item.source, item.encoded, stats));
    if (item.encoded != item.blob) item.difference = "encoding the source gives other bytes";
    return absl::OkStatus();
  }

  // What error feedback made of an expert cannot be made again without the inputs that it saw, so
  // the decoded weights are held against the source's.
  static absl::Status CompareXt(const ExpertLayout& layout, ExpertItem& item) {
    DecodeExpertValues(layout, item.blob, item.unpacked);
    HEARTH_RETURN_IF_ERROR(DecodeSourceExpert(layout, item.source));
    const struct {
      const char* name;
      Projection projection;
      const SourceMatrix& source;
      const SourceMatrix& packed;
    } parts[] = {{"gate", Projection::kGate, item.source.gate, item.unpacked.gate},
                 {"up", Projection::kUp, item.source.up, item.unpacked.up},
                 {"down", Projection::kDown, item.source.down, item.unpacked.down}};
    for (const auto& part : parts) {
      double error = 0;
      double power = 0;
      for (size_t i = 0; i < part.source.values.size(); ++i) {
        const double difference = double{part.source.values[i]} - part.packed.values[i];
        error += difference * difference;
        power += double{part.source.values[i]} * part.source.values[i];
      }
      const double bound =
          kXtRelativeErrorMax * std::ldexp(1.0, -int(layout.xt_bits.of(part.projection)));
      if (!(error <= bound * bound * power)) {
        item.difference =
            absl::StrCat(part.name, ": decoded weights are off by ", std::sqrt(error / power),
                         " of their RMS, expected at most ", bound);
        return absl::OkStatus();
      }
    }
    return absl::OkStatus();
  }

  absl::Status CompareExperts() {
    const uint32_t experts = pack_.experts.expert_count();
    const auto key_of = [experts](uint64_t i) {
      return ExpertKey{LayerId(static_cast<uint32_t>(i / experts)),
                       ExpertId(static_cast<uint32_t>(i % experts))};
    };
    uint64_t total_bytes = 0;
    uint64_t item_bytes = 0;
    for (uint32_t layer = 0; layer < pack_.experts.layer_count(); ++layer) {
      const ExpertLayout& layout = pack_.experts.layout(LayerId(layer));
      total_bytes += layout.blob_bytes() * experts;
      const uint64_t values = uint64_t{layout.hidden} * layout.width * 3;
      item_bytes = std::max(item_bytes, 2 * layout.blob_bytes() + values * 8);
    }
    uint64_t done_bytes = 0;
    return ForEachInOrder<ExpertItem>(
        team_, uint64_t{experts} * pack_.experts.layer_count(), BatchCount(team_, item_bytes),
        [&](uint64_t i, ExpertItem& item) { return CompareOneExpert(key_of(i), item); },
        [&](uint64_t i, ExpertItem& item) -> absl::Status {
          const ExpertKey key = key_of(i);
          const ExpertLayout& layout = pack_.experts.layout(key.layer);
          if (!item.difference.empty()) {
            AddDifference(absl::StrCat("layer ", key.layer.value, " expert ", key.expert.value,
                                       ": ", item.difference));
          } else if (item.source.format == layout.format) {
            ++report_.experts_equal;
          } else if (layout.format == ExpertFormat::kXt) {
            ++report_.experts_near;
          } else {
            ++report_.experts_reencoded;
          }
          done_bytes += layout.blob_bytes();
          Report("experts", done_bytes, total_bytes);
          return absl::OkStatus();
        });
  }

  struct DenseItem {
    DenseChunk chunk;
    std::vector<std::byte> stored;
  };

  absl::Status CompareDense(const TensorFile& file, std::string_view stage,
                            std::span<const DenseInfo> infos) {
    HEARTH_ASSIGN_OR_RETURN(DensePlan plan, PlanDense(infos, pack_.manifest.dense == "q8_0"));
    PlaceTensors(plan.tensors);
    struct Outcome {
      bool equal = true;
      bool exact = true;
    };
    std::vector<Outcome> outcomes(plan.tensors.size());
    std::vector<uint64_t> done_rows_bytes(plan.ranges.size());  // before each range, in its tensor
    uint64_t total_bytes = 0;
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      const TensorInfo& want = plan.tensors[i];
      const TensorInfo* found = file.Find(want.name);
      outcomes[i].equal = found != nullptr && found->format == want.format &&
                          found->rows == want.rows && found->cols == want.cols;
      total_bytes += want.bytes;
    }
    for (size_t r = 1; r < plan.ranges.size(); ++r) {
      const DenseRange& before = plan.ranges[r - 1];
      const TensorInfo& t = plan.tensors[before.tensor];
      if (plan.ranges[r].tensor != before.tensor) continue;
      done_rows_bytes[r] = done_rows_bytes[r - 1] +
                           MatrixBytes(t.format, static_cast<uint32_t>(before.row_count), t.cols);
    }
    const auto make = [&](uint64_t r, DenseItem& item) -> absl::Status {
      const DenseRange& range = plan.ranges[r];
      item.stored.clear();
      HEARTH_RETURN_IF_ERROR(EncodeDenseChunk(checkpoint_, plan, range, item.chunk));
      if (!outcomes[range.tensor].equal) return absl::OkStatus();
      item.stored.resize(item.chunk.bytes.size());
      const TensorInfo* found = file.Find(plan.tensors[range.tensor].name);
      return file.file().ReadAt(found->offset_bytes + done_rows_bytes[r], item.stored);
    };
    uint64_t done_bytes = 0;
    std::vector<bool> differs(plan.tensors.size(), false);
    const auto take = [&](uint64_t r, DenseItem& item) -> absl::Status {
      const uint32_t tensor = plan.ranges[r].tensor;
      if (item.stored != item.chunk.bytes) differs[tensor] = true;
      if (plan.tensors[tensor].format == MatrixFormat::kQ8 || item.chunk.inexact_values > 0) {
        outcomes[tensor].exact = false;
      }
      done_bytes += item.chunk.bytes.size();
      Report(stage, done_bytes, total_bytes);
      return absl::OkStatus();
    };
    HEARTH_RETURN_IF_ERROR(ForEachInOrder<DenseItem>(
        team_, plan.ranges.size(), BatchCount(team_, plan.chunk_bytes_max * 2), make, take));
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      if (differs[i] || !outcomes[i].equal) {
        AddDifference(absl::StrCat("tensor ", plan.tensors[i].name, ": ",
                                   outcomes[i].equal ? "encoding the source gives other bytes"
                                                     : "has another format or shape"));
      } else {
        ++(outcomes[i].exact ? report_.tensors_exact : report_.tensors_encoded);
      }
    }
    return absl::OkStatus();
  }

  struct NgramItem {
    std::vector<std::byte> source;
    std::vector<std::byte> stored;
  };

  absl::Status CompareNgram() {
    const NgramFile& table = *pack_.ngram;
    const NgramSource& source = checkpoint_.ngram();
    if (table.format() != source.format || table.row_bytes() != source.row_bytes ||
        std::bit_cast<uint32_t>(table.scale()) != std::bit_cast<uint32_t>(source.scale)) {
      AddDifference("n-gram table: has another format or scale");
      return absl::OkStatus();
    }
    const uint64_t rows_per_item = std::max<uint64_t>(1, kNgramChunkBytes / table.row_bytes());
    const auto count_of = [&](uint64_t i) {
      return std::min(rows_per_item, table.row_count() - i * rows_per_item);
    };
    const auto make = [&](uint64_t i, NgramItem& item) -> absl::Status {
      item.source.resize(count_of(i) * table.row_bytes());
      item.stored.resize(item.source.size());
      HEARTH_RETURN_IF_ERROR(
          checkpoint_.ReadNgramRows(i * rows_per_item, count_of(i), item.source));
      return table.ReadRowBytes(i * rows_per_item, count_of(i), item.stored);
    };
    const auto take = [&](uint64_t i, NgramItem& item) -> absl::Status {
      const uint64_t begin = i * rows_per_item;
      for (uint64_t row = 0; row < count_of(i); ++row) {
        const auto row_of = [&](const std::vector<std::byte>& rows) {
          return rows.data() + row * table.row_bytes();
        };
        if (std::memcmp(row_of(item.source), row_of(item.stored), table.row_bytes()) == 0) {
          ++report_.ngram_rows_equal;
        } else {
          AddDifference(absl::StrCat("n-gram table: row ", begin + row, " differs"));
        }
      }
      Report("n-gram table", (begin + count_of(i)) * table.row_bytes(),
             table.row_count() * table.row_bytes());
      return absl::OkStatus();
    };
    const uint64_t item_count = (table.row_count() + rows_per_item - 1) / rows_per_item;
    return ForEachInOrder<NgramItem>(team_, item_count, BatchCount(team_, 2 * kNgramChunkBytes),
                                     make, take);
  }

  const Pack& pack_;
  const Checkpoint& checkpoint_;
  const BuildProgressFn& progress_;
  WorkerTeam& team_;
  CompareReport report_;
};

}  // namespace

absl::StatusOr<CompareReport> ComparePack(const Pack& pack, const Checkpoint& checkpoint,
                                          const BuildProgressFn& progress, uint32_t worker_count) {
  const uint32_t hardware = std::max(1u, std::thread::hardware_concurrency());
  WorkerTeam team(std::min(worker_count == 0 ? hardware : worker_count, kWorkersMax));
  return Comparer(pack, checkpoint, progress, team).Run();
}

}  // namespace hearth
