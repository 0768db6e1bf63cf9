// hearth run: answers or continues a prompt.
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"
#include "runtime/config/generate_config.h"
#include "runtime/engine/generation.h"
#include "runtime/engine/window_tracer.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/expert_report.h"
#include "tools/hearth/model_session.h"
#include "tools/hearth/progress.h"
#include "tools/hearth/window_trace_file.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kSecondsPerNs = 1e-9;

absl::StatusOr<std::vector<TokenId>> PromptTokens(const GenerateConfig& config,
                                                  const ModelSession& session) {
  if (!config.tokens.empty()) return ReadTokenFile(config.tokens);
  if (config.chat) return EncodeUserTurn(session, config.prompt);
  return session.tokenizer->Encode(config.prompt, SpecialTokens::kParse);
}

GenerationRequest RequestOf(const GenerateConfig& config, std::vector<TokenId> prompt,
                            const ModelGeometry& geometry, bool hash_logits) {
  GenerationRequest request{.prompt = std::move(prompt),
                            .max_tokens = config.max_tokens,
                            .drafts_max = geometry.has_mtp ? config.spec : 0,
                            .ignore_stop_tokens = config.ignore_eos,
                            .stop_strings = config.stop,
                            .hash_logits = hash_logits};
  request.sampling = {.temperature = config.temperature,
                      .top_k = config.top_k,
                      .top_p = config.top_p,
                      .min_p = config.min_p,
                      .repetition_penalty = config.repetition_penalty,
                      .frequency_penalty = config.frequency_penalty,
                      .presence_penalty = config.presence_penalty,
                      .seed = config.seed,
                      .min_tokens = config.min_tokens};
  for (const std::string& entry : config.logit_bias) {
    const TokenBias bias = *ParseLogitBias(entry);  // Validate() has read it
    request.sampling.logit_bias.push_back({.token = bias.token, .bias = bias.bias});
  }
  return request;
}

// Everything that is known about the speed of one generation, in one place for text and JSON.
struct Speed {
  double prompt_sec, decode_sec, draft_sec;
  double prompt_rate, decode_rate;  // tokens per second
  double read_rate;                 // bytes per second, measured
  double floor_sec;                 // decode bytes over read_rate

  Speed(const GenerationStats& s, size_t output_tokens, double bytes_per_sec)
      : prompt_sec(static_cast<double>(s.prompt_ns) * kSecondsPerNs),
        decode_sec(static_cast<double>(s.decode_ns) * kSecondsPerNs),
        draft_sec(static_cast<double>(s.draft_ns) * kSecondsPerNs),
        prompt_rate(prompt_sec > 0 ? s.prompt_tokens / prompt_sec : 0),
        // The first token comes with the prompt.
        decode_rate(decode_sec > 0 ? static_cast<double>(output_tokens - 1) / decode_sec : 0),
        read_rate(bytes_per_sec),
        floor_sec(static_cast<double>(s.decode_bytes) / bytes_per_sec) {}
};

struct Drafts {
  uint64_t drafted = 0;
  uint64_t accepted = 0;
  explicit Drafts(const GenerationStats& s) {
    for (const uint64_t n : s.drafted) drafted += n;
    for (const uint64_t n : s.accepted) accepted += n;
  }
};

Json ResultJson(const Generation& generation, const ModelSession& session, std::string text,
                std::span<const TokenId> prompt, const Speed& speed, bool with_layers) {
  const GenerationStats s = generation.stats();
  const Drafts drafts(s);
  Json j;
  j["prompt_tokens"] = prompt;
  j["output_tokens"] = generation.output();
  j["text"] = std::move(text);
  j["finish_reason"] = FinishReasonName(generation.finish());
  j["logits_xxh3"] = absl::StrFormat("%016x", s.logits_xxh3);
  j["timings"] = {{"load_sec", session.load_sec},
                  {"prompt_token_count", s.prompt_tokens},
                  {"prompt_sec", speed.prompt_sec},
                  {"prompt_tokens_per_sec", speed.prompt_rate},
                  {"output_token_count", generation.output().size()},
                  {"decode_sec", speed.decode_sec},
                  {"decode_tokens_per_sec", speed.decode_rate},
                  {"draft_sec", speed.draft_sec},
                  {"windows", s.windows},
                  {"decode_bytes", s.decode_bytes},
                  {"read_bytes_per_sec", speed.read_rate},
                  {"decode_floor_sec", speed.floor_sec},
                  {"threads", session.workers.team->worker_count()},
                  {"cpu_isa", session.isa}};
  Json by_position = Json::array();
  for (size_t i = 0; i < s.drafted.size() && s.drafted[i] > 0; ++i) {
    by_position.push_back({{"drafted", s.drafted[i]}, {"accepted", s.accepted[i]}});
  }
  const double windows = static_cast<double>(s.windows);
  j["acceptance"] = {
      {"drafted", drafts.drafted},
      {"accepted", drafts.accepted},
      {"tokens_per_window",
       s.windows > 0 ? Json(static_cast<double>(generation.output().size() - 1) / windows)
                     : Json(nullptr)},
      {"by_position", by_position}};
  j["ledger"] = LedgerJson(session.runner->experts().tiers().ledger().total());
  j["request"] = RequestJson(s.served);
  j["experts"] = ExpertStatsJson(session.runner->experts(), with_layers);
  j["memory"] = MemoryPlanJson(session.memory_plan);
  return j;
}

std::string Summary(const Generation& generation, const ModelSession& session, const Speed& speed) {
  const GenerationStats s = generation.stats();
  const Drafts drafts(s);
  std::string line =
      absl::StrFormat("prompt %d tokens at %.0f tok/s; output %d tokens (%s) at %.0f tok/s",
                      s.prompt_tokens, speed.prompt_rate, generation.output().size(),
                      FinishReasonName(generation.finish()), speed.decode_rate);
  if (drafts.drafted > 0) {
    absl::StrAppendFormat(&line, "; %d of %d drafts accepted", drafts.accepted, drafts.drafted);
  }
  if (s.windows > 0) {
    absl::StrAppendFormat(&line,
                          "\ndecoding read %.1f MB of weights: %.1f x its floor of %.1f ms at the "
                          "%.1f GB/s measured (%s, %d threads)",
                          static_cast<double>(s.decode_bytes) * 1e-6,
                          speed.decode_sec / speed.floor_sec, speed.floor_sec * 1e3,
                          speed.read_rate * 1e-9, session.isa,
                          session.workers.team->worker_count());
  }
  return line + "\n";
}

absl::Status Run(const GenerateConfig& config, const CommandIo& io) {
  HEARTH_RETURN_IF_ERROR(CheckTraceFile(config.trace));
  HEARTH_ASSIGN_OR_RETURN(const ModelSession session,
                          ModelSession::Open(config.pack, config.compute, config.cache, io,
                                             {.read_rate = ModelSession::ReadRate::kMeasure}));
  HEARTH_ASSIGN_OR_RETURN(std::vector<TokenId> prompt, PromptTokens(config, session));
  const ModelGeometry& geometry = session.runner->geometry();
  if (config.spec > 0 && !geometry.has_mtp) {
    io.talk << "hearth: this model has no MTP head: decoding without drafts\n";
  }
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Generation> generation,
                          Generation::Create(*session.runner, *session.tokenizer, io.clock,
                                             RequestOf(config, prompt, geometry, io.json)));
  std::string text;
  const auto take = [&] {
    const std::string piece = generation->TakeText();
    text += piece;
    if (!io.json) io.results << piece << std::flush;
  };
  {
    Progress line(
        io, {.label = "reading the prompt", .unit = ProgressUnit::kTokens, .total = prompt.size()});
    HEARTH_RETURN_IF_ERROR(
        generation->ReadPrompt([&](uint64_t done, uint64_t) { line.Update(done); }));
  }
  take();
  std::optional<WindowTracer> tracer;
  if (!config.trace.trace_window.empty()) {
    tracer.emplace(*session.runner, config.trace.trace_window_index);
  }
  while (!generation->finished()) {
    if (tracer) HEARTH_RETURN_IF_ERROR(tracer->Begin());
    HEARTH_RETURN_IF_ERROR(generation->Step());
    if (tracer) HEARTH_RETURN_IF_ERROR(tracer->End());
    take();
  }
  const Speed speed(generation->stats(), generation->output().size(), session.read_rate);
  if (io.json) {
    io.results
        << ResultJson(*generation, session, std::move(text), prompt, speed, config.stats).dump()
        << "\n";
  } else {
    io.results << "\n" << std::flush;
    io.talk << Summary(*generation, session, speed);
    if (config.stats) io.results << ExpertStatsText(session.runner->experts());
  }
  if (!tracer) return absl::OkStatus();
  return WriteTraceFile(config.trace, *tracer, absl::StrCat("hearth run --pack ", config.pack), io);
}

}  // namespace

Command RunCommand() {
  return MakeCommand<GenerateConfig>(
      {.name = "run",
       .summary = "answer or continue a prompt",
       .notes = "Text goes to stdout, speed to stderr. Drafting (--spec) never changes the text."},
      Run);
}

}  // namespace hearth::cli
