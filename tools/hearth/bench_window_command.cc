// hearth bench window: how long a window takes at every size of the cache, beside the floor of its
// bytes, on a model of full size with made-up weights and recorded routes.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "cache/policy/synthetic_trace.h"
#include "cpu_kernels/bench/read_probe.h"
#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "gpu_kernels/ops/read_probe.h"
#include "pack/synth/build_synthetic.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/config/cache_config.h"
#include "runtime/config/replay_config.h"
#include "runtime/config/window_trace_config.h"
#include "runtime/engine/device_choice.h"
#include "runtime/engine/model_runner.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/expert_report.h"
#include "tools/hearth/made_up_experts.h"
#include "tools/hearth/progress.h"
#include "tools/hearth/prompt_bench.h"
#include "tools/hearth/scratch_folder.h"
#include "tools/hearth/stage_progress.h"
#include "tools/hearth/synthetic_choice.h"
#include "tools/hearth/window_bench.h"
#include "tools/hearth/window_trace_file.h"
#include "tools/hearth/workers.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kTraceBytesMax = 4_GiB;
constexpr uint64_t kMadeUpTokens = 16'384;
constexpr uint32_t kRowsMax = 8;

struct PcieShare {
  std::string text;  // as it was asked for
  double share = -1;
};

struct BenchWindowConfig {
  SyntheticModel like = SyntheticModel::kFlashNext;
  SynthFormat format = SynthFormat::kNvfp4;
  uint32_t layers = 0;
  uint32_t experts = 0;
  std::string routes;
  std::string slots = "10%,18%,34%,40%,100%";
  std::string rows = "1,2,4,8";
  uint32_t windows = 64;
  uint32_t warm_up_windows = 200;
  std::string prompts;
  uint32_t prompt_chunk = 2048;
  float int8_tera_ops = 1979;  // an H200's, dense, by its data sheet
  std::string policy = "forecast";
  std::string pcie_share = "auto";
  std::string device = "auto";
  uint32_t threads = 0;
  std::string scratch = "/dev/shm";
  WindowTraceConfig trace;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("like", like, "shape of the model");
    v("format", format, "of the experts");
    v("layers", layers, "layers instead, 0 = as the model", {.minimum = 0, .maximum = 1024});
    v("experts", experts, "experts a layer instead, 0 = as the model",
      {.minimum = 0, .maximum = 16384});
    v("routes", routes, "trace to replay; none: sticky made-up routes", {.metavar = "FILE"});
    v("slots", slots, "experts kept, or their share", {.metavar = "N|P%,..."});
    v("rows", rows, "rows of a window, 1 to 8", {.metavar = "N,..."});
    v("windows", windows, "measured for each line", {.minimum = 3, .maximum = 100000});
    v("warm_up_windows", warm_up_windows, "before them", {.minimum = 0, .maximum = 1000000});
    v("prompts", prompts, "prompts of so many tokens instead of windows", {.metavar = "N,..."});
    v("prompt_chunk", prompt_chunk, "tokens of a prompt read at once",
      {.minimum = 1, .maximum = 8192});
    v("int8_tera_ops", int8_tera_ops, "rate of the card's tensor cores, for floors",
      {.metavar = "N"});
    v("policy", policy, "which experts VRAM keeps", {.metavar = "NAME"});
    v("pcie_share", pcie_share, "misses uploaded, not computed by the CPU, 0 to 1",
      {.metavar = "auto|N,..."});
    v("device", device, "where the dense path runs", {.metavar = "auto|cpu|cuda[:N]"});
    v("threads", threads, "workers, 0 = one per core", {.minimum = 0, .maximum = 1024});
    v("scratch", scratch, "folder for the dense weights, removed afterwards", {.metavar = "DIR"});
    trace.Visit(v);
  }

  absl::Status Validate(const GivenFields& given) const {
    HEARTH_RETURN_IF_ERROR(trace.Validate(given));
    HEARTH_RETURN_IF_ERROR(MakeSyntheticGeometry(Shape()).status());
    HEARTH_RETURN_IF_ERROR(ParseSlotsList(slots).status());
    HEARTH_RETURN_IF_ERROR(ParseWindowList(rows).status());
    HEARTH_RETURN_IF_ERROR(ParsePromptList(prompts).status());
    HEARTH_RETURN_IF_ERROR(ParsePcieShares().status());
    return ParseDevice(device).status();
  }

  absl::StatusOr<std::vector<PcieShare>> ParsePcieShares() const {
    std::vector<PcieShare> shares;
    for (std::string& text : SplitCommas(pcie_share)) {
      HEARTH_ASSIGN_OR_RETURN(const double share, ParsePcieShare(text));
      shares.push_back({.text = std::move(text), .share = share});
    }
    return shares;
  }

  SyntheticShape Shape() const {
    SyntheticShape shape{.model = like, .layer_count = layers, .expert_count = experts};
    SetFormat(format, shape);
    return shape;
  }
};

struct Line {
  std::string slots;       // as it was asked for
  std::string pcie_share;  // likewise
  uint64_t slot_count = 0;
  WindowTimes times;
};

absl::StatusOr<RouteTrace> TraceOf(const BenchWindowConfig& config, const MoeGeometry& moe) {
  if (config.routes.empty()) {
    return MakeSyntheticTrace(StickyRouting(), {.layer_count = 8,
                                                .expert_count = moe.expert_count,
                                                .ranks = moe.experts_per_token,
                                                .token_count = kMadeUpTokens});
  }
  HEARTH_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(config.routes, kTraceBytesMax));
  return RouteTrace::Parse(std::as_bytes(std::span(bytes)), config.routes);
}

absl::StatusOr<MemoryRates> MeasureRates(const MadeUpExperts& experts, WorkerTeam& team,
                                         const CpuKernels& kernels, Clock& clock,
                                         const std::optional<GpuInfo>& gpu) {
  constexpr int64_t kSampleNs = 100'000'000;
  constexpr int kSamples = 5;
  MemoryRates rates;
  ReadProbe probe = ReadProbe::OfWalk(team, clock, kernels.isa, experts.memory());
  probe.Calibrate(kSampleNs);
  for (int i = 0; i < kSamples; ++i) rates.dram = std::max(rates.dram, probe.Sample());
  if (!gpu) return rates;
  HEARTH_ASSIGN_OR_RETURN(rates.card, MeasureDeviceReadRate(*gpu));
  HEARTH_ASSIGN_OR_RETURN(rates.link, MeasureLinkRate(*gpu));
  return rates;
}

// Everything that the lines share.
class WindowBench {
 public:
  WindowBench(const BenchWindowConfig& config, const CommandIo& io)
      : config_(config), io_(io), kernels_(SelectCpuKernels(DetectCpuFeatures())) {}

  absl::Status Prepare() {
    HEARTH_ASSIGN_OR_RETURN(workers_, Workers::Start(config_.threads, "", io_.allowed_cpus));
    PrintWorkers(workers_, io_.talk);
    HEARTH_ASSIGN_OR_RETURN(folder_, ScratchFolder::Create(config_.scratch, "hearth-bench-window"));
    SyntheticPackOptions pack;
    pack.shape = config_.Shape();
    pack.out = pack_dir_ = JoinPath(folder_->path(), "model.pack");
    pack.zero_experts = true;
    {
      StageProgress progress(io_);
      HEARTH_RETURN_IF_ERROR(
          BuildSyntheticPack(pack, [&](const BuildProgress& p) { progress.Update(p); }).status());
    }
    HEARTH_ASSIGN_OR_RETURN(const Pack opened, Pack::Open(pack_dir_));
    HEARTH_RETURN_IF_ERROR(ChooseCard(opened));
    std::vector<ExpertLayout> layouts;
    for (uint32_t l = 0; l < opened.experts.layer_count(); ++l) {
      layouts.push_back(opened.experts.layout(LayerId(l)));
    }
    const MoeGeometry& moe = opened.manifest.geometry.moe;
    {
      std::optional<Progress> line;
      HEARTH_ASSIGN_OR_RETURN(
          experts_, MadeUpExperts::Create(std::move(layouts), moe.expert_count, *workers_.team,
                                          [&](uint64_t done, uint64_t total) {
                                            if (!line) {
                                              line.emplace(
                                                  io_, ProgressOptions{.label = "making experts up",
                                                                       .total = total});
                                            }
                                            line->Update(done);
                                          }));
    }
    HEARTH_ASSIGN_OR_RETURN(trace_, TraceOf(config_, moe));
    HEARTH_RETURN_IF_ERROR(TraceRoutes(trace_).Check(moe.expert_count, moe.experts_per_token));
    HEARTH_ASSIGN_OR_RETURN(rates_,
                            MeasureRates(*experts_, *workers_.team, kernels_, io_.clock, gpu_));
    return absl::OkStatus();
  }

  // One line for every number of rows, from one load of the model.
  absl::StatusOr<std::vector<Line>> Measure(const std::string& slots, const PcieShare& share) {
    TraceRoutes routes(trace_);
    HEARTH_ASSIGN_OR_RETURN(const std::vector<uint32_t> rows, ParseWindowList(config_.rows));
    const uint32_t rows_max = *std::max_element(rows.begin(), rows.end());
    HEARTH_ASSIGN_OR_RETURN(
        const std::unique_ptr<ModelRunner> runner,
        Load({.slots = slots,
              .pcie_share = share.share,
              .limits = {.prompt_rows_max = kRowsMax, .window_rows_max = kRowsMax},
              .context_tokens = (config_.windows + config_.warm_up_windows) * rows_max},
             routes));
    uint64_t token = trace_.token_count() / 4;
    std::vector<Line> lines;
    // The trace is of the last line.
    std::optional<WindowTracer> tracer;
    if (!config_.trace.trace_window.empty() && slots == SplitCommas(config_.slots).back() &&
        share.text == SplitCommas(config_.pcie_share).back()) {
      tracer.emplace(*runner, config_.trace.trace_window_index);
    }
    for (const uint32_t& r : rows) {
      HEARTH_ASSIGN_OR_RETURN(
          WindowTimes times,
          TimeWindows(*runner, routes, io_.clock, rates_,
                      {.rows = r,
                       .windows = config_.windows,
                       .warm_up_windows = config_.warm_up_windows,
                       .tracer = tracer && &r == &rows.back() ? &*tracer : nullptr},
                      token));
      uint64_t slot_count = 0;
      if (const SlotCache* cache = runner->experts().slots()) {
        for (const SlotPoolShape& pool : cache->pools()) slot_count += pool.slot_count;
      }
      lines.push_back(
          {.slots = slots, .pcie_share = share.text, .slot_count = slot_count, .times = times});
    }
    if (tracer) {
      HEARTH_RETURN_IF_ERROR(
          WriteTraceFile(config_.trace, *tracer,
                         absl::StrFormat("hearth bench window, %s slots, %d rows, %s over the link",
                                         slots, rows.back(), share.text),
                         io_));
    }
    return lines;
  }

  // Likewise, for every prompt.
  absl::StatusOr<std::vector<PromptTimes>> MeasurePrompts(const std::string& slots,
                                                          const PcieShare& share) {
    TraceRoutes routes(trace_);
    HEARTH_ASSIGN_OR_RETURN(const std::vector<uint32_t> prompts, ParsePromptList(config_.prompts));
    const uint32_t tokens_max = *std::max_element(prompts.begin(), prompts.end());
    HEARTH_ASSIGN_OR_RETURN(
        const std::unique_ptr<ModelRunner> runner,
        Load({.slots = slots,
              .pcie_share = share.share,
              .limits = {.prompt_rows_max = std::min(config_.prompt_chunk, tokens_max),
                         .window_rows_max = kRowsMax},
              .context_tokens = tokens_max},
             routes));
    uint64_t token = trace_.token_count() / 4;
    std::vector<PromptTimes> times;
    for (const uint32_t tokens : prompts) {
      HEARTH_ASSIGN_OR_RETURN(times.emplace_back(),
                              TimePrompts(*runner, routes, io_.clock, rates_,
                                          config_.int8_tera_ops * 1e12, {.tokens = tokens}, token));
    }
    return times;
  }

  const MemoryRates& rates() const { return rates_; }
  std::string Device() const { return gpu_ ? gpu_->name : std::string("the CPU plays the card"); }
  uint32_t worker_count() const { return workers_.team->worker_count(); }

 private:
  struct LoadShape {
    std::string slots;
    double pcie_share = -1;
    PassLimits limits;
    uint32_t context_tokens = 0;
  };
  // The model in that shape; `routes` outlives it.
  absl::StatusOr<std::unique_ptr<ModelRunner>> Load(const LoadShape& shape, TraceRoutes& routes) {
    HEARTH_ASSIGN_OR_RETURN(const SlotsChoice choice, ParseSlots(shape.slots));
    HEARTH_ASSIGN_OR_RETURN(Pack pack, Pack::Open(pack_dir_));
    RunnerOptions options;
    options.gpu = gpu_;
    options.limits = shape.limits;
    options.ngram_in_memory = true;
    options.planned_context_tokens = shape.context_tokens;
    options.experts.slots = SlotBudget{.slot_count = choice.count, .share = choice.share};
    options.experts.policy = config_.policy;
    options.experts.pcie_share = shape.pcie_share;
    options.experts.make_store = [this]() -> absl::StatusOr<std::unique_ptr<ExpertStore>> {
      return experts_->MakeStore();
    };
    const uint32_t layer_count = pack.manifest.geometry.layer_count();
    const uint64_t seed_tokens = trace_.token_count() / 4;
    for (uint32_t l = 0; l < layer_count; ++l) {
      options.experts.seeds.push_back(
          routes.Sightings(LayerId(l), seed_tokens, experts_->expert_count()));
    }
    std::unique_ptr<ModelRunner> runner;
    HEARTH_RETURN_IF_ERROR(workers_.Beside([&]() -> absl::Status {
      HEARTH_ASSIGN_OR_RETURN(runner, ModelRunner::Load(std::move(pack), options, kernels_,
                                                        *workers_.team, io_.clock, nullptr));
      return absl::OkStatus();
    }));
    for (const std::string& note : runner->experts().Notes()) io_.talk << note << "\n";
    runner->set_route_source(&routes);
    return runner;
  }

  absl::Status ChooseCard(const Pack& pack) {
    HEARTH_ASSIGN_OR_RETURN(const DeviceSetting setting, ParseDevice(config_.device));
    HEARTH_ASSIGN_OR_RETURN(const DeviceChoice choice,
                            ChooseDevice(setting, ListGpus(), {.card_bytes = 0}));
    io_.talk << "device: " << choice.reason << ", " << FormatBytes(pack.dense.file().bytes())
             << " of dense weights\n";
    gpu_ = choice.gpu;
    return absl::OkStatus();
  }

  const BenchWindowConfig& config_;
  const CommandIo& io_;
  const CpuKernels& kernels_;
  Workers workers_;
  std::optional<ScratchFolder> folder_;
  std::string pack_dir_;
  std::optional<GpuInfo> gpu_;
  std::unique_ptr<MadeUpExperts> experts_;
  RouteTrace trace_;
  MemoryRates rates_;
};

double PerWindowMs(double seconds, const WindowTimes& times) {
  return seconds / times.window_count * 1e3;
}

std::string LineText(const Line& line, uint32_t workers, bool has_card) {
  const WindowTimes& t = line.times;
  const uint32_t card_workers = has_card ? 1 : workers;  // who plays it
  const auto ms = [&](Service s) {
    return PerWindowMs(static_cast<double>(t.served.of(s).ns) * 1e-9, t);
  };
  const auto mib = [&](Service s) {
    return static_cast<double>(t.served.of(s).bytes) / t.window_count / (1 << 20);
  };
  return absl::StrFormat(
      "%6s %4d %5s %6.1f%% %9.3f %9.3f %6.2fx %8.1f | %8.3f %8.3f %8.3f %8.3f | %8.1f %7.1f "
      "%7.1f\n",
      line.slots, t.rows, line.pcie_share, t.hit_rate() * 100, t.median_sec * 1e3,
      t.floor_sec * 1e3, t.median_sec / t.floor_sec, t.rows / t.median_sec, t.dense_floor_sec * 1e3,
      ms(Service::kVram) / card_workers, ms(Service::kPcie), ms(Service::kCpu) / workers,
      mib(Service::kVram), mib(Service::kPcie), mib(Service::kCpu));
}

Json LineJson(const Line& line) {
  const WindowTimes& t = line.times;
  return {{"slots", line.slots},
          {"pcie_share", line.pcie_share},
          {"slot_count", line.slot_count},
          {"rows", t.rows},
          {"windows", t.window_count},
          {"hit_rate", t.hit_rate()},
          {"median_sec", t.median_sec},
          {"floor_sec", t.floor_sec},
          {"dense_floor_sec", t.dense_floor_sec},
          {"times_floor", t.median_sec / t.floor_sec},
          {"ledger", ServicesJson(t.served)}};
}

void PrintRates(const WindowBench& bench, const CommandIo& io) {
  const MemoryRates& rates = bench.rates();
  io.results << absl::StrFormat("%s, %d workers; GB/s measured: DRAM %.1f, card %.0f, link %.1f\n",
                                bench.Device(), bench.worker_count(), rates.dram * 1e-9,
                                rates.card * 1e-9, rates.link * 1e-9);
}

void PrintJson(const WindowBench& bench, const CommandIo& io, Json lines) {
  const MemoryRates& rates = bench.rates();
  io.results << Json{{"device", bench.Device()},         {"workers", bench.worker_count()},
                     {"dram_bytes_per_sec", rates.dram}, {"card_bytes_per_sec", rates.card},
                     {"link_bytes_per_sec", rates.link}, {"lines", std::move(lines)}}
             << "\n";
}

absl::Status RunPrompts(const BenchWindowConfig& config, WindowBench& bench, const CommandIo& io) {
  if (!io.json) {
    PrintRates(bench, io);
    io.results << PromptHeader();
  }
  Json lines = Json::array();
  HEARTH_ASSIGN_OR_RETURN(const std::vector<PcieShare> shares, config.ParsePcieShares());
  for (const std::string& slots : SplitCommas(config.slots)) {
    for (const PcieShare& share : shares) {
      HEARTH_ASSIGN_OR_RETURN(const std::vector<PromptTimes> measured,
                              bench.MeasurePrompts(slots, share));
      for (const PromptTimes& times : measured) {
        if (io.json) {
          lines.push_back(PromptJson(slots, times));
        } else {
          io.results << PromptLine(slots, times, bench.worker_count()) << std::flush;
        }
      }
    }
  }
  if (io.json) {
    PrintJson(bench, io, std::move(lines));
  } else {
    io.results << "+ floors of the dense weights and of the link; card, upload and cpu: time that "
                  "the ledger has for them, side by side\n";
  }
  return absl::OkStatus();
}

absl::Status RunBenchWindow(const BenchWindowConfig& config, const CommandIo& io) {
  HEARTH_RETURN_IF_ERROR(CheckTraceFile(config.trace));
  WindowBench bench(config, io);
  HEARTH_RETURN_IF_ERROR(bench.Prepare());
  if (!config.prompts.empty()) return RunPrompts(config, bench, io);
  if (!io.json) {
    PrintRates(bench, io);
    io.results
        << " slots rows  link    hits  ms/window  floor ms  floors  rows/s | ms: dense+    card   "
           "upload      cpu | MiB: card  upload     cpu\n";
  }
  Json lines = Json::array();
  HEARTH_ASSIGN_OR_RETURN(const std::vector<PcieShare> shares, config.ParsePcieShares());
  for (const std::string& slots : SplitCommas(config.slots)) {
    for (const PcieShare& share : shares) {
      HEARTH_ASSIGN_OR_RETURN(const std::vector<Line> measured, bench.Measure(slots, share));
      for (const Line& line : measured) {
        if (io.json) {
          lines.push_back(LineJson(line));
        } else {
          io.results << LineText(line, bench.worker_count(), bench.rates().card > 0) << std::flush;
        }
      }
    }
  }
  if (io.json) {
    PrintJson(bench, io, std::move(lines));
  } else {
    io.results << "+ floor of the dense weights; card, upload and cpu: time that the ledger has "
                  "for them, side by side\n";
  }
  return absl::OkStatus();
}

}  // namespace

Command BenchWindowCommand() {
  return MakeCommand<BenchWindowConfig>(
      {.name = "bench window",
       .summary = "how long a window takes beside the floor of its bytes",
       .notes =
           "The floor is what every tier has to read over what its memory gave in the same run.\n"
           "Experts are made up in memory: flash-next takes 64 GiB of it, --layers 4 a twelfth.\n"
           "--trace-window is of the last line's windows."},
      RunBenchWindow);
}

}  // namespace hearth::cli
