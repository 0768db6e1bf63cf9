#include "tools/hearth/prompt_bench.h"

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/status.h"
#include "runtime/config/replay_config.h"
#include "tools/hearth/expert_report.h"

namespace hearth::cli {
namespace {

double SecondsFor(double amount, double rate) { return rate > 0 ? amount / rate : 0; }

// One prompt of `tokens`, read as Generation reads it; adds its floors to `times`.
class PromptReading {
 public:
  PromptReading(ModelRunner& runner, TraceRoutes& routes, const MemoryRates& rates,
                double int8_ops_per_sec)
      : runner_(runner), routes_(routes), rates_(rates), int8_ops_per_sec_(int8_ops_per_sec) {}

  absl::Status Read(uint32_t token_count, uint64_t token, PromptTimes& times) {
    HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence,
                            runner_.CreateSequence(token_count));
    const uint32_t chunk_max = runner_.options().limits.prompt_rows_max;
    times.chunk_rows = std::min(chunk_max, token_count);
    times.floor_sec = times.dense_floor_sec = times.link_floor_sec = 0;
    times.served = {};
    std::vector<TokenId> tokens;
    for (uint32_t done = 0; done < token_count;) {
      const uint32_t rows = std::min(chunk_max, token_count - done);
      tokens.resize(rows);
      for (uint32_t r = 0; r < rows; ++r) {
        tokens[r] =
            static_cast<TokenId>((token + done + r) * 7919 % runner_.geometry().vocab_count);
      }
      routes_.set_token(token + done);
      HEARTH_RETURN_IF_ERROR(ReadChunk(*sequence, tokens, times));
      done += rows;
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadChunk(Sequence& sequence, std::span<const TokenId> tokens, PromptTimes& times) {
    const std::span<const LedgerCounts> layers = runner_.experts().tiers().ledger().layers();
    const std::vector<LedgerCounts> before(layers.begin(), layers.end());
    const uint64_t dense_before = runner_.bytes_read().dense;
    const auto rows = static_cast<uint32_t>(tokens.size());
    const Segment segment{.sequence = &sequence, .tokens = tokens};
    HEARTH_RETURN_IF_ERROR(runner_.RunTrunk({&segment, 1}, Phase::kPrompt));
    HEARTH_RETURN_IF_ERROR(runner_.Commit(sequence, rows));
    const ModelGeometry& g = runner_.geometry();
    const auto dense_bytes = static_cast<double>(runner_.bytes_read().dense - dense_before);
    const double dense_sec = rates_.card > 0
                                 ? std::max(SecondsFor(dense_bytes, rates_.card),
                                            SecondsFor(2 * dense_bytes * rows, int8_ops_per_sec_))
                                 : SecondsFor(dense_bytes, rates_.dram);
    const double operations = 2.0 * 3 * g.hidden * g.moe.expert_width;
    times.dense_floor_sec += dense_sec;
    times.floor_sec += dense_sec;
    for (size_t l = 0; l < layers.size(); ++l) {
      LedgerCounts layer = layers[l];
      layer -= before[l];
      times.floor_sec += PromptExpertFloorSec(layer, rates_, operations, int8_ops_per_sec_);
      times.link_floor_sec +=
          SecondsFor(static_cast<double>(layer.of(Service::kPcie).bytes), rates_.link);
      times.served += layer;
    }
    return absl::OkStatus();
  }

  ModelRunner& runner_;
  TraceRoutes& routes_;
  const MemoryRates& rates_;
  const double int8_ops_per_sec_;
};

}  // namespace

absl::StatusOr<std::vector<uint32_t>> ParsePromptList(std::string_view text) {
  constexpr uint32_t kPromptTokensMax = 1 << 20;
  std::vector<uint32_t> prompts;
  for (const std::string& part : SplitCommas(text)) {
    uint32_t tokens = 0;
    if (!absl::SimpleAtoi(part, &tokens) || tokens == 0 || tokens > kPromptTokensMax) {
      return absl::InvalidArgumentError(absl::StrCat("prompts: found '", part.substr(0, 60),
                                                     "', expected whole numbers from 1 to ",
                                                     kPromptTokensMax, ", such as 256,4096"));
    }
    prompts.push_back(tokens);
  }
  return prompts;
}

double PromptExpertFloorSec(const LedgerCounts& layer, const MemoryRates& rates,
                            double operations_per_entry, double int8_ops_per_sec) {
  const double bytes_sec = ExpertFloorSec(layer, rates);
  if (rates.card <= 0) return bytes_sec;
  const uint64_t entries = layer.of(Service::kVram).entries + layer.of(Service::kPcie).entries;
  return std::max(
      bytes_sec, SecondsFor(static_cast<double>(entries) * operations_per_entry, int8_ops_per_sec));
}

absl::StatusOr<PromptTimes> TimePrompts(ModelRunner& runner, TraceRoutes& routes, Clock& clock,
                                        const MemoryRates& rates, double int8_ops_per_sec,
                                        const PromptBenchOptions& options, uint64_t& token) {
  PromptTimes times{.tokens = options.tokens};
  PromptReading reading(runner, routes, rates, int8_ops_per_sec);
  std::vector<double> seconds;
  for (uint32_t round = 0; round <= options.rounds; ++round) {
    const int64_t start_ns = clock.NowNs();
    HEARTH_RETURN_IF_ERROR(reading.Read(options.tokens, token, times));
    token += options.tokens;
    if (round > 0) seconds.push_back(static_cast<double>(clock.NowNs() - start_ns) * 1e-9);
  }
  const auto middle = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  times.median_sec = *middle;
  return times;
}

std::string PromptHeader() {
  return " slots tokens  chunk  tokens/s         ms   floor ms floors | ms: dense+  link+    card  "
         "upload     cpu | experts: card upload    cpu\n";
}

std::string PromptLine(const std::string& slots, const PromptTimes& t, uint32_t cpu_workers) {
  const auto ms = [&](Service s) { return static_cast<double>(t.served.of(s).ns) * 1e-6; };
  return absl::StrFormat(
      "%6s %6d %6d %9.0f %10.2f %10.2f %5.2fx | %10.2f %6.1f %7.1f %7.1f %7.1f | %13d %6d %6d\n",
      slots, t.tokens, t.chunk_rows, t.tokens / t.median_sec, t.median_sec * 1e3, t.floor_sec * 1e3,
      t.median_sec / t.floor_sec, t.dense_floor_sec * 1e3, t.link_floor_sec * 1e3,
      ms(Service::kVram), ms(Service::kPcie), ms(Service::kCpu) / cpu_workers,
      t.served.of(Service::kVram).distinct, t.served.of(Service::kPcie).distinct,
      t.served.of(Service::kCpu).distinct);
}

nlohmann::ordered_json PromptJson(const std::string& slots, const PromptTimes& t) {
  return {{"slots", slots},
          {"tokens", t.tokens},
          {"chunk_rows", t.chunk_rows},
          {"tokens_per_sec", t.tokens / t.median_sec},
          {"median_sec", t.median_sec},
          {"floor_sec", t.floor_sec},
          {"dense_floor_sec", t.dense_floor_sec},
          {"link_floor_sec", t.link_floor_sec},
          {"ledger", ServicesJson(t.served)}};
}

}  // namespace hearth::cli
