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

struct Generation::Parts {
  ModelRunner& runner;
  const Tokenizer& tokenizer;
  Clock& clock;
  const GenerationRequest& request;
  const GenerationShared& shared;
  std::unique_ptr<WindowBatch> own_batch;
  std::unique_ptr<Sequence> sequence;
  Sampler sampler;
  StopStringMatcher stops;
};

Generation::Generation(Parts parts)
    : runner_(parts.runner),
      clock_(parts.clock),
      request_(parts.request),
      own_batch_(std::move(parts.own_batch)),
      batch_(own_batch_ ? *own_batch_ : *parts.shared.batch),
      prefixes_(parts.shared.prefixes),
      cuts_(PromptCuts(request_.prompt,
                       PromptCutRuleOf(parts.runner.options().limits, parts.tokenizer))),
      sequence_(std::move(parts.sequence)),
      sampler_(std::move(parts.sampler)),
      decoder_(parts.tokenizer),
      stops_(std::move(parts.stops)),
      hasher_(std::make_unique<Hasher>()) {
  const uint32_t context = sequence_->context_tokens_max();
  const auto prompt_tokens = static_cast<uint32_t>(request_.prompt.size());
  token_limit_ = std::min(request_.max_tokens, context - prompt_tokens);
  const uint32_t needed = sampler_.largest_needed();
  const bool rows_suffice = !request_.hash_logits && !request_.wants_logprobs;
  if (rows_suffice && needed <= runner_.top_logits_max()) largest_needed_ = needed;
  drafting_ = request_.drafts_max > 0;
  output_.reserve(token_limit_);
  pair_tokens_.reserve(kDraftsMax + 1);
  stats_.prompt_tokens = prompt_tokens;
}

Generation::~Generation() = default;

absl::Status Generation::CheckRequest(const ModelGeometry& geometry,
                                      const GenerationRequest& request, uint32_t context) {
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
  if (request.drafts_max > 0 && !geometry.has_mtp) {
    return absl::FailedPreconditionError(
        "this model has no MTP head to draft with: set the drafts per window to 0");
  }
  if (request.top_logprobs > kTopLogprobsMax) {
    return absl::InvalidArgumentError(absl::StrCat("top_logprobs is ", request.top_logprobs,
                                                   ", accepted is 0 to ", kTopLogprobsMax));
  }
  if (request.constraint != nullptr && request.ignore_stop_tokens) {
    return absl::InvalidArgumentError(
        "an output of a given form ends where the form does: it cannot ignore stop tokens");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Generation>> Generation::Create(ModelRunner& runner,
                                                               const Tokenizer& tokenizer,
                                                               Clock& clock,
                                                               const GenerationRequest& request,
                                                               const GenerationShared& shared) {
  const ModelGeometry& g = runner.geometry();
  const uint32_t context =
      request.context_tokens_max != 0 ? request.context_tokens_max : g.context_tokens_max;
  HEARTH_RETURN_IF_ERROR(CheckRequest(g, request, context));
  SamplerConfig config{
      .params = request.sampling, .vocab_count = g.vocab_count, .constraint = request.constraint};
  if (!request.ignore_stop_tokens) config.stop_tokens = g.stop_tokens;
  config.token_count_reserve = static_cast<uint32_t>(
      std::min<uint64_t>(context, request.prompt.size() + request.max_tokens + kDraftsMax + 1));
  HEARTH_ASSIGN_OR_RETURN(Sampler sampler, Sampler::Create(std::move(config)));
  HEARTH_RETURN_IF_ERROR(sampler.SetPrompt(request.prompt));
  HEARTH_ASSIGN_OR_RETURN(StopStringMatcher stops, StopStringMatcher::Create(request.stop_strings));
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<Sequence> sequence, runner.CreateSequence(context));
  std::unique_ptr<WindowBatch> own_batch;
  if (shared.batch == nullptr) own_batch = std::make_unique<WindowBatch>(runner, clock);
  return std::unique_ptr<Generation>(new Generation({.runner = runner,
                                                     .tokenizer = tokenizer,
                                                     .clock = clock,
                                                     .request = request,
                                                     .shared = shared,
                                                     .own_batch = std::move(own_batch),
                                                     .sequence = std::move(sequence),
                                                     .sampler = std::move(sampler),
                                                     .stops = std::move(stops)}));
}

uint32_t Generation::prompt_tokens_read() const {
  return std::min(sequence_->token_count(), stats_.prompt_tokens);
}

absl::Status Generation::ReadPrompt(const PromptProgress& progress) {
  HEARTH_CHECK(!prompt_read());
  while (!prompt_read()) {
    HEARTH_RETURN_IF_ERROR(ReadPromptChunk());
    if (progress) progress(prompt_tokens_read(), stats_.prompt_tokens);
  }
  return absl::OkStatus();
}

absl::Status Generation::ReadPromptChunk() {
  HEARTH_CHECK(!prompt_read());
  const int64_t start_ns = clock_.NowNs();
  if (cuts_done_ == 0 && prefixes_ != nullptr) HEARTH_RETURN_IF_ERROR(RestorePrefix());
  const std::span<const TokenId> prompt = request_.prompt;
  const uint32_t begin = sequence_->token_count();
  const uint32_t end = cuts_[cuts_done_++], rows = end - begin;
  const bool last = end == prompt.size();
  HeadRows& heads = batch_.heads_;
  const Segment segment{.sequence = sequence_.get(), .tokens = prompt.subspan(begin, rows)};
  HEARTH_RETURN_IF_ERROR(runner_.RunTrunk({&segment, 1}, Phase::kPrompt, {&stats_.served, 1}));
  if (last) {
    const HeadAsk ask{.begin = rows - 1, .count = 1, .largest_needed = largest_needed_};
    HEARTH_RETURN_IF_ERROR(heads.Read({&ask, 1}));
  }
  HEARTH_RETURN_IF_ERROR(runner_.Commit(*sequence_, rows));
  int64_t choose_ns = 0;
  if (last) {
    const int64_t choose_start_ns = clock_.NowNs();
    HEARTH_RETURN_IF_ERROR(Accept(heads, 0).status());
    choose_ns = clock_.NowNs() - choose_start_ns;
  }
  // The MTP layer reads the prompt too. The row of the last position here pairs with the token
  // after it, which is not of this pass: so what a sequence holds at a cut depends on the tokens
  // before the cut alone.
  HEARTH_RETURN_IF_ERROR(FollowTrunk(end - 1));
  // What cannot be kept is read again by whoever needs it; the sequence is as before.
  if (prefixes_ != nullptr) (void)prefixes_->Keep(prefix_query(), *sequence_);
  const int64_t all_ns = clock_.NowNs() - start_ns;
  stats_.prompt_ns += all_ns;
  batch_.times_.choose_ns += choose_ns;
  batch_.times_.pass_ns += all_ns - choose_ns;
  return absl::OkStatus();
}

PrefixQuery Generation::prefix_query() const {
  return {
      .tokens = request_.prompt, .cuts = cuts_, .salt = request_.cache_salt, .drafts = drafting_};
}

absl::Status Generation::RestorePrefix() {
  const std::optional<FoundPrefix> found = prefixes_->Find(prefix_query());
  if (!found) return absl::OkStatus();
  if (!prefixes_->Restore(*found, *sequence_).ok()) {
    // Whatever that left of it: the prompt is read into another.
    HEARTH_ASSIGN_OR_RETURN(sequence_, runner_.CreateSequence(sequence_->context_tokens_max()));
    return absl::OkStatus();
  }
  const uint32_t count = sequence_->token_count();
  const auto cut = std::find(cuts_.begin(), cuts_.end(), count);
  HEARTH_CHECK(cut != cuts_.end() && count < stats_.prompt_tokens);
  cuts_done_ = static_cast<uint32_t>(cut - cuts_.begin()) + 1;
  stats_.reused_tokens = count;
  // The MTP layer goes on only where it has all rows but the last.
  drafting_ = drafting_ && sequence_->draft_count() + 1 == count;
  return absl::OkStatus();
}

uint32_t Generation::DraftRoom() const {
  const uint64_t budget_left = token_limit_ - output_.size();
  const uint32_t room = sequence_->context_tokens_max() - sequence_->token_count();
  // One row is the last token itself; a draft beyond the budget or the context could never be used.
  return static_cast<uint32_t>(
      std::min<uint64_t>({request_.drafts_max, budget_left - 1, room - 1}));
}

// Position p pairs with the token at p + 1; the prompt and the output in a row give that token.
absl::Status Generation::FollowTrunk(uint32_t position_end) {
  const uint32_t begin = sequence_->draft_count();
  if (!drafting_ || begin >= position_end) return absl::OkStatus();
  std::span<const TokenId> tokens;
  if (position_end < stats_.prompt_tokens) {
    tokens = std::span(request_.prompt).subspan(begin + 1, position_end - begin);
  } else {
    pair_tokens_.clear();
    for (uint32_t p = begin; p < position_end; ++p) {
      pair_tokens_.push_back(p + 1 < stats_.prompt_tokens ? request_.prompt[p + 1]
                                                          : output_[p + 1 - stats_.prompt_tokens]);
    }
    tokens = pair_tokens_;
  }
  HEARTH_RETURN_IF_ERROR(runner_.RunDraft(*sequence_, tokens, Backend::DraftSource::kTrunk));
  return runner_.CommitDraft(*sequence_);
}

absl::Status Generation::Draft(uint32_t drafts_max) {
  draft_count_ = 0;
  window_[0] = output_.back();
  const uint32_t room = DraftRoom();
  if (!drafting_ || room == 0) return absl::OkStatus();
  const int64_t start_ns = clock_.NowNs();
  const uint32_t count = std::min(drafts_max, room);
  const uint32_t rows = sequence_->token_count() - sequence_->draft_count();
  HEARTH_RETURN_IF_ERROR(FollowTrunk(sequence_->token_count()));
  while (draft_count_ < count) {
    const TokenId last = window_[draft_count_];
    if (draft_count_ > 0) {
      HEARTH_RETURN_IF_ERROR(
          runner_.RunDraft(*sequence_, {&last, 1}, Backend::DraftSource::kChained));
    }
    HEARTH_ASSIGN_OR_RETURN(window_[draft_count_ + 1],
                            batch_.heads_.DraftChoice(draft_count_ == 0 ? rows - 1 : 0));
    ++draft_count_;
  }
  stats_.draft_ns += clock_.NowNs() - start_ns;
  return absl::OkStatus();
}

std::span<const TokenId> Generation::WindowTokens() {
  return std::span(window_).first(draft_count_ + 1);
}

void Generation::CountDrafts(uint32_t rows_kept) {
  for (uint32_t i = 0; i < draft_count_; ++i) {
    ++stats_.drafted[i];
    // Draft i is row i + 1: it was right when that row was kept.
    if (i + 1 < rows_kept) ++stats_.accepted[i];
  }
}

absl::Status Generation::Step() {
  WindowShare share{.generation = this,
                    .drafts_max = std::min(request_.drafts_max, batch_.rows_max() - 1),
                    .status = absl::OkStatus()};
  batch_.Run({&share, 1});
  return share.status;
}

absl::StatusOr<Acceptance> Generation::Accept(const HeadRows& heads, size_t ask) {
  const std::span<const std::span<const float>> rows = heads.logits(ask);
  const auto budget = token_limit_ - static_cast<uint32_t>(output_.size());
  HEARTH_ASSIGN_OR_RETURN(Acceptance accepted,
                          AcceptWindow({.logits = rows,
                                        .largest = heads.largest(ask),
                                        .drafts = std::span(window_).subspan(1, draft_count_),
                                        .token_budget = budget},
                                       sampler_, emitted_));
  const uint32_t kept = KeepBeforeStopString(std::span(emitted_).first(accepted.token_count));
  if (stops_.stopped()) accepted = CutAcceptance(accepted, kept, sampler_);
  for (uint32_t i = 0; i < accepted.token_count; ++i) {
    output_.push_back(emitted_[i]);
    if (request_.hash_logits) hasher_->Add(rows[i]);
    if (request_.wants_logprobs && !sampler_.IsStopToken(emitted_[i])) Report(rows[i], emitted_[i]);
  }
  finish_ = accepted.finish;
  if (finished()) FinishText();
  return accepted;
}

void Generation::Report(std::span<const float> logits, TokenId token) {
  TokenReport report;
  report.top.resize(std::min<size_t>(request_.top_logprobs, logits.size()));
  report.chosen = ReadLogprobs(logits, token, report.top);
  pending_reports_.push_back(std::move(report));
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

std::vector<TokenReport> Generation::TakeReports() { return std::exchange(pending_reports_, {}); }

std::string_view Generation::stop_string() const {
  return stops_.stopped() ? std::string_view(request_.stop_strings[stops_.stop_index()])
                          : std::string_view();
}

GenerationStats Generation::stats() const {
  GenerationStats stats = stats_;
  if (request_.hash_logits) stats.logits_xxh3 = hasher_->Digest();
  return stats;
}

}  // namespace hearth
