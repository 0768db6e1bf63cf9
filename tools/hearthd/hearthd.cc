#include "tools/hearthd/hearthd.h"

#include <algorithm>
#include <exception>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

#include "cache/daemon/daemon.h"
#include "cache/io/open_reader.h"
#include "cache/policy/profile_seed.h"
#include "cache/policy/residency_policy.h"
#include "cache/policy/routing_profile.h"
#include "cache/store/block_layout.h"
#include "cache/store/budget_store.h"
#include "cache/store/pack_identity.h"
#include "cache/store/ram_blocks.h"
#include "pack/reader/pack.h"
#include "runtime/base/control_groups.h"
#include "runtime/base/file.h"
#include "runtime/base/memory_limits.h"
#include "runtime/base/replace_file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/config/daemon_config.h"
#include "tools/hearth/flag_parser.h"
#include "tools/hearth/help_text.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kProfileBytesMax = 64_MiB;
constexpr std::string_view kNotes =
    "Serves until SIGTERM or SIGINT. The socket's file has mode 0600: for this user and root "
    "only.\n";

// The flags that hearth's commands have too.
struct FrameFlags {
  bool json = false;
  bool print_config = false;
  bool help = false;
  template <class Visitor>
  void Visit(Visitor&& v) {
    v("json", json, "results as JSON objects, one a line");
    v("print_config", print_config, "print what the flags come to, and stop");
    v("help", help, "print this, and stop");
  }
};

ExitCode Fail(const CommandIo& io, std::string_view message, ExitCode code) {
  io.talk << "hearthd: " << absl::StrReplaceAll(ToAbsl(message), {{"\n", " "}}) << std::endl;
  return code;
}

IoChoice ChoiceOf(ReadMethod method) {
  switch (method) {
    case ReadMethod::kUring:
      return IoChoice::kUring;
    case ReadMethod::kPread:
      return IoChoice::kPread;
    case ReadMethod::kAuto:
      break;
  }
  return IoChoice::kAuto;
}

RoutingIdentity RoutingIdentityOf(const Manifest& manifest) {
  const ModelGeometry& g = manifest.geometry;
  return {.model_xxh3_128 = manifest.source_xxh3_128,
          .tokenizer_xxh3_128 = manifest.tokenizer_xxh3_128,
          .layer_count = g.layer_count(),
          .has_mtp = g.has_mtp,
          .expert_count = g.moe.expert_count,
          .ranks = g.moe.experts_per_token};
}

absl::Status SeedFrom(const std::string& path, const Pack& pack, RamBlocks& blocks) {
  if (path.empty()) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kProfileBytesMax));
  HEARTH_ASSIGN_OR_RETURN(const RoutingProfile profile, RoutingProfile::FromJson(text, path));
  HEARTH_RETURN_IF_ERROR(profile.CheckIdentity(RoutingIdentityOf(pack.manifest), path));
  const std::vector<uint64_t> counts = profile.Counts();
  const uint32_t experts = pack.experts.expert_count();
  for (uint32_t l = 0; l < pack.experts.layer_count(); ++l) {
    blocks.Seed(LayerId(l),
                ProfileSightings(std::span(counts).subspan(size_t{l} * experts, experts),
                                 profile.token_count()));
  }
  return absl::OkStatus();
}

// What the daemon will take, told before it takes it; a budget beyond what it may have is refused.
absl::StatusOr<uint64_t> PlanMemory(const DaemonConfig& config, const Pack& pack,
                                    const CommandIo& io) {
  HEARTH_ASSIGN_OR_RETURN(const BlockLayout layout, LayOutBlocks(pack.experts, *config.ram_budget));
  const uint64_t expert_count = uint64_t{pack.experts.layer_count()} * pack.experts.expert_count();
  const uint64_t total_bytes = layout.bytes() + kBudgetOverheadBytes;
  const absl::StatusOr<MemoryLimit> limit = AvailableMemory();
  io.talk << "RAM: " << FormatBytes(layout.bytes()) << " for experts (" << layout.block_count
          << " of " << expert_count << " fit), at most " << FormatBytes(kBudgetOverheadBytes)
          << " for tables and reader";
  if (limit.ok()) {
    io.talk << "; " << limit->source << " leaves " << FormatBytes(limit->available_bytes);
  }
  io.talk << std::endl;
  if (limit.ok() && total_bytes > limit->available_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "ram_budget: ", FormatBytes(total_bytes), " in all, but ", limit->source, " leaves ",
        FormatBytes(limit->available_bytes), "; give a smaller --ram-budget"));
  }
  return layout.bytes();
}

absl::StatusOr<std::unique_ptr<Daemon>> MakeDaemon(const DaemonConfig& config, const Pack& pack,
                                                   uint64_t arena_bytes, const CommandIo& io,
                                                   Daemon::Talk talk) {
  HEARTH_ASSIGN_OR_RETURN(const PackIdentity identity, PackIdentityOf(pack.manifest, pack.experts));
  const DaemonOptions options{.socket_path = config.socket,
                              .pack = identity,
                              .source_hash = pack.manifest.source_xxh3_128,
                              .arena_bytes = arena_bytes,
                              .state_path = config.state,
                              .save_every_ns = int64_t{config.save_seconds} * 1'000'000'000};
  const auto make_blocks =
      [&](std::span<std::byte> arena,
          RamBlocks::HeldElsewhere held) -> absl::StatusOr<std::unique_ptr<RamBlocks>> {
    RamBlocksOptions blocks;
    blocks.policy = config.policy;
    const std::string path = pack.experts.file().path();
    ReaderOptions reading{.choice = ChoiceOf(config.io),
                          .in_flight_max = blocks.blobs_in_flight_max * blocks.blob_requests,
                          .buffers = arena,
                          .clock = io.clock};
    HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Reader> reader, OpenReader(path, reading));
    reading.buffers = {};
    blocks.reopen = [path, reading] { return OpenReader(path, reading); };
    return RamBlocks::Create(pack.experts, arena, std::move(reader), io.clock, blocks,
                             std::move(held));
  };
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Daemon> daemon,
                          Daemon::Create(options, make_blocks, io.clock, std::move(talk)));
  HEARTH_RETURN_IF_ERROR(SeedFrom(config.profile, pack, daemon->blocks()));
  return daemon;
}

// Streaming experts from 4 KiB pages costs walks of the page tables; shared memory has huge ones
// only if the system is told to.
void TellHugePages(const CommandIo& io) {
  constexpr const char* kSetting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const absl::StatusOr<std::string> setting = ReadKernelFile(kSetting);
  if (!setting.ok() ||
      (!absl::StrContains(*setting, "[never]") && !absl::StrContains(*setting, "[deny]"))) {
    return;
  }
  io.talk << "hearthd: the arena is in 4 KiB pages, which CPUs read more slowly; for huge ones, as "
             "root, before the start: echo advise > "
          << kSetting << std::endl;
}

void TellReady(const DaemonConfig& config, uint64_t arena_bytes, const CommandIo& io) {
  if (io.json) {
    io.results << Json{{"ready", config.socket}, {"arena_bytes", arena_bytes}}.dump() << std::endl;
  } else {
    io.results << "hearthd serves " << config.pack << " at " << config.socket << std::endl;
  }
}

void TellEnd(const StatsMessage& stats, const CommandIo& io) {
  if (io.json) {
    io.results << Json{{"resident_count", stats.resident_count},
                       {"read_count", stats.read_count},
                       {"read_bytes", stats.read_bytes},
                       {"lookahead_read_count", stats.lookahead_read_count},
                       {"lookahead_used_count", stats.lookahead_used_count},
                       {"refused_count", stats.refused_count},
                       {"reclaimed_lease_count", stats.reclaimed_lease_count}}
                      .dump()
               << std::endl;
    return;
  }
  io.results << absl::StrFormat("%d experts (%s) were read, %d connections refused\n",
                                stats.read_count, FormatBytes(stats.read_bytes),
                                stats.refused_count);
}

absl::Status Serve(const DaemonConfig& config, const CommandIo& io, int stop_fd) {
  HEARTH_ASSIGN_OR_RETURN(const Pack pack, Pack::Open(config.pack));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t arena_bytes, PlanMemory(config, pack, io));
  if (!config.state.empty()) {
    // A folder that cannot be written to costs the state, not the service.
    if (const absl::Status status = CheckReplaceable(config.state); !status.ok()) {
      io.talk << "hearthd: warning: the state will not be saved: " << status.message() << std::endl;
    }
  }
  std::mutex talk_mutex;
  const auto talk = [&](std::string_view line) {
    const std::lock_guard lock(talk_mutex);
    io.talk << "hearthd: " << line << std::endl;
  };
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Daemon> daemon,
                          MakeDaemon(config, pack, arena_bytes, io, talk));
  for (const std::string& note : daemon->blocks().notes()) talk(note);
  TellHugePages(io);
  TellReady(config, arena_bytes, io);
  HEARTH_RETURN_IF_ERROR(daemon->Run(stop_fd));
  TellEnd(daemon->stats(), io);
  return absl::OkStatus();
}

std::string HelpOf(std::span<const Field> fields) {
  const CommandText text{.name = "hearthd",
                         .summary = "keeps a pack's experts in RAM for any number of engines",
                         .notes = std::string(kNotes)};
  constexpr std::string_view kPrefix = "hearth ";  // of a command of hearth, which this is not
  return CommandHelp(text, fields, {}).substr(kPrefix.size());
}

ExitCode Dispatch(std::span<const std::string> args, const CommandIo& io, int stop_fd) {
  DaemonConfig config;
  const std::vector<Field> own_fields = FieldsOf(config);
  if (std::ranges::find(args, "--help") != args.end()) {
    io.results << HelpOf(own_fields) << std::flush;
    return ExitCode::kOk;
  }
  if (args.size() == 1 && args[0] == "--version") {
    io.results << "hearthd " << HEARTH_VERSION << std::endl;
    return ExitCode::kOk;
  }
  FrameFlags flags;
  std::vector<Field> fields = own_fields;
  flags.Visit(FieldCollector{fields});
  const auto usage = [&](const absl::Status& status) {
    return Fail(io, absl::StrCat(InFlagWords(status, fields).message(), " (see `hearthd --help`)"),
                ExitCode::kUsage);
  };
  const absl::StatusOr<GivenFields> given = ParseFlags(args, fields);
  if (!given.ok()) return usage(given.status());
  if (flags.print_config) {
    io.results << PrintFields(own_fields) << std::flush;
    return ExitCode::kOk;
  }
  if (const absl::Status status = config.Validate(*given); !status.ok()) return usage(status);
  const std::vector<std::string> policies = PolicyNames();
  if (std::ranges::find(policies, config.policy) == policies.end()) {
    return usage(Annotate(CreatePolicy(config.policy, {}).status(), "policy"));
  }
  const CommandIo serve_io{
      .results = io.results, .talk = io.talk, .clock = io.clock, .json = flags.json};
  const absl::Status status = Serve(config, serve_io, stop_fd);
  if (status.ok()) return ExitCode::kOk;
  return Fail(io, ToStd(InFlagWords(status, fields).message()), ExitCodeFor(status));
}

}  // namespace

ExitCode RunHearthd(std::span<const std::string> args, const CommandIo& io, int stop_fd) {
  try {
    return Dispatch(args, io, stop_fd);
  } catch (const std::bad_alloc&) {
    return Fail(io, "not enough memory", ExitCode::kResources);
  } catch (const std::exception& error) {  // a library's, that its wrapper let through
    return Fail(io, error.what(), ExitCode::kFailure);
  }
}

}  // namespace hearth::cli
