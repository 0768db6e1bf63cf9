// hearth top: the dashboard of a server that runs.
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/config/top_config.h"
#include "runtime/serve/telemetry/telemetry_json.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/interrupt_watch.h"
#include "tools/hearth/top/screen.h"
#include "tools/hearth/top/telemetry_source.h"
#include "tools/hearth/top/top_view.h"

namespace hearth::cli {
namespace {

constexpr int64_t kFrameNs = 100'000'000;  // between two looks at keys, signals and the feed

std::string SourceName(const TopConfig& config) {
  return config.replay.empty() ? config.url : config.replay;
}

absl::StatusOr<std::unique_ptr<TelemetrySource>> OpenSource(const TopConfig& config) {
  if (!config.replay.empty()) return OpenReplaySource(config.replay);
  HttpSourceOptions options = {.url = config.url};
  if (!config.key_file.empty()) {
    HEARTH_ASSIGN_OR_RETURN(options.key, ReadKeyFile(config.key_file));
  }
  return OpenHttpSource(options);
}

// The last snapshot of a file, the next one of a server.
absl::StatusOr<std::string> TakeOne(const TopConfig& config, TelemetrySource& source) {
  absl::StatusOr<std::string> json = source.Next();
  while (!config.replay.empty()) {
    absl::StatusOr<std::string> next = source.Next();
    if (!next.ok()) break;
    json = std::move(next);
  }
  if (json.ok() || !absl::IsUnavailable(json.status())) return json;
  return Annotate(json.status(), "is hearth serve running there? (--url says where to look)");
}

absl::Status Record(std::ofstream& file, const std::string& path, const std::string& json) {
  if (!file.is_open()) return absl::OkStatus();
  file << json << "\n" << std::flush;
  if (!file) return absl::DataLossError(absl::StrCat(path, ": cannot be written"));
  return absl::OkStatus();
}

absl::Status RunOnce(const TopConfig& config, const CommandIo& io, TelemetrySource& source,
                     std::ofstream& record) {
  HEARTH_ASSIGN_OR_RETURN(const std::string json, TakeOne(config, source));
  HEARTH_ASSIGN_OR_RETURN(TelemetrySnapshot snapshot, ParseTelemetry(json));
  HEARTH_RETURN_IF_ERROR(Record(record, config.record, json));
  if (io.json) {
    io.results << json << "\n";
    return absl::OkStatus();
  }
  const std::optional<TerminalSize> terminal = OutputTerminalSize();
  const TerminalSize size = terminal.value_or(TerminalSize());
  TopView view = {.snapshot = std::move(snapshot), .source = SourceName(config), .help = ""};
  const bool has_colours = config.colour == ColourChoice::kAlways ||
                           (config.colour == ColourChoice::kAuto && terminal.has_value());
  view.looks = {.ascii = config.ascii || !LocaleIsUtf8(), .colours256 = has_colours};
  const CellGrid grid = DrawTop(view, config.rows == 0 ? size.rows : config.rows,
                                config.columns == 0 ? size.columns : config.columns);
  io.results << (has_colours ? ColouredText(grid) : PlainText(grid)) << std::flush;
  return absl::OkStatus();
}

TopView ViewOf(const TopConfig& config, const SnapshotFeed::State& state, int64_t trouble_ns) {
  TopView view = {.snapshot = state.snapshot,
                  .source = SourceName(config),
                  .trouble_ns = trouble_ns,
                  .restarts = state.restarts};
  if (!state.trouble.ok()) view.trouble = std::string(state.trouble.message());
  if (state.is_over) view.help = "end of the recording; q quits";
  return view;
}

// Until the user or a signal ends it.
absl::Status RunScreen(const TopConfig& config, const CommandIo& io, Screen& screen,
                       InterruptWatch& interrupts, std::unique_ptr<TelemetrySource> source,
                       std::ofstream& record) {
  SnapshotFeed feed(std::move(source), static_cast<int64_t>(config.interval * 1e9F));
  uint64_t recorded_count = 0;
  int64_t trouble_since_ns = 0;
  bool is_in_trouble = false;
  while (!interrupts.Pending()) {
    const SnapshotFeed::State state = feed.state();
    if (state.good_count != recorded_count) {
      HEARTH_RETURN_IF_ERROR(Record(record, config.record, state.json));
      recorded_count = state.good_count;
    }
    const int64_t now_ns = io.clock.NowNs();
    if (!state.trouble.ok() && !is_in_trouble) trouble_since_ns = now_ns;
    is_in_trouble = !state.trouble.ok();
    TopView view = ViewOf(config, state, is_in_trouble ? now_ns - trouble_since_ns : 0);
    view.looks = screen.looks();
    view.looks.ascii |= config.ascii;
    const TerminalSize size = screen.size();
    screen.Paint(DrawTop(view, size.rows, size.columns));
    if (screen.WaitKey(kFrameNs) == Screen::Key::kQuit) break;
  }
  return absl::OkStatus();
}

absl::Status Run(const TopConfig& config, const CommandIo& io) {
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<TelemetrySource> source, OpenSource(config));
  std::ofstream record;
  if (!config.record.empty()) {
    record.open(config.record, std::ios::trunc);
    if (!record) {
      return absl::FailedPreconditionError(
          absl::StrCat("record: ", config.record, ": cannot be written"));
    }
  }
  if (config.once || io.json) return RunOnce(config, io, *source, record);
  HEARTH_ASSIGN_OR_RETURN(InterruptWatch interrupts, InterruptWatch::Create());
  absl::StatusOr<std::unique_ptr<Screen>> screen = Screen::Open();
  if (!screen.ok()) {
    io.talk << "hearth top: " << ToStd(screen.status().message()) << ": printing one picture\n";
    return RunOnce(config, io, *source, record);
  }
  const absl::Status status =
      RunScreen(config, io, **screen, interrupts, std::move(source), record);
  screen->reset();  // before anything is said
  return status;
}

}  // namespace

Command TopCommand() {
  return MakeCommand<TopConfig>(
      {.name = "top",
       .summary = "dashboard of a running hearth serve",
       .notes = "Full screen in a terminal; where there is none, or with --json, one look. --json "
                "prints the\nserver's own telemetry, see runtime/serve/telemetry/TELEMETRY.md."},
      Run);
}

}  // namespace hearth::cli
