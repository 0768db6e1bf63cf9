#include "runtime/serve/served_request.h"

#include <new>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

ServedRequest::ServedRequest(CompletionId id, CompletionRequest request,
                             std::shared_ptr<CompletionSink> sink, const RequestNeed& need,
                             int64_t submitted_ns, int64_t deadline_ns)
    : id_(id),
      request_(std::move(request)),
      sink_(std::move(sink)),
      need_(need),
      submitted_ns_(submitted_ns),
      deadline_ns_(deadline_ns),
      prompt_tokens_(static_cast<uint32_t>(request_.prompt.size())) {}

absl::Status ServedRequest::Begin(ModelRunner& runner, const Tokenizer& tokenizer, Clock& clock,
                                  const GenerationShared& shared, uint32_t drafts_max) {
  begun_ns_ = clock.NowNs();
  try {
    const GenerationRequest asked{.prompt = std::move(request_.prompt),
                                  .max_tokens = need_.output_tokens,
                                  .drafts_max = drafts_max,
                                  .ignore_stop_tokens = request_.ignore_stop_tokens,
                                  .sampling = std::move(request_.sampling),
                                  .stop_strings = std::move(request_.stop_strings),
                                  .context_tokens_max = need_.context_tokens,
                                  .hash_logits = false,
                                  .constraint = std::move(request_.constraint),
                                  .wants_logprobs = request_.wants_logprobs,
                                  .top_logprobs = request_.top_logprobs,
                                  .cache_salt = std::move(request_.cache_salt)};
    HEARTH_ASSIGN_OR_RETURN(generation_,
                            Generation::Create(runner, tokenizer, clock, asked, shared));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "no memory for this request's buffers: ask again when others have ended");
  }
  return absl::OkStatus();
}

void ServedRequest::Count(int64_t now_ns, ServeCounters& counters) {
  const GenerationStats stats = generation_->stats();
  const uint32_t reused = stats.reused_tokens - reused_tokens_;
  const uint32_t read = generation_->prompt_tokens_read() - read_tokens_;
  counters.reused_tokens += reused;
  counters.prompt_tokens += read - reused;
  reused_tokens_ += reused;
  read_tokens_ += read;
  const auto emitted = static_cast<uint32_t>(generation_->output().size()) - output_tokens_;
  if (emitted > 0 && first_token_ns_ < 0) {
    first_token_ns_ = now_ns;
    counters.first_token.Add(now_ns - submitted_ns_);
  } else if (emitted > 0) {
    counters.token_gap.Add((now_ns - last_token_ns_) / emitted, emitted);
  }
  if (emitted > 0) last_token_ns_ = now_ns;
  counters.output_tokens += emitted;
  output_tokens_ += emitted;
  for (size_t i = 0; i < drafted_.size(); ++i) {
    counters.drafted[i] += stats.drafted[i] - drafted_[i];
    counters.accepted[i] += stats.accepted[i] - accepted_[i];
  }
  drafted_ = stats.drafted;
  accepted_ = stats.accepted;
}

void ServedRequest::Deliver(int64_t now_ns, ServeCounters& counters) {
  Count(now_ns, counters);
  CompletionDelta delta{.text = generation_->TakeText(), .report = generation_->TakeReports()};
  if (delta.text.empty() && delta.report.empty()) return;
  delta.tokens = output_tokens_ - told_tokens_;
  told_tokens_ = output_tokens_;
  sink_->OnDelta(std::move(delta));
}

void ServedRequest::CountEnd(FinishReason finish, int64_t now_ns, ServeCounters& counters) {
  ++counters.finished[static_cast<size_t>(finish)];
  counters.request_time.Add(now_ns - submitted_ns_);
}

void ServedRequest::End(FinishReason finish, int64_t now_ns, ServeCounters& counters) {
  CompletionEnd end{.finish = finish,
                    .stop_string = {},
                    .prompt_tokens = prompt_tokens_,
                    .reused_tokens = reused_tokens_,
                    .output_tokens = output_tokens_,
                    .queued_ns = (begun_ns_ < 0 ? now_ns : begun_ns_) - submitted_ns_,
                    .first_token_ns = first_token_ns_ < 0 ? 0 : first_token_ns_ - submitted_ns_,
                    .total_ns = now_ns - submitted_ns_,
                    .stats = {}};
  if (generation_ != nullptr) {
    end.stop_string = std::string(generation_->stop_string());
    end.stats = generation_->stats();
  }
  generation_.reset();
  CountEnd(finish, now_ns, counters);
  sink_->OnEnd(end);
}

void ServedRequest::Fail(const absl::Status& status, int64_t now_ns, ServeCounters& counters) {
  HEARTH_CHECK(!status.ok());
  generation_.reset();
  CountEnd(FinishReason::kError, now_ns, counters);
  sink_->OnError(status);
}

RequestInFlight ServedRequest::InFlight() const {
  const RequestPhase phase = begun_ns_ < 0         ? RequestPhase::kQueued
                             : first_token_ns_ < 0 ? RequestPhase::kReading
                                                   : RequestPhase::kDecoding;
  return {.id = id_,
          .phase = phase,
          .prompt_tokens = prompt_tokens_,
          .reused_tokens = reused_tokens_,
          .read_tokens = read_tokens_,
          .output_tokens = output_tokens_,
          .submitted_ns = submitted_ns_,
          .first_token_ns = first_token_ns_};
}

}  // namespace hearth
