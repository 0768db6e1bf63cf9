// hearth score: how likely a model finds a text.
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/config/score_config.h"
#include "runtime/engine/divergence.h"
#include "runtime/engine/scorer.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/expert_report.h"
#include "tools/hearth/model_session.h"
#include "tools/hearth/progress.h"
#include "tools/hearth/window_trace_file.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kTextBytesMax = 16_MiB;

absl::StatusOr<std::vector<TokenId>> TokensOf(const ScoreConfig& config,
                                              const ModelSession& session) {
  std::vector<TokenId> tokens;
  if (!config.tokens.empty()) {
    HEARTH_ASSIGN_OR_RETURN(tokens, ReadTokenFile(config.tokens));
  } else {
    HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadFile(config.text, kTextBytesMax));
    tokens = session.tokenizer->Encode(text, SpecialTokens::kParse);
  }
  if (config.tokens_max != 0 && tokens.size() > config.tokens_max) {
    tokens.resize(config.tokens_max);
  }
  return tokens;
}

Json ScoreJson(const Score& score, std::span<const TokenId> tokens) {
  Json j;
  j["tokens"] = tokens;
  j["nll"] = score.nll;
  j["mean_nll"] = score.mean_nll;
  j["argmax"] = score.argmax;
  if (score.top.empty()) return j;
  Json top = Json::array();
  for (const std::vector<ScoredToken>& row : score.top) {
    Json entries = Json::array();
    for (const ScoredToken& t : row) {
      entries.push_back({{"token", t.token}, {"logprob", t.log_probability}});
    }
    top.push_back(std::move(entries));
  }
  j["top"] = std::move(top);
  return j;
}

void PrintTop(const Score& score, std::span<const TokenId> tokens, const ModelSession& session,
              std::ostream& out) {
  const auto quoted = [&](TokenId id) {
    return Json(session.tokenizer->Decode({&id, 1}, SkipSpecial::kNo)).dump();
  };
  for (size_t i = 0; i < score.top.size(); ++i) {
    out << i << " " << quoted(tokens[i]) << " ->";
    for (const ScoredToken& t : score.top[i]) {
      out << "  " << quoted(t.token) << absl::StrFormat(" %.3f", t.log_probability);
    }
    out << "\n";
  }
}

absl::Status RunAgainst(const ScoreConfig& config, const ModelSession& session,
                        std::span<const TokenId> tokens, const CommandIo& io) {
  HEARTH_ASSIGN_OR_RETURN(const ModelSession reference,
                          ModelSession::Open(config.against, config.compute, config.cache, io));
  if (session.runner->pack().manifest.tokenizer_xxh3_128 !=
      reference.runner->pack().manifest.tokenizer_xxh3_128) {
    return absl::InvalidArgumentError(
        absl::StrCat(config.against, ": its tokenizer is not the one of ", config.pack,
                     ": only packs of one model can be compared"));
  }
  absl::StatusOr<Divergence> d = absl::UnknownError("not compared");
  {
    Progress line(io,
                  {.label = "comparing", .unit = ProgressUnit::kTokens, .total = tokens.size()});
    d = CompareModels(*session.runner, *reference.runner, tokens,
                      [&line](uint64_t done) { line.Update(done); });
  }
  HEARTH_RETURN_IF_ERROR(d.status());
  const auto scored = static_cast<double>(d->scored_count);
  if (io.json) {
    const Json json = {{"positions", d->position_count},
                       {"mean_kl", d->mean_kl()},
                       {"top1_agreement", d->top_agreement()},
                       {"mean_nll", d->nll_sum / scored},
                       {"reference_mean_nll", d->reference_nll_sum / scored}};
    io.results << json.dump() << "\n";
    return absl::OkStatus();
  }
  io.results << absl::StrFormat(
      "mean_kl %.6f nats, top-1 agreement %.2f%% over %d positions; mean_nll %.6f, reference "
      "%.6f\n",
      d->mean_kl(), 100 * d->top_agreement(), d->position_count, d->nll_sum / scored,
      d->reference_nll_sum / scored);
  return absl::OkStatus();
}

// The account of the experts at every kHitTokens tokens, for seeing a cache warm up.
class HitHistory {
 public:
  explicit HitHistory(const ExpertTiers& tiers) : tiers_(tiers) {}
  void OnProgress(uint64_t done, uint64_t total) {
    if (done / kHitTokens == last_tokens_ / kHitTokens && done != total) return;
    const LedgerCounts now = tiers_.ledger().total();
    LedgerCounts step = now;
    step -= last_;
    steps_.push_back({{"tokens", done},
                      {"hit_rate", step.share(Service::kVram)},
                      {"distinct", step.total().distinct}});
    last_ = now;
    last_tokens_ = done;
  }
  const Json& json() const { return steps_; }

 private:
  static constexpr uint64_t kHitTokens = 250;
  const ExpertTiers& tiers_;
  LedgerCounts last_;
  uint64_t last_tokens_ = 0;
  Json steps_ = Json::array();
};

absl::Status Run(const ScoreConfig& config, const CommandIo& io) {
  HEARTH_RETURN_IF_ERROR(CheckTraceFile(config.trace));
  HEARTH_ASSIGN_OR_RETURN(const ModelSession session,
                          ModelSession::Open(config.pack, config.compute, config.cache, io));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, TokensOf(config, session));
  if (!config.against.empty()) return RunAgainst(config, session, tokens, io);
  const int64_t start_ns = io.clock.NowNs();
  const ExpertPlacement& experts = session.runner->experts();
  HitHistory hits(experts.tiers());
  std::optional<WindowTracer> tracer;
  if (!config.trace.trace_window.empty()) {
    tracer.emplace(*session.runner, config.trace.trace_window_index);
  }
  absl::StatusOr<Score> score = absl::UnknownError("not scored");
  {
    Progress line(io, {.label = "scoring", .unit = ProgressUnit::kTokens, .total = tokens.size()});
    score = ScoreTokens(
        *session.runner, tokens,
        {.top_count = config.top,
         .progress =
             [&](uint64_t done, uint64_t total) {
               line.Update(done);
               hits.OnProgress(done, total);
             },
         .cut_rule = PromptCutRuleOf(session.runner->options().limits, *session.tokenizer),
         .window_rows = config.window,
         .tracer = tracer ? &*tracer : nullptr});
  }
  HEARTH_RETURN_IF_ERROR(score.status());
  if (tracer) {
    HEARTH_RETURN_IF_ERROR(WriteTraceFile(config.trace, *tracer,
                                          absl::StrCat("hearth score --pack ", config.pack), io));
  }
  const double seconds = static_cast<double>(io.clock.NowNs() - start_ns) * 1e-9;
  if (io.json) {
    Json json = ScoreJson(*score, tokens);
    if (config.stats) {
      json["ledger"] = LedgerJson(experts.tiers().ledger().total());
      json["experts"] = ExpertStatsJson(experts, /*with_layers=*/true);
      json["hits"] = hits.json();
    }
    io.results << json.dump() << "\n";
    return absl::OkStatus();
  }
  PrintTop(*score, tokens, session, io.results);
  io.results << absl::StrFormat("mean_nll %.6f nats over %d tokens (perplexity %.3f)\n",
                                score->mean_nll, score->nll.size(), std::exp(score->mean_nll));
  if (config.stats) {
    io.results << ExpertStatsText(experts);
    for (const Json& step : hits.json()) {
      io.results << absl::StrFormat(
          "up to token %6d: %5.1f%% of %d experts in their slots\n", step["tokens"].get<uint64_t>(),
          100 * step["hit_rate"].get<double>(), step["distinct"].get<uint64_t>());
    }
  }
  io.talk << absl::StrFormat("%d tokens in %.2f s, %.0f tok/s\n", tokens.size(), seconds,
                             static_cast<double>(tokens.size()) / seconds);
  return absl::OkStatus();
}

}  // namespace

Command ScoreCommand() {
  return MakeCommand<ScoreConfig>(
      {.name = "score",
       .summary = "how likely a model finds a text, token by token",
       .notes = "The text must fit the model's context. With --against both packs "
                "are in memory at once."},
      Run);
}

}  // namespace hearth::cli
