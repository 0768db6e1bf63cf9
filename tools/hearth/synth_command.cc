// hearth pack synth: a runnable pack of a chosen shape with made-up weights.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "pack/synth/build_synthetic.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/interrupt_watch.h"
#include "tools/hearth/stage_progress.h"
#include "tools/hearth/synthetic_choice.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

struct PackSynthConfig {
  std::string out;
  SyntheticModel like = SyntheticModel::kSmall;
  uint32_t layers = 0;
  uint32_t experts = 0;
  uint64_t experts_bytes = 0;
  uint32_t top_k = 0;
  uint32_t hidden = 0;
  uint32_t width = 0;
  SynthFormat format = SynthFormat::kNvfp4;
  uint64_t ngram_rows = kNgramHeadRows;
  bool mtp = false;
  uint64_t seed = 1;
  bool force = false;
  uint32_t workers = 0;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("out", out, "folder of the pack; it appears when the pack is complete", {.metavar = "DIR"});
    v("like", like, "shape to start from");
    v("layers", layers, "layers, every fourth QSA; 0: as the model",
      {.minimum = 0, .maximum = 1024});
    v("experts", experts, "experts in each layer; 0: as the model",
      {.minimum = 0, .maximum = 16384});
    v("experts_bytes", experts_bytes, "or: about what all experts take together, 0B = not said");
    v("top_k", top_k, "experts for each token; 0: as the model", {.minimum = 0, .maximum = 256});
    v("hidden", hidden, "values of a token; 0: as the model", {.minimum = 0, .maximum = 1 << 20});
    v("width", width, "values inside an expert; 0: as the model",
      {.minimum = 0, .maximum = 1 << 18});
    v("format", format, "of the experts");
    v("ngram_rows", ngram_rows, "rows of each head of the n-gram table, about",
      {.minimum = 1, .maximum = 4294967295.0});
    v("mtp", mtp, "with the MTP head, where the model has one");
    v("seed", seed, "of the weights: the same flags and seed give the same bytes");
    v("force", force, "replace a pack that is there already");
    v("workers", workers, "threads; 0: one per processor", {.minimum = 0, .maximum = 32});
  }
  absl::Status Validate(const GivenFields&) const {
    if (out.empty()) return absl::InvalidArgumentError("out: is required");
    return MakeSyntheticGeometry(Shape()).status();
  }
  SyntheticShape Shape() const {
    SyntheticShape shape = {.model = like,
                            .layer_count = layers,
                            .expert_count = experts,
                            .experts_per_token = top_k,
                            .hidden = hidden,
                            .expert_width = width,
                            .experts_bytes = experts_bytes,
                            .ngram_head_rows = ngram_rows,
                            .has_mtp = mtp};
    SetFormat(format, shape);
    return shape;
  }
};

std::string SynthText(const PackSynthConfig& config, const SyntheticPackReport& r, double seconds) {
  const ModelGeometry& g = r.geometry;
  return absl::StrCat(
      config.out, ": ", FormatBytes(r.pack_bytes), " in ", absl::StrFormat("%.1f s", seconds), ", ",
      FormatBytes(static_cast<uint64_t>(static_cast<double>(r.pack_bytes) / seconds)), "/s\n  ",
      g.layer_count(), " layers of ", g.moe.expert_count, " experts (", r.expert_layout, ", ",
      r.blob_bytes, " bytes each), top ", g.moe.experts_per_token, ", hidden ", g.hidden,
      ", width ", g.moe.expert_width, "\n  experts ", FormatBytes(r.experts_bytes), ", dense ",
      FormatBytes(r.dense_bytes), "; the weights are made up: it runs, and says nothing\n");
}

std::string SynthJson(const PackSynthConfig& config, const SyntheticPackReport& r, double seconds) {
  Json files = Json::array();
  for (const PackFile& file : r.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}});
  }
  const ModelGeometry& g = r.geometry;
  const Json json = {{"out", config.out},
                     {"pack_bytes", r.pack_bytes},
                     {"experts_bytes", r.experts_bytes},
                     {"dense_bytes", r.dense_bytes},
                     {"expert_bytes", r.blob_bytes},
                     {"expert_format", r.expert_layout},
                     {"layers", g.layer_count()},
                     {"experts", g.moe.expert_count},
                     {"top_k", g.moe.experts_per_token},
                     {"hidden", g.hidden},
                     {"width", g.moe.expert_width},
                     {"seed", config.seed},
                     {"seconds", seconds},
                     {"bytes_per_sec", static_cast<double>(r.pack_bytes) / seconds},
                     {"files", files}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

absl::Status RunPackSynth(const PackSynthConfig& config, const CommandIo& io) {
  const int64_t start_ns = io.clock.NowNs();
  HEARTH_ASSIGN_OR_RETURN(InterruptWatch interrupts, InterruptWatch::Create());
  absl::StatusOr<SyntheticPackReport> report = absl::UnknownError("not run");
  {
    StageProgress progress(io);
    report =
        BuildSyntheticPack({.out = config.out,
                            .shape = config.Shape(),
                            .seed = config.seed,
                            .if_exists = config.force ? IfExists::kReplacePack : IfExists::kRefuse,
                            .worker_count = config.workers,
                            .made_by = "hearth " HEARTH_VERSION,
                            .is_cancelled = [&interrupts] { return interrupts.Pending(); }},
                           [&progress](const BuildProgress& p) { progress.Update(p); });
  }
  HEARTH_RETURN_IF_ERROR(report.status());
  const double seconds =
      static_cast<double>(std::max<int64_t>(io.clock.NowNs() - start_ns, 1)) * 1e-9;
  io.results << (io.json ? SynthJson(config, *report, seconds)
                         : SynthText(config, *report, seconds));
  return absl::OkStatus();
}

}  // namespace

Command PackSynthCommand() {
  return MakeCommand<PackSynthConfig>(
      {.name = "pack synth",
       .summary = "make a pack of any shape with made-up weights",
       .notes =
           "For trying a machine and a disk without a download: it opens, verifies and runs as "
           "any other pack."},
      RunPackSynth);
}

}  // namespace hearth::cli
