// hearth pack requantize: a pack with its experts in another format, XT with error feedback from
// what the model's experts read while it runs over texts.
#include <algorithm>
#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "pack/convert/requantize.h"
#include "pack/reader/pack.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/expert_moments.h"
#include "tools/hearth/model_session.h"
#include "tools/hearth/progress.h"
#include "tools/hearth/stage_progress.h"
#include "tools/hearth/xt_gpu_device.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kWorkersMax = 32;
constexpr uint64_t kTextBytesMax = 64_MiB;
constexpr uint32_t kSequenceTokens = 2048;  // a text is read in pieces of that many

enum class FeedbackChoice { kOn, kOff };
enum class EncoderChoice { kAuto, kCpu, kGpu };

constexpr std::array<EnumEntry<FeedbackChoice>, 2> EnumEntriesOf(FeedbackChoice) {
  return {{{FeedbackChoice::kOn, "on"}, {FeedbackChoice::kOff, "off"}}};
}

constexpr std::array<EnumEntry<EncoderChoice>, 3> EnumEntriesOf(EncoderChoice) {
  return {
      {{EncoderChoice::kAuto, "auto"}, {EncoderChoice::kCpu, "cpu"}, {EncoderChoice::kGpu, "gpu"}}};
}

struct RequantizeConfig {
  std::string pack;
  std::string out;
  std::string experts;
  std::vector<std::string> calibrate;
  FeedbackChoice feedback = FeedbackChoice::kOn;
  float damping = 0.01f;
  uint32_t calibrate_tokens_max = 65536;
  bool force = false;
  EncoderChoice encoder = EncoderChoice::kAuto;
  uint32_t workers = 0;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("pack", pack, "folder of the pack to start from", {.metavar = "DIR"});
    v("out", out, "folder of the new pack; it appears when the pack is complete",
      {.metavar = "DIR"});
    v("experts", experts, "routed experts: nvfp4, bf16, xt2, xt3, xt4 or xt4-3-3",
      {.metavar = "FORMAT"});
    v("calibrate", calibrate, "text like what the model will read; may be given several times",
      {.metavar = "FILE"});
    v("feedback", feedback, "XT: move errors to where calibration says they cost least");
    v("damping", damping, "of the mean energy of inputs, added to each",
      {.minimum = 1e-6, .maximum = 1});
    v("calibrate_tokens_max", calibrate_tokens_max, "tokens to read, shared among the texts",
      {.minimum = 256, .maximum = 16'777'216});
    v("encoder", encoder, "XT: where, same bytes; auto: a GPU if there is one");
    v("force", force, "replace a pack that is there already");
    v("workers", workers, "threads; 0: one per processor", {.minimum = 0, .maximum = kWorkersMax});
  }
  absl::Status Validate(const GivenFields& given) const {
    for (const auto& [name, value] : {std::pair("pack", &pack), std::pair("out", &out)}) {
      if (value->empty()) return absl::InvalidArgumentError(absl::StrCat(name, ": is required"));
    }
    HEARTH_ASSIGN_OR_RETURN(const ExpertTarget target, ParseExpertTarget(experts));
    if (target.choice == ExpertChoice::kSource) {
      return absl::InvalidArgumentError("experts: source: is what the pack holds already");
    }
    const bool wants = target.choice == ExpertChoice::kXt && feedback == FeedbackChoice::kOn;
    if (wants && calibrate.empty()) {
      return absl::InvalidArgumentError(
          "calibrate: feedback needs texts that are like what the model will read; give "
          "--calibrate FILE, or --feedback off");
    }
    if (!wants && !calibrate.empty()) {
      return absl::InvalidArgumentError(
          "calibrate: has no effect without XT experts and --feedback on");
    }
    if (target.choice != ExpertChoice::kXt && given.Has("encoder")) {
      return absl::InvalidArgumentError("encoder: has no effect without XT experts");
    }
    if (!wants && given.Has("damping")) {
      return absl::InvalidArgumentError("damping: has no effect without feedback");
    }
    return absl::OkStatus();
  }
};

absl::Status RunOver(ModelRunner& runner, std::span<const TokenId> tokens, uint64_t& done,
                     Progress& line) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence,
                          runner.CreateSequence(static_cast<uint32_t>(tokens.size())));
  while (!tokens.empty()) {
    const auto rows = static_cast<uint32_t>(
        std::min<size_t>(runner.options().limits.prompt_rows_max, tokens.size()));
    const Segment segment{.sequence = sequence.get(), .tokens = tokens.first(rows)};
    HEARTH_RETURN_IF_ERROR(runner.RunTrunk({&segment, 1}, Phase::kPrompt));
    HEARTH_RETURN_IF_ERROR(runner.Commit(*sequence, rows));
    tokens = tokens.subspan(rows);
    done += rows;
    line.Update(done);
  }
  return absl::OkStatus();
}

// Runs the pack over the texts.
absl::StatusOr<std::unique_ptr<ExpertMoments>> Calibrate(const RequantizeConfig& config,
                                                         const ModelSession& session,
                                                         const CommandIo& io) {
  ModelRunner& runner = *session.runner;
  HEARTH_ASSIGN_OR_RETURN(
      std::unique_ptr<ExpertMoments> moments,
      ExpertMoments::Create(runner.geometry(), runner.team(), {.damping = config.damping}));
  io.talk << "calibration: second moments in " << FormatBytes(moments->memory_bytes()) << ", "
          << (moments->per_expert() ? "each expert's hidden rows apart"
                                    : "one for the hidden rows of a layer")
          << "\n";
  const auto share = static_cast<size_t>(
      std::max<uint64_t>(config.calibrate_tokens_max / config.calibrate.size(), 1));
  Progress line(io, {.label = "calibrating",
                     .unit = ProgressUnit::kTokens,
                     .total = config.calibrate_tokens_max});
  runner.set_observer(moments.get());
  uint64_t done = 0;
  for (const std::string& path : config.calibrate) {
    HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kTextBytesMax));
    std::vector<TokenId> tokens = session.tokenizer->Encode(text, SpecialTokens::kParse);
    tokens.resize(std::min(tokens.size(), share));
    const size_t piece = std::min<size_t>(kSequenceTokens, runner.geometry().context_tokens_max);
    for (size_t at = 0; at < tokens.size(); at += piece) {
      HEARTH_RETURN_IF_ERROR(RunOver(
          runner, std::span(tokens).subspan(at, std::min(piece, tokens.size() - at)), done, line));
    }
  }
  runner.set_observer(nullptr);
  if (moments->row_count() == 0) {
    return absl::InvalidArgumentError("calibrate: the texts hold no tokens");
  }
  return moments;
}

// The GPU to encode on; null where `auto` finds none, or none of use.
absl::StatusOr<std::unique_ptr<XtGpuDevice>> OpenDevice(const RequantizeConfig& config,
                                                        const Pack& pack,
                                                        const ExpertTarget& target,
                                                        const CommandIo& io) {
  const bool must = config.encoder == EncoderChoice::kGpu;
  absl::StatusOr<std::unique_ptr<XtGpuDevice>> device = XtGpuDevice::Create();
  if (!device.ok()) {
    if (must) return Annotate(device.status(), "encoder");
    return nullptr;
  }
  const ExpertLayout& found = pack.experts.layout(LayerId(0));
  HEARTH_ASSIGN_OR_RETURN(const ExpertLayout layout,
                          LayoutFor(target, found.format, found.hidden, found.width));
  const bool takes_any = std::any_of(kProjections.begin(), kProjections.end(), [&](Projection p) {
    return (*device)->Takes(layout.xt_shape(p));
  });
  if (!takes_any && must) {
    return absl::InvalidArgumentError(
        "encoder: gpu: the experts of this model are too small for it; leave it at auto");
  }
  if (!takes_any) return nullptr;
  io.talk << "encoding on " << (*device)->gpu().name << "\n";
  return device;
}

std::string ReportText(const RequantizeConfig& config, const BuildReport& r,
                       const std::string& note, double seconds) {
  return absl::StrCat(
      config.out, ": ", FormatBytes(r.pack_bytes), " in ", absl::StrFormat("%.1f s", seconds),
      "\n  experts: ", ExpertFormatName(r.source_format), " to ", r.expert_layout,
      note.empty() ? "" : " ", note, ", ", r.experts.values, " values",
      r.experts.error.squared_values > 0
          ? absl::StrFormat(", quantisation error %.4f of their RMS", r.experts.error.RelativeRms())
          : "",
      absl::StrFormat(", %.0f weights/s\n", static_cast<double>(r.experts.values) / seconds));
}

std::string ReportJson(const RequantizeConfig& config, const BuildReport& r,
                       const std::string& note, double seconds) {
  const Json json = {{"out", config.out},
                     {"pack_bytes", r.pack_bytes},
                     {"seconds", seconds},
                     {"source_format", ExpertFormatName(r.source_format)},
                     {"expert_format", r.expert_layout},
                     {"feedback", note},
                     {"expert_values", r.experts.values},
                     {"expert_relative_rms_error", r.experts.error.RelativeRms()}};
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

absl::Status Run(const RequantizeConfig& config, const CommandIo& io) {
  const int64_t start_ns = io.clock.NowNs();
  HEARTH_ASSIGN_OR_RETURN(const ExpertTarget target, ParseExpertTarget(config.experts));
  HEARTH_ASSIGN_OR_RETURN(const Pack pack, Pack::Open(config.pack));
  HEARTH_RETURN_IF_ERROR(CheckRequantize(pack, target));
  RequantizeOptions options = {
      .out = config.out,
      .experts = target,
      .if_exists = config.force ? IfExists::kReplacePack : IfExists::kRefuse,
      .worker_count = config.workers,
      .made_by = "hearth " HEARTH_VERSION};
  std::unique_ptr<ExpertMoments> moments;
  if (target.choice == ExpertChoice::kXt) options.feedback_note = "without feedback";
  if (!config.calibrate.empty()) {
    HEARTH_ASSIGN_OR_RETURN(const ModelSession session,
                            ModelSession::Open(config.pack, {}, {}, io));
    HEARTH_ASSIGN_OR_RETURN(moments, Calibrate(config, session, io));
    options.feedback = [&moments](ExpertKey key) { return moments->FeedbackOf(key); };
    options.feedback_note = absl::StrCat("with feedback from ", moments->row_count(), " tokens");
  }
  std::unique_ptr<XtGpuDevice> device;
  if (target.choice == ExpertChoice::kXt && config.encoder != EncoderChoice::kCpu) {
    HEARTH_ASSIGN_OR_RETURN(device, OpenDevice(config, pack, target, io));
    options.device = device.get();
  }
  absl::StatusOr<BuildReport> report = absl::UnknownError("not run");
  {
    StageProgress progress(io);
    report =
        RequantizePack(pack, options, [&progress](const BuildProgress& p) { progress.Update(p); });
  }
  HEARTH_RETURN_IF_ERROR(report.status());
  const double seconds = static_cast<double>(io.clock.NowNs() - start_ns) * 1e-9;
  io.results << (io.json ? ReportJson(config, *report, options.feedback_note, seconds)
                         : ReportText(config, *report, options.feedback_note, seconds));
  return absl::OkStatus();
}

}  // namespace

Command PackRequantizeCommand() {
  return MakeCommand<RequantizeConfig>(
      {.name = "pack requantize",
       .summary = "a pack with its experts in another format",
       .notes = "Everything else is copied byte for byte. XT with feedback runs the pack over the "
                "texts first.\nStart from the pack with the best experts: bf16 if there is one."},
      Run);
}

}  // namespace hearth::cli
