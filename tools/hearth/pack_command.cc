// hearth pack build, verify and inspect: a checkpoint becomes a pack, a pack is proved, a pack is
// described.
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "pack/convert/build_pack.h"
#include "pack/convert/compare_pack.h"
#include "pack/reader/inspect.h"
#include "pack/reader/pack.h"
#include "pack/reader/verify.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/progress.h"
#include "tools/hearth/stage_progress.h"

namespace hearth {

constexpr std::array<EnumEntry<DenseChoice>, 2> EnumEntriesOf(DenseChoice) {
  return {{{DenseChoice::kQ8, "q8_0"}, {DenseChoice::kBf16, "bf16"}}};
}

namespace cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kWorkersMax = 32;

absl::Status Require(const std::string& value, std::string_view field) {
  if (!value.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ToAbsl(field), ": is required"));
}

struct PackBuildConfig {
  std::string from;
  std::string out;
  DenseChoice dense = DenseChoice::kQ8;
  std::string experts = "source";
  std::vector<std::string> calibrate;
  bool force = false;
  uint32_t workers = 0;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("from", from, "folder of the checkpoint: config.json and safetensors", {.metavar = "DIR"});
    v("out", out, "folder of the pack; it appears when the pack is complete", {.metavar = "DIR"});
    v("dense", dense, "format of the dense projections");
    v("experts", experts, "routed experts: source, nvfp4, bf16, xt2, xt3, xt4 or xt4-3-3",
      {.metavar = "FORMAT"});
    v("calibrate", calibrate, "refused here: `hearth pack requantize` runs a model over texts",
      {.metavar = "FILE"});
    v("force", force, "replace a pack that is there already");
    v("workers", workers, "threads; 0: one per processor", {.minimum = 0, .maximum = kWorkersMax});
  }
  absl::Status Validate(const GivenFields&) const {
    HEARTH_RETURN_IF_ERROR(Require(from, "from"));
    HEARTH_RETURN_IF_ERROR(Require(out, "out"));
    if (!calibrate.empty()) {
      return absl::InvalidArgumentError(
          "calibrate: a checkpoint does not run; build with --experts source first, then "
          "`hearth pack requantize --calibrate` from that pack");
    }
    return ParseExpertTarget(experts).status();
  }
};

struct PackVerifyConfig {
  std::string pack;
  std::string against;
  uint32_t workers = 0;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("pack", pack, "folder that `hearth pack build` made", {.metavar = "DIR"});
    v("against", against, "checkpoint to compare every weight with, bit for bit",
      {.metavar = "DIR"});
    v("workers", workers, "threads; 0: one per processor", {.minimum = 0, .maximum = kWorkersMax});
  }
  absl::Status Validate(const GivenFields&) const { return Require(pack, "pack"); }
};

struct PackInspectConfig {
  std::string pack;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("pack", pack, "folder that `hearth pack build` made", {.metavar = "DIR"});
  }
  absl::Status Validate(const GivenFields&) const { return Require(pack, "pack"); }
};

double SecondsSince(const CommandIo& io, int64_t start_ns) {
  return static_cast<double>(io.clock.NowNs() - start_ns) * 1e-9;
}

std::string BuildText(const PackBuildConfig& config, const BuildReport& r, double seconds) {
  std::string text = absl::StrCat(config.out, ": ", FormatBytes(r.pack_bytes), " in ",
                                  absl::StrFormat("%.1f s", seconds), "\n");
  for (const PackFile& file : r.files) {
    absl::StrAppend(&text, absl::StrFormat("  %-22s %16d bytes\n", file.name, file.bytes));
  }
  absl::StrAppend(&text, "  dense: ", r.dense_values, " values, ", r.dense_q8_values,
                  " of them as Q8_0, ", r.dense_inexact_values, " rounded to BF16\n");
  absl::StrAppend(&text, "  experts: ", ExpertFormatName(r.source_format), " to ", r.expert_layout,
                  ", ", r.experts.values, " values, ", r.experts.inexact_values, " rounded");
  if (r.experts.error.squared_values > 0) {
    absl::StrAppend(&text, absl::StrFormat(", quantisation error %.4f of their RMS",
                                           r.experts.error.RelativeRms()));
  } else if (r.experts.inexact_values == 0) {
    absl::StrAppend(&text, ", every bit kept");
  }
  if (r.expert_format == ExpertFormat::kXt) {
    text += ", without feedback (`hearth pack requantize --calibrate` has it)";
  }
  return text + "\n";
}

std::string BuildJson(const PackBuildConfig& config, const BuildReport& r, double seconds) {
  Json files = Json::array();
  for (const PackFile& file : r.files) {
    files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"xxh3_128", file.xxh3_128}});
  }
  const Json json = {{"out", config.out},
                     {"pack_bytes", r.pack_bytes},
                     {"seconds", seconds},
                     {"dense_values", r.dense_values},
                     {"dense_q8_values", r.dense_q8_values},
                     {"dense_rounded_values", r.dense_inexact_values},
                     {"source_format", ExpertFormatName(r.source_format)},
                     {"expert_format", r.expert_layout},
                     {"expert_values", r.experts.values},
                     {"expert_rounded_values", r.experts.inexact_values},
                     {"expert_relative_rms_error", r.experts.error.RelativeRms()},
                     {"files", files}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

absl::Status RunPackBuild(const PackBuildConfig& config, const CommandIo& io) {
  const int64_t start_ns = io.clock.NowNs();
  HEARTH_ASSIGN_OR_RETURN(const ExpertTarget experts, ParseExpertTarget(config.experts));
  absl::StatusOr<BuildReport> report = absl::UnknownError("not run");
  {
    StageProgress progress(io);
    report = BuildPack({.from = config.from,
                        .out = config.out,
                        .dense = config.dense,
                        .experts = experts,
                        .if_exists = config.force ? IfExists::kReplacePack : IfExists::kRefuse,
                        .worker_count = config.workers,
                        .made_by = "hearth " HEARTH_VERSION},
                       [&progress](const BuildProgress& p) { progress.Update(p); });
  }
  HEARTH_RETURN_IF_ERROR(report.status());
  const double seconds = SecondsSince(io, start_ns);
  io.results << (io.json ? BuildJson(config, *report, seconds)
                         : BuildText(config, *report, seconds));
  return absl::OkStatus();
}

absl::StatusOr<VerifyReport> Verify(const PackVerifyConfig& config, const CommandIo& io) {
  std::unique_ptr<Progress> line;
  return VerifyPack(
      config.pack,
      [&](const VerifyProgress& p) {
        if (line == nullptr) {
          line = std::make_unique<Progress>(
              io, ProgressOptions{.label = "verifying", .total = p.total_bytes});
        }
        line->Update(p.done_bytes);
      },
      config.workers);
}

absl::StatusOr<CompareReport> Compare(const PackVerifyConfig& config, const CommandIo& io) {
  HEARTH_ASSIGN_OR_RETURN(const Pack pack, Pack::Open(config.pack));
  HEARTH_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(config.against));
  StageProgress progress(io);
  return ComparePack(
      pack, *checkpoint, [&progress](const BuildProgress& p) { progress.Update(p); },
      config.workers);
}

// "experts.bin: layer 3 expert 17: checksum ..., expected ..."
std::string FaultLine(const VerifyFault& fault) {
  return absl::StrCat(fault.file, fault.file.empty() ? "" : ": ", fault.where,
                      fault.where.empty() ? "" : ": ", fault.what);
}

void PrintVerifyText(const PackVerifyConfig& config, const VerifyReport& verified,
                     const CompareReport* compared, double seconds, std::ostream& out) {
  for (const VerifyFault& fault : verified.faults) out << FaultLine(fault) << "\n";
  if (verified.ok()) {
    out << config.pack << ": " << verified.file_count << " files, "
        << FormatBytes(verified.bytes_read) << ", every byte as written ("
        << absl::StrFormat("%.1f s", seconds) << ")\n";
  }
  if (compared == nullptr) return;
  for (const std::string& difference : compared->differences) out << difference << "\n";
  out << "against " << config.against << ": " << compared->experts_equal
      << " experts equal bit for bit, " << compared->experts_reencoded << " equal once encoded, "
      << compared->experts_near << " as near as their XT rate allows, " << compared->tensors_exact
      << " dense tensors exact, " << compared->tensors_encoded << " equal once encoded, "
      << compared->ngram_rows_equal << " n-gram rows equal, " << compared->difference_count
      << " differences\n";
}

void PrintVerifyJson(const PackVerifyConfig& config, const VerifyReport& verified,
                     const CompareReport* compared, double seconds, std::ostream& out) {
  Json faults = Json::array();
  for (const VerifyFault& f : verified.faults) {
    faults.push_back({{"file", f.file}, {"where", f.where}, {"what", f.what}});
  }
  Json json = {{"pack", config.pack},
               {"ok", verified.ok() && (compared == nullptr || compared->ok())},
               {"files", verified.file_count},
               {"bytes", verified.bytes_read},
               {"seconds", seconds},
               {"fault_count", verified.fault_count},
               {"faults", faults}};
  if (compared != nullptr) {
    json["against"] = {{"from", config.against},
                       {"experts_equal", compared->experts_equal},
                       {"experts_reencoded", compared->experts_reencoded},
                       {"experts_near", compared->experts_near},
                       {"tensors_exact", compared->tensors_exact},
                       {"tensors_encoded", compared->tensors_encoded},
                       {"ngram_rows_equal", compared->ngram_rows_equal},
                       {"difference_count", compared->difference_count},
                       {"differences", compared->differences}};
  }
  out << json.dump(-1, ' ', true, Json::error_handler_t::replace) << "\n";
}

absl::Status RunPackVerify(const PackVerifyConfig& config, const CommandIo& io) {
  const int64_t start_ns = io.clock.NowNs();
  HEARTH_ASSIGN_OR_RETURN(const VerifyReport verified, Verify(config, io));
  std::unique_ptr<CompareReport> compared;
  if (!config.against.empty() && verified.ok()) {
    HEARTH_ASSIGN_OR_RETURN(CompareReport report, Compare(config, io));
    compared = std::make_unique<CompareReport>(std::move(report));
  }
  const auto print = io.json ? PrintVerifyJson : PrintVerifyText;
  print(config, verified, compared.get(), SecondsSince(io, start_ns), io.results);
  if (!verified.ok()) {
    return absl::DataLossError(absl::StrCat(config.pack, ": ", verified.fault_count,
                                            verified.fault_count == 1 ? " fault" : " faults",
                                            ", the first in ", FaultLine(verified.faults[0])));
  }
  if (compared != nullptr && !compared->ok()) {
    return absl::DataLossError(absl::StrCat(config.pack, ": differs from ", config.against, " in ",
                                            compared->difference_count,
                                            " places, the first: ", compared->differences[0]));
  }
  return absl::OkStatus();
}

absl::Status RunPackInspect(const PackInspectConfig& config, const CommandIo& io) {
  HEARTH_ASSIGN_OR_RETURN(const Pack pack, Pack::Open(config.pack));
  const PackSummary summary = SummarisePack(pack);
  io.results << (io.json ? SummaryJson(summary) + "\n" : SummaryText(summary));
  return absl::OkStatus();
}

}  // namespace

Command PackBuildCommand() {
  return MakeCommand<PackBuildConfig>(
      {.name = "pack build",
       .summary = "make a pack from a checkpoint",
       .notes = "Memory stays below 1 GiB whatever the model. NVFP4, FP8 and BF16 experts are kept "
                "bit for bit\nunless --experts names another format; its cost is printed."},
      RunPackBuild);
}

Command PackVerifyCommand() {
  return MakeCommand<PackVerifyConfig>(
      {.name = "pack verify",
       .summary = "read every byte of a pack and name what is damaged",
       .notes = "Exit code 3 when anything differs."},
      RunPackVerify);
}

Command PackInspectCommand() {
  return MakeCommand<PackInspectConfig>(
      {.name = "pack inspect", .summary = "what a pack holds: shape, formats, sizes", .notes = ""},
      RunPackInspect);
}

}  // namespace cli
}  // namespace hearth
