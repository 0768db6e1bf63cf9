#include "runtime/engine/divergence.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kHeadRows = 8;  // rows of logits at a time

double LogSumExp(std::span<const float> logits) {
  const float top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float v : logits) sum += std::exp(static_cast<double>(v) - top);
  return top + std::log(sum);
}

ptrdiff_t IndexOfMax(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

void AddRow(std::span<const float> logits, std::span<const float> reference, const TokenId* next,
            Divergence& total) {
  const double log_sum = LogSumExp(logits);
  const double reference_log_sum = LogSumExp(reference);
  double kl = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double log_p = reference[i] - reference_log_sum;
    kl += std::exp(log_p) * (log_p - (logits[i] - log_sum));
  }
  total.kl_sum += kl;
  total.top_same_count += IndexOfMax(logits) == IndexOfMax(reference);
  ++total.position_count;
  if (next == nullptr) return;
  total.nll_sum += log_sum - logits[*next];
  total.reference_nll_sum += reference_log_sum - reference[*next];
  ++total.scored_count;
}

struct Side {
  ModelRunner& runner;
  std::unique_ptr<Sequence> sequence;
  std::vector<float> logits;

  absl::Status Run(std::span<const TokenId> tokens) {
    const Segment segment{.sequence = sequence.get(), .tokens = tokens};
    return runner.RunTrunk({&segment, 1}, Phase::kPrompt);
  }
  std::span<const float> Row(uint32_t row) const {
    const size_t vocab = runner.geometry().vocab_count;
    return std::span(logits).subspan(row * vocab, vocab);
  }
};

absl::StatusOr<Side> Begin(ModelRunner& runner, size_t token_count) {
  const ModelGeometry& g = runner.geometry();
  if (token_count < 2 || token_count > g.context_tokens_max) {
    return absl::InvalidArgumentError(absl::StrCat(runner.pack().dir, ": a text of ", token_count,
                                                   " tokens, expected 2 to ",
                                                   g.context_tokens_max));
  }
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Sequence> sequence,
                          runner.CreateSequence(static_cast<uint32_t>(token_count)));
  return Side{.runner = runner,
              .sequence = std::move(sequence),
              .logits = std::vector<float>(size_t{kHeadRows} * g.vocab_count)};
}

}  // namespace

void Divergence::Add(const Divergence& other) {
  position_count += other.position_count;
  kl_sum += other.kl_sum;
  top_same_count += other.top_same_count;
  scored_count += other.scored_count;
  nll_sum += other.nll_sum;
  reference_nll_sum += other.reference_nll_sum;
}

absl::StatusOr<Divergence> CompareModels(ModelRunner& model, ModelRunner& reference,
                                         std::span<const TokenId> tokens,
                                         const std::function<void(uint64_t)>& progress) {
  if (model.geometry().vocab_count != reference.geometry().vocab_count) {
    return absl::InvalidArgumentError(absl::StrCat(
        model.pack().dir, ": a vocabulary of ", model.geometry().vocab_count, " tokens, expected ",
        reference.geometry().vocab_count, " as in ", reference.pack().dir));
  }
  HEARTH_ASSIGN_OR_RETURN(Side ours, Begin(model, tokens.size()));
  HEARTH_ASSIGN_OR_RETURN(Side theirs, Begin(reference, tokens.size()));
  const uint32_t rows_max =
      std::min(model.options().limits.prompt_rows_max, reference.options().limits.prompt_rows_max);
  Divergence total;
  for (uint32_t begin = 0; begin < tokens.size();) {
    const auto rows = static_cast<uint32_t>(std::min<size_t>(rows_max, tokens.size() - begin));
    HEARTH_RETURN_IF_ERROR(ours.Run(tokens.subspan(begin, rows)));
    HEARTH_RETURN_IF_ERROR(theirs.Run(tokens.subspan(begin, rows)));
    for (uint32_t row = 0; row < rows; row += kHeadRows) {
      const uint32_t count = std::min(kHeadRows, rows - row);
      HEARTH_RETURN_IF_ERROR(model.Head(row, count, ours.logits));
      HEARTH_RETURN_IF_ERROR(reference.Head(row, count, theirs.logits));
      for (uint32_t i = 0; i < count; ++i) {
        const size_t next = size_t{begin} + row + i + 1;
        AddRow(ours.Row(i), theirs.Row(i), next < tokens.size() ? &tokens[next] : nullptr, total);
      }
    }
    HEARTH_RETURN_IF_ERROR(model.Commit(*ours.sequence, rows));
    HEARTH_RETURN_IF_ERROR(reference.Commit(*theirs.sequence, rows));
    begin += rows;
    if (progress) progress(begin);
  }
  return total;
}

}  // namespace hearth
