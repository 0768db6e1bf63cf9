#include "runtime/engine/generation.h"

#include <algorithm>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

struct Generation::Hasher {
  XXH3_state_t state;
  Hasher() { XXH3_64bits_reset(&state); }
  void Add(std::span<const float> row) { XXH3_64bits_update(&state, row.data(), row.size_bytes()); }
  uint64_t Digest() const { return XXH3_64bits_digest(&state); }
};

Generation::Generation(ModelRunner& runner, const Tokenizer& tokenizer, Clock& clock,
                       const GenerationRequest& request, Sampler sampler, StopStringMatcher stops)
    : runner_(runner),
      clock_(clock),
      request_(request),
      sampler_(std::move(sampler)),
      decoder_(tokenizer),
      stops_(std::move(stops)),
      hasher_(std::make_unique<Hasher>()) {}

Generation::~Generation() = default;

absl::StatusOr<std::unique_ptr<Generation>> Generation::Create(ModelRunner& runner,
                                                               const Tokenizer& tokenizer,
                                                               Clock& clock,
                                                               const GenerationRequest& request) {
  const ModelGeometry& g = runner.geometry();
  const uint32_t context =
      request.context_tokens_max != 0 ? request.context_tokens_max : g.context_tokens_max;
  if (request.prompt.empty()) {
    return absl::InvalidArgumentError("the prompt is empty: at least one token is needed");
  }
  if (request.prompt.size() >= context) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the prompt has ", request.prompt.size(), " tokens; the context of ", context,
                     " must also hold the answer: shorten the prompt"));
  }
  if (request.drafts_max > kDraftsMax) {
    return absl::InvalidArgumentError(absl::StrCat("drafts per window: ", request.drafts_max,
                                                   " asked for, 0 to ", kDraftsMax, " possible"));
  }
  if (request.drafts_max > 0 && !g.has_mtp) {
    return absl::FailedPreconditionError(
        "this model has no MTP head to draft with: set the drafts per window to 0");
  }
  SamplerConfig config{.params = request.sampling, .vocab_count = g.vocab_count};
  if (!request.ignore_stop_tokens) config.stop_tokens = g.stop_tokens;
  config.token_count_reserve = static_cast<uint32_t>(
      std::min<uint64_t>(context, request.prompt.size() + request.max_tokens + kDraftsMax + 1));
  HEARTH_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(std::move(config)));
  HEARTH_RETURN_IF_ERROR(sampler.SetPrompt(request.prompt));
  HEARTH_ASSIGN_OR_RETURN(StopStringMatcher stops, StopStringMatcher::Create(request.stop_strings));
  std::unique_ptr<Generation> gen(
      new Generation(runner, tokenizer, clock, request, std::move(sampler), std::move(stops)));
  HEARTH_ASSIGN_OR_RETURN(gen->sequence_, runner.CreateSequence(context));
  const uint32_t rows_max = request.drafts_max + 1;
  std::span<float> logits = runner.logits_buffer();
  const size_t row_floats = g.vocab_count, window_floats = rows_max * row_floats;
  if (logits.size() < window_floats + row_floats) {
    gen->logits_memory_.resize(window_floats + row_floats);
    logits = gen->logits_memory_;
  }
  gen->logits_ = logits.first(window_floats);
  gen->draft_logits_ = logits.subspan(window_floats, row_floats);
  gen->rows_.reserve(rows_max);
  const uint32_t needed = gen->sampler_.largest_needed();
  if (!request.hash_logits && needed <= runner.top_logits_max()) gen->top_count_ = needed;
  gen->top_.resize(uint64_t{rows_max} * gen->top_count_);
  gen->top_rows_.reserve(rows_max);
  gen->emitted_.resize(rows_max);
  gen->drafts_.reserve(rows_max);
  gen->pair_tokens_.reserve(runner.options().limits.prompt_rows_max + rows_max);
  gen->token_limit_ = static_cast<uint32_t>(
      std::min<uint64_t>(request.max_tokens, context - request.prompt.size()));
  gen->output_.reserve(gen->token_limit_);
  gen->stats_.prompt_tokens = static_cast<uint32_t>(request.prompt.size());
  return gen;
}

absl::Status Generation::ReadPrompt(const PromptProgress& progress) {
  HEARTH_CHECK(output_.empty() && !finished());
  const int64_t start_ns = clock_.NowNs();
  const std::span<const TokenId> prompt = request_.prompt;
  const uint32_t chunk_max = runner_.options().limits.prompt_rows_max;
  for (size_t begin = 0; begin < prompt.size();) {
    const size_t count = std::min<size_t>(chunk_max, prompt.size() - begin);
    const Segment segment{.sequence = sequence_.get(), .tokens = prompt.subspan(begin, count)};
    HEARTH_RETURN_IF_ERROR(runner_.RunTrunk({&segment, 1}, Phase::kPrompt, {&stats_.served, 1}));
    begin += count;
    if (begin == prompt.size()) {
      HEARTH_RETURN_IF_ERROR(ReadHead(static_cast<uint32_t>(count) - 1, 1));
    }
    HEARTH_RETURN_IF_ERROR(runner_.Commit(*sequence_, static_cast<uint32_t>(count)));
    if (begin < prompt.size() && request_.drafts_max > 0) {
      // The MTP layer reads the prompt too: every position whose next token is known.
      const uint32_t first = sequence_->draft_count();
      HEARTH_RETURN_IF_ERROR(runner_.RunDraft(*sequence_, prompt.subspan(first + 1, begin - first),
                                              Backend::DraftSource::kTrunk));
      HEARTH_RETURN_IF_ERROR(runner_.CommitDraft(*sequence_));
    }
    if (progress) progress(begin, prompt.size());
  }
  HEARTH_RETURN_IF_ERROR(Accept(1, {}).status());
  stats_.prompt_ns = clock_.NowNs() - start_ns;
  return absl::OkStatus();
}

uint32_t Generation::DraftCount() const {
  const uint64_t budget_left = token_limit_ - output_.size();
  const uint32_t room = sequence_->context_tokens_max() - sequence_->token_count();
  // One row is the last token itself; a draft beyond the budget or the context could never be used.
  return static_cast<uint32_t>(
      std::min<uint64_t>({request_.drafts_max, budget_left - 1, room - 1}));
}

absl::StatusOr<TokenId> Generation::DraftChoice(uint32_t row) {
  if (runner_.top_logits_max() != 0) {
    TopLogit best;
    HEARTH_ASSIGN_OR_RETURN(const bool exact, runner_.HeadTop(row, 1, 1, {&best, 1}));
    if (exact) return best.token;
  }
  HEARTH_RETURN_IF_ERROR(runner_.Head(row, 1, draft_logits_));
  return static_cast<TokenId>(std::max_element(draft_logits_.begin(), draft_logits_.end()) -
                              draft_logits_.begin());
}

// Feeds the MTP layer all pairs that the last pass made known, then drafts token by token.
absl::Status Generation::Draft() {
  drafts_.clear();
  const uint32_t count = DraftCount();
  if (count == 0) return absl::OkStatus();
  const int64_t start_ns = clock_.NowNs();
  pair_tokens_.clear();
  // Position p pairs with the token at p + 1; the prompt and the output in a row give that token.
  const uint32_t prompt_count = stats_.prompt_tokens;
  for (uint32_t p = sequence_->draft_count(); p < sequence_->token_count(); ++p) {
    pair_tokens_.push_back(p + 1 < prompt_count ? request_.prompt[p + 1]
                                                : output_[p + 1 - prompt_count]);
  }
  HEARTH_RETURN_IF_ERROR(runner_.RunDraft(*sequence_, pair_tokens_, Backend::DraftSource::kTrunk));
  HEARTH_ASSIGN_OR_RETURN(const TokenId first,
                          DraftChoice(static_cast<uint32_t>(pair_tokens_.size()) - 1));
  HEARTH_RETURN_IF_ERROR(runner_.CommitDraft(*sequence_));
  drafts_.push_back(first);
  while (drafts_.size() < count) {
    const TokenId last = drafts_.back();
    HEARTH_RETURN_IF_ERROR(
        runner_.RunDraft(*sequence_, {&last, 1}, Backend::DraftSource::kChained));
    HEARTH_ASSIGN_OR_RETURN(const TokenId next, DraftChoice(0));
    drafts_.push_back(next);
  }
  stats_.draft_ns += clock_.NowNs() - start_ns;
  return absl::OkStatus();
}

absl::Status Generation::Step() {
  HEARTH_CHECK(!finished() && !output_.empty());
  const int64_t start_ns = clock_.NowNs();
  const uint64_t bytes_before = runner_.bytes_read().total();
  HEARTH_RETURN_IF_ERROR(Draft());
  std::array<TokenId, kDraftsMax + 1> window;
  window[0] = output_.back();
  std::copy(drafts_.begin(), drafts_.end(), window.begin() + 1);
  const auto rows = static_cast<uint32_t>(drafts_.size() + 1);
  const Segment segment{.sequence = sequence_.get(), .tokens = std::span(window).first(rows)};
  HEARTH_RETURN_IF_ERROR(runner_.RunTrunk({&segment, 1}, Phase::kWindow, {&stats_.served, 1}));
  HEARTH_RETURN_IF_ERROR(ReadHead(0, rows));
  HEARTH_ASSIGN_OR_RETURN(const Acceptance accepted, Accept(rows, drafts_));
  HEARTH_RETURN_IF_ERROR(runner_.Commit(*sequence_, accepted.commit_row_count));
  for (uint32_t i = 0; i + 1 < rows; ++i) {
    ++stats_.drafted[i];
    // Draft i is row i + 1: it was right when that row was kept.
    if (i + 1 < accepted.commit_row_count) ++stats_.accepted[i];
  }
  ++stats_.windows;
  stats_.decode_bytes += runner_.bytes_read().total() - bytes_before;
  stats_.decode_ns += clock_.NowNs() - start_ns;
  return absl::OkStatus();
}

absl::Status Generation::ReadHead(uint32_t row_begin, uint32_t rows) {
  rows_.clear();
  top_rows_.clear();
  if (top_count_ != 0) {
    HEARTH_ASSIGN_OR_RETURN(const bool exact, runner_.HeadTop(row_begin, rows, top_count_, top_));
    for (uint32_t r = 0; r < rows && exact; ++r) {
      top_rows_.push_back(std::span(top_).subspan(size_t{r} * top_count_, top_count_));
    }
    if (exact) return absl::OkStatus();
  }
  const uint32_t vocab = runner_.geometry().vocab_count;
  for (uint32_t r = 0; r < rows; ++r) {
    rows_.push_back(logits_.subspan(size_t{r} * vocab, vocab));
  }
  return runner_.Head(row_begin, rows, logits_.first(size_t{rows} * vocab));
}

absl::StatusOr<Acceptance> Generation::Accept(uint32_t rows, std::span<const TokenId> drafts) {
  HEARTH_CHECK(rows_.size() + top_rows_.size() == rows);
  const auto budget = token_limit_ - static_cast<uint32_t>(output_.size());
  HEARTH_ASSIGN_OR_RETURN(
      Acceptance accepted,
      AcceptWindow(
          {.logits = rows_, .largest = top_rows_, .drafts = drafts, .token_budget = budget},
          sampler_, emitted_));
  const uint32_t kept = KeepBeforeStopString(std::span(emitted_).first(accepted.token_count));
  if (stops_.stopped()) accepted = CutAcceptance(accepted, kept, sampler_);
  for (uint32_t i = 0; i < accepted.token_count; ++i) {
    output_.push_back(emitted_[i]);
    if (request_.hash_logits) hasher_->Add(rows_[i]);
  }
  finish_ = accepted.finish;
  if (finished()) FinishText();
  return accepted;
}

// Passes the tokens' text on until a stop string is complete; the number of tokens up to and with
// the one that completes it.
uint32_t Generation::KeepBeforeStopString(std::span<const TokenId> emitted) {
  for (uint32_t i = 0; i < emitted.size(); ++i) {
    if (sampler_.IsStopToken(emitted[i])) break;  // not part of the text
    if (stops_.Push(decoder_.Push(emitted[i]), pending_text_)) return i + 1;
  }
  return static_cast<uint32_t>(emitted.size());
}

void Generation::FinishText() {
  if (stops_.stopped()) return;
  if (!stops_.Push(decoder_.Finish(), pending_text_)) stops_.Finish(pending_text_);
}

std::string Generation::TakeText() { return std::exchange(pending_text_, {}); }

GenerationStats Generation::stats() const {
  GenerationStats stats = stats_;
  if (request_.hash_logits) stats.logits_xxh3 = hasher_->Digest();
  return stats;
}

}  // namespace hearth
