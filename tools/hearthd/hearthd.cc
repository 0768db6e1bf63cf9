#include "tools/hearthd/hearthd.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "cache/daemon/daemon.h"
#include "cache/io/open_reader.h"
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
#include "runtime/engine/profile_file.h"
#include "tools/hearth/flag_parser.h"
#include "tools/hearth/frame.h"
#include "tools/hearth/io_choice.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kNotes =
    "Serves until SIGTERM or SIGINT. The socket's file has mode 0600: for this user and root "
    "only.\n";

absl::Status SeedFrom(const std::string& path, const Pack& pack, RamBlocks& blocks) {
  if (path.empty()) return absl::OkStatus();
  HEARTH_ASSIGN_OR_RETURN(const RoutingProfile profile, ReadProfile(path));
  HEARTH_RETURN_IF_ERROR(profile.CheckIdentity(IdentityOf(pack.manifest), path));
  const std::vector<std::vector<float>> seeds = SightingsOf(profile);
  for (uint32_t l = 0; l < seeds.size(); ++l) blocks.Seed(LayerId(l), seeds[l]);
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
                              .inherited_fd = io.inherited_socket.value_or(-1),
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
    ReaderOptions reading{.choice = IoChoiceOf(config.io),
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

// Whoever started the daemon learns less then; engines are served all the same.
void TellNotice(const ServiceNotice& notice, std::string_view state, const CommandIo& io) {
  if (const absl::Status status = notice.Send(state); !status.ok())
    io.talk << "hearthd: warning: " << status.message() << std::endl;
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
  if (io.notice != nullptr) TellNotice(*io.notice, "READY=1", io);
  HEARTH_RETURN_IF_ERROR(daemon->Run(stop_fd));
  if (io.notice != nullptr) TellNotice(*io.notice, "STOPPING=1", io);
  TellEnd(daemon->stats(), io);
  return absl::OkStatus();
}

// The daemon as a command, so that flags, help and errors are those of `hearth`.
class ServeInvocation final : public Invocation {
 public:
  explicit ServeInvocation(int stop_fd) : stop_fd_(stop_fd) {}
  std::vector<Field> Fields() override { return FieldsOf(config_); }
  absl::Status Validate(const GivenFields& given) const override {
    HEARTH_RETURN_IF_ERROR(config_.Validate(given));
    const std::vector<std::string> policies = PolicyNames();
    if (std::ranges::find(policies, config_.policy) != policies.end()) return absl::OkStatus();
    return Annotate(CreatePolicy(config_.policy, {}).status(), "policy");
  }
  absl::Status Run(const CommandIo& io) const override {
    DaemonConfig config = config_;
    return InFlagWords(Serve(config, io, stop_fd_), FieldsOf(config));
  }

 private:
  const int stop_fd_;
  DaemonConfig config_;
};

}  // namespace

ExitCode RunHearthd(std::span<const std::string> args, const CommandIo& io, int stop_fd) {
  const Command command{
      .text = {.name = "hearthd",
               .summary = "keeps a pack's experts in RAM for any number of engines",
               .notes = std::string(kNotes),
               .program = ""},
      .make = [stop_fd] { return std::make_unique<ServeInvocation>(stop_fd); }};
  return RunProgram(args, command, io);
}

}  // namespace hearth::cli
