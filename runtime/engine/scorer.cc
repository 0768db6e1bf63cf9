#include "runtime/engine/scorer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

// Rows of logits at a time: a bounded buffer whatever the vocabulary.
constexpr uint32_t kHeadRows = 8;

double LogSumExp(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float v : logits) sum += std::exp(static_cast<double>(v) - top);
  return top + std::log(sum);
}

std::vector<ScoredToken> TopTokens(std::span<const float> logits, double log_sum, uint32_t count) {
  std::vector<TokenId> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i);
  const auto n = static_cast<ptrdiff_t>(std::min<size_t>(count, ids.size()));
  std::partial_sort(ids.begin(), ids.begin() + n, ids.end(), [&](TokenId a, TokenId b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  std::vector<ScoredToken> top;
  for (ptrdiff_t i = 0; i < n; ++i) {
    top.push_back({.token = ids[i], .log_probability = logits[ids[i]] - log_sum});
  }
  return top;
}

void ScoreRow(std::span<const float> logits, std::span<const TokenId> tokens, uint32_t position,
              const ScoreOptions& options, Score& score) {
  const double log_sum = LogSumExp(logits);
  score.argmax.push_back(
      static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  if (position + 1 < tokens.size()) {
    score.nll.push_back(log_sum - logits[tokens[position + 1]]);
  }
  if (options.top_count > 0) score.top.push_back(TopTokens(logits, log_sum, options.top_count));
  if (options.on_logits) options.on_logits(position, logits);
}

}  // namespace

absl::StatusOr<Score> ScoreTokens(ModelRunner& runner, std::span<const TokenId> tokens,
                                  const ScoreOptions& options) {
  const ModelGeometry& g = runner.geometry();
  if (tokens.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("a text of ", tokens.size(), " tokens: scoring needs at least two"));
  }
  if (tokens.size() > g.context_tokens_max) {
    return absl::ResourceExhaustedError(absl::StrCat("the text has ", tokens.size(),
                                                     " tokens, this model's context is ",
                                                     g.context_tokens_max, ": score it in parts"));
  }
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence,
                          runner.CreateSequence(static_cast<uint32_t>(tokens.size())));
  Score score;
  std::vector<float> logits(size_t{kHeadRows} * g.vocab_count);
  size_t split = 0;
  for (uint32_t begin = 0; begin < tokens.size();) {
    uint32_t rows = runner.options().limits.prompt_rows_max;
    if (options.cut_rule) rows = NextPromptCut(tokens, begin, *options.cut_rule) - begin;
    if (options.window_rows != 0) {
      rows = options.window_rows;
    } else if (!options.splits.empty()) {
      rows = options.splits[std::min(split, options.splits.size() - 1)];
      ++split;
    }
    rows = static_cast<uint32_t>(std::min<size_t>(rows, tokens.size() - begin));
    const Segment segment{.sequence = sequence.get(), .tokens = tokens.subspan(begin, rows)};
    const bool as_prompt = options.cut_rule && options.splits.empty();
    const bool window = options.window_rows != 0 || (rows == 1 && !as_prompt);
    WindowTracer* const tracer = window ? options.tracer : nullptr;
    if (tracer != nullptr) HEARTH_RETURN_IF_ERROR(tracer->Begin());
    HEARTH_RETURN_IF_ERROR(
        runner.RunTrunk({&segment, 1}, window ? Phase::kWindow : Phase::kPrompt));
    for (uint32_t row = 0; row < rows; row += kHeadRows) {
      const uint32_t count = std::min(kHeadRows, rows - row);
      HEARTH_RETURN_IF_ERROR(runner.Head(row, count, logits));
      for (uint32_t i = 0; i < count; ++i) {
        ScoreRow(std::span<const float>(logits).subspan(size_t{i} * g.vocab_count, g.vocab_count),
                 tokens, begin + row + i, options, score);
      }
    }
    HEARTH_RETURN_IF_ERROR(runner.Commit(*sequence, rows));
    if (tracer != nullptr) HEARTH_RETURN_IF_ERROR(tracer->End());
    begin += rows;
    if (options.progress) options.progress(begin, tokens.size());
  }
  for (const double nll : score.nll) score.mean_nll += nll;
  score.mean_nll /= static_cast<double>(score.nll.size());
  return score;
}

}  // namespace hearth
