#include "tools/hearth/model_session.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cpu_kernels/dispatch/cpu_kernels.h"
#include "gpu_kernels/device/gpu_info.h"
#include "runtime/base/file.h"
#include "runtime/base/memory_limits.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/engine/device_choice.h"
#include "runtime/engine/profile_file.h"
#include "runtime/model/chat/chat_template.h"
#include "tools/hearth/io_choice.h"
#include "tools/hearth/progress.h"

namespace hearth::cli {
namespace {

constexpr uint64_t kTextFileBytesMax = 64_MiB;
constexpr size_t kTokensMax = 1u << 20;

absl::StatusOr<const CpuKernels*> ChooseKernels(CpuIsaChoice choice) {
  const CpuFeatures have = DetectCpuFeatures();
  std::string_view name;
  switch (choice) {
    case CpuIsaChoice::kAuto:
      return &SelectCpuKernels(have);
    case CpuIsaChoice::kScalar:
      name = "scalar";
      break;
    case CpuIsaChoice::kAvx2:
      name = "avx2";
      break;
    case CpuIsaChoice::kAvx512:
      name = "avx512";
      break;
    case CpuIsaChoice::kAvx512Vbmi:
      name = "avx512vbmi";
      break;
  }
  const CpuKernels* kernels = FindCpuKernels(name);
  if (kernels == nullptr || !Supports(have, kernels->isa)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cpu_isa: this processor does not have ", ToAbsl(name), "; leave it at auto"));
  }
  return kernels;
}

KvFormat KvFormatOf(KvChoice choice) {
  return choice == KvChoice::kInt8 ? KvFormat::kInt8 : KvFormat::kBf16;
}

// A CPU keeps the activations of a chunk in its second-level cache. On a card nearly every expert
// of a layer is asked for by any chunk, and those that are not in VRAM pass over the link once for
// each chunk: so few chunks, whose activations take about 0.3 MB a token of VRAM and 0.1 MB of RAM.
constexpr uint32_t kCpuPromptChunkTokens = 256;
constexpr uint32_t kCardPromptChunkTokens = 2048;

// Chooses the card, or says why there is none. What was asked of a card and finds none is an error.
absl::Status PlaceOnCard(const Pack& pack, const ComputeConfig& compute, const CacheConfig& cache,
                         const CommandIo& io, RunnerOptions& options) {
  HEARTH_ASSIGN_OR_RETURN(const DeviceSetting setting, ParseDevice(compute.device));
  if (setting.kind == DeviceSetting::Kind::kCpu) {
    if (!cache.vram_reserve) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "vram_reserve: has no effect on the CPU; give --device auto or cuda");
  }
  if (compute.prompt_chunk_tokens == 0) options.limits.prompt_rows_max = kCardPromptChunkTokens;
  DeviceNeeds needs{.arithmetic = options.arithmetic};
  absl::StatusOr<GpuList> gpus = ListGpus();
  if (gpus.ok() && !gpus->gpus.empty()) {
    const absl::StatusOr<uint64_t> bytes = CardBytesOf(pack, options);
    if (bytes.ok()) {
      needs.card_bytes = *bytes;
    } else {
      gpus = bytes.status();  // no card will do
    }
  }
  HEARTH_ASSIGN_OR_RETURN(const DeviceChoice choice, ChooseDevice(setting, gpus, needs));
  io.talk << "device: " << choice.reason << "\n";
  options.gpu = choice.gpu;
  if (options.gpu) return absl::OkStatus();
  if (compute.prompt_chunk_tokens == 0) options.limits.prompt_rows_max = kCpuPromptChunkTokens;
  if (compute.kv != KvChoice::kBf16) {
    return absl::InvalidArgumentError(absl::StrCat("kv: has no effect on ", choice.reason));
  }
  if (cache.vram_reserve) {
    return absl::InvalidArgumentError(
        absl::StrCat("vram_reserve: has no effect on ", choice.reason));
  }
  return absl::OkStatus();
}

std::string TrimSpace(std::string_view text, std::string* lead, std::string* trail) {
  constexpr std::string_view kSpace = " \t\r\n\v\f";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) {
    *lead = text;
    return "";
  }
  const size_t last = text.find_last_not_of(kSpace);
  *lead = text.substr(0, first);
  *trail = text.substr(last + 1);
  return std::string(text.substr(first, last + 1 - first));
}

}  // namespace

ModelSession::~ModelSession() { runner.reset(); }

absl::StatusOr<ExpertOptions> ExpertOptionsOf(const CacheConfig& config, const Manifest& manifest) {
  ExpertOptions options{.policy = config.policy,
                        .pcie_window_bytes_max = config.pcie_window_bytes_max};
  HEARTH_ASSIGN_OR_RETURN(const SlotsChoice slots, ParseSlots(config.slots));
  HEARTH_ASSIGN_OR_RETURN(options.pcie_share, ParsePcieShare(config.pcie_share));
  if (!config.slots.empty() || config.vram_budget) {
    options.slots = SlotBudget{
        .bytes = config.vram_budget.value_or(0), .slot_count = slots.count, .share = slots.share};
  }
  if (config.vram_reserve) options.vram_reserve_bytes = *config.vram_reserve;
  options.ram = !config.daemon.empty() ? RamTier::kDaemon
                : config.mmap_experts  ? RamTier::kMapped
                : config.ram_budget    ? RamTier::kBudget
                                       : RamTier::kWhole;
  options.ram_budget_bytes = config.ram_budget.value_or(0);
  options.daemon_socket = config.daemon;
  options.io = IoChoiceOf(config.io);
  if (config.profile.empty()) return options;
  HEARTH_ASSIGN_OR_RETURN(const RoutingProfile profile, ReadProfile(config.profile));
  HEARTH_RETURN_IF_ERROR(profile.CheckIdentity(IdentityOf(manifest), config.profile));
  options.seeds = SightingsOf(profile);
  return options;
}

absl::StatusOr<ModelSession> ModelSession::Open(const std::string& pack_dir,
                                                const ComputeConfig& compute,
                                                const CacheConfig& cache, const CommandIo& io,
                                                const Needs& needs) {
  const int64_t start_ns = io.clock.NowNs();
  ModelSession s;
  s.pack_dir = pack_dir;
  HEARTH_ASSIGN_OR_RETURN(const CpuKernels* kernels, ChooseKernels(compute.cpu_isa));
  s.isa = IsaName(kernels->isa);
  HEARTH_ASSIGN_OR_RETURN(Pack pack, Pack::Open(pack_dir));
  const std::string tokenizer_path = JoinPath(pack_dir, "tokenizer.json");
  HEARTH_ASSIGN_OR_RETURN(const std::string tokenizer_text,
                          ReadFile(tokenizer_path, kTextFileBytesMax));
  HEARTH_ASSIGN_OR_RETURN(Tokenizer tokenizer, Tokenizer::FromJson(tokenizer_text, tokenizer_path));
  s.tokenizer = std::make_unique<Tokenizer>(std::move(tokenizer));
  HEARTH_ASSIGN_OR_RETURN(s.workers,
                          Workers::Start(compute.threads, compute.cpus, io.allowed_cpus));
  PrintWorkers(s.workers, io.talk);
  if (needs.read_rate == ReadRate::kMeasure) {
    HEARTH_ASSIGN_OR_RETURN(s.read_rate, MeasureReadRate(*s.workers.team, io.clock));
  }
  RunnerOptions options{
      .arithmetic = compute.arithmetic,
      .limits = {.prompt_rows_max = compute.prompt_chunk_tokens == 0 ? kCpuPromptChunkTokens
                                                                     : compute.prompt_chunk_tokens},
      .ngram_in_memory = compute.ngram_in_memory,
      .planned_context_tokens = needs.context_tokens,
      .planned_sequences = needs.sequences,
      .prefix_bytes = needs.prefix_bytes};
  options.kv_format = KvFormatOf(compute.kv);
  HEARTH_ASSIGN_OR_RETURN(options.experts, ExpertOptionsOf(cache, pack.manifest));
  HEARTH_RETURN_IF_ERROR(PlaceOnCard(pack, compute, cache, io, options));
  HEARTH_ASSIGN_OR_RETURN(options.memory, AvailableMemory());
  HEARTH_ASSIGN_OR_RETURN(s.memory_plan,
                          ModelRunner::Plan(pack, options, s.workers.team->worker_count()));
  io.talk << "memory: " << DescribeMemoryPlan(s.memory_plan, options.memory) << "\n";
  std::string label;
  std::optional<Progress> line;
  const auto progress = [&](std::string_view what, uint64_t done, uint64_t total) {
    if (what != label) {
      line.emplace(io, ProgressOptions{.label = std::string(what), .total = total});
      label = what;
    }
    line->Update(done);
  };
  HEARTH_RETURN_IF_ERROR(s.workers.Beside([&]() -> absl::Status {
    HEARTH_ASSIGN_OR_RETURN(s.runner, ModelRunner::Load(std::move(pack), options, *kernels,
                                                        *s.workers.team, io.clock, progress));
    return absl::OkStatus();
  }));
  line.reset();
  for (const std::string& note : s.runner->experts().Notes()) io.talk << note << "\n";
  s.load_sec = static_cast<double>(io.clock.NowNs() - start_ns) * 1e-9;
  return s;
}

absl::StatusOr<std::vector<TokenId>> ReadTokenFile(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kTextFileBytesMax));
  const nlohmann::json j = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!j.is_array()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a JSON array of token ids, such as [1, 2, 3]"));
  }
  if (j.size() > kTokensMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, ": ", j.size(), " tokens, at most ", kTokensMax, " expected"));
  }
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < j.size(); ++i) {
    if (!j[i].is_number_integer() || j[i] < 0 || j[i] > INT32_MAX) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": element ", i, " is not a token id"));
    }
    tokens.push_back(j[i].get<TokenId>());
  }
  return tokens;
}

absl::StatusOr<std::vector<TokenId>> EncodeUserTurn(const ModelSession& session,
                                                    std::string_view user_text) {
  const std::string path = JoinPath(session.pack_dir, "chat_template.jinja");
  if (!FileExists(path)) {
    return absl::NotFoundError(
        absl::StrCat(path, ": this model comes without a chat template; leave out --chat"));
  }
  HEARTH_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Load(path));
  // The template sees a mark in place of the user's words, so that these can be encoded as plain
  // text where the mark stands; white space around them is the template's business and stays around
  // the mark.
  std::string lead, trail;
  const std::string words = TrimSpace(user_text, &lead, &trail);
  std::string mark = "hearth-user-text";
  while (user_text.find(mark) != std::string_view::npos) mark += '-';
  HEARTH_ASSIGN_OR_RETURN(const std::string rendered,
                          chat.Render(SingleUserTurn(lead + mark + trail)));
  const size_t at = rendered.find(mark);
  if (at == std::string::npos || rendered.find(mark, at + 1) != std::string::npos) {
    return absl::UnimplementedError(
        absl::StrCat(path, ": does not print a user's text exactly once"));
  }
  const std::string_view whole = rendered;
  const std::array<TextPart, 3> parts = {{{whole.substr(0, at), SpecialTokens::kParse},
                                          {words, SpecialTokens::kAsText},
                                          {whole.substr(at + mark.size()), SpecialTokens::kParse}}};
  return session.tokenizer->EncodeParts(parts);
}

absl::StatusOr<double> MeasureReadRate(WorkerTeam& team, Clock& clock) {
  constexpr uint64_t kBytes = 128_MiB;  // beyond the last-level cache of desktop processors
  constexpr int kRounds = 3;
  HEARTH_ASSIGN_OR_RETURN(const AnonymousMapping memory, AnonymousMapping::Create(kBytes));
  const std::span<uint64_t> words(reinterpret_cast<uint64_t*>(memory.data().data()), kBytes / 8);
  const auto pages = static_cast<uint32_t>(kBytes / 4_KiB);
  const uint64_t page_words = words.size() / pages;
  team.ForRanges(pages, 1, [&](uint32_t, uint32_t begin, uint32_t end) {
    std::fill(words.begin() + static_cast<ptrdiff_t>(begin * page_words),
              words.begin() + static_cast<ptrdiff_t>(end * page_words), uint64_t{begin});
  });
  std::atomic<uint64_t> sink{0};
  int64_t best_ns = INT64_MAX;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t start_ns = clock.NowNs();
    team.ForRanges(pages, 1, [&](uint32_t, uint32_t begin, uint32_t end) {
      std::array<uint64_t, 8> sum{};  // independent sums, so that loads are not serialised
      for (uint64_t i = begin * page_words; i < end * page_words; i += sum.size()) {
        for (size_t j = 0; j < sum.size(); ++j) sum[j] += words[i + j];
      }
      uint64_t total = 0;
      for (const uint64_t s : sum) total += s;
      sink.fetch_add(total, std::memory_order_relaxed);
    });
    best_ns = std::min(best_ns, clock.NowNs() - start_ns);
  }
  return static_cast<double>(kBytes) * 1e9 / static_cast<double>(std::max<int64_t>(best_ns, 1));
}

}  // namespace hearth::cli
