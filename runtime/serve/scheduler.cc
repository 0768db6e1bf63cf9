#include "runtime/serve/scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/serve/request_check.h"

namespace hearth {
namespace {

absl::Status CheckRange(const char* option, uint64_t value, uint64_t least, uint64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, " is ", value, ", accepted is ", least, " to ", most));
}

absl::Status CheckOptions(const SchedulerOptions& options, const ModelGeometry& geometry,
                          const PassLimits& limits) {
  HEARTH_RETURN_IF_ERROR(CheckRange("sequences_max", options.sequences_max, 1, kSequencesMax));
  HEARTH_RETURN_IF_ERROR(CheckRange("queue_max", options.queue_max, 1, kQueueMax));
  HEARTH_RETURN_IF_ERROR(
      CheckRange("context_tokens_max", options.context_tokens_max, 0, geometry.context_tokens_max));
  const uint32_t drafts_most =
      geometry.has_mtp ? std::min(kDraftsMax, limits.window_rows_max - 1) : 0;
  HEARTH_RETURN_IF_ERROR(CheckRange("drafts_max", options.drafts_max, 0, drafts_most));
  HEARTH_RETURN_IF_ERROR(
      CheckRange("drafting_sequences_max", options.drafting_sequences_max, 1, kSequencesMax));
  if (options.timeout_ns < 0 || options.aging_ns <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("timeout_ns is ", options.timeout_ns, " and aging_ns ", options.aging_ns,
                     ", accepted are 0 (none) and more for the former, 1 and more for the latter"));
  }
  return absl::OkStatus();
}

absl::Status Stopping() {
  return absl::UnavailableError("the service is stopping: ask again later");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Scheduler>> Scheduler::Create(const SchedulerDeps& deps,
                                                             const SchedulerOptions& options) {
  const ModelRunner& runner = deps.runner;
  const ModelGeometry& geometry = runner.geometry();
  HEARTH_RETURN_IF_ERROR(CheckOptions(options, geometry, runner.options().limits));
  const uint32_t context =
      options.context_tokens_max != 0 ? options.context_tokens_max : geometry.context_tokens_max;
  HEARTH_ASSIGN_OR_RETURN(const uint64_t least, runner.SequenceBytes(1));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t most, runner.SequenceBytes(context));
  // Grows with the tokens in steps; the line through both ends, rounded up.
  const uint64_t steps = std::max(context, 2u) - 1;
  const SequenceCost cost{.fixed_bytes = least, .bytes_per_token = (most - least) / steps + 1};
  if (least > options.state_budget_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("state_budget_bytes is ", options.state_budget_bytes, ": one sequence takes ",
                     least, " and ", cost.bytes_per_token, " per token"));
  }
  return std::unique_ptr<Scheduler>(new Scheduler(deps, options, context, cost));
}

Scheduler::Scheduler(const SchedulerDeps& deps, const SchedulerOptions& options,
                     uint32_t context_tokens_max, const SequenceCost& cost)
    : deps_(deps),
      options_(options),
      context_tokens_max_(context_tokens_max),
      cost_(cost),
      queue_(options.queue_max, options.aging_ns),
      batch_(deps.runner, deps.clock) {
  reading_.reserve(options.sequences_max);
  decoding_.reserve(options.sequences_max);
  shares_.reserve(options.sequences_max);
  shown_.reserve(options.sequences_max + kRequestsShownMax);
}

Scheduler::~Scheduler() {
  Stop();
  EndWhatMayNotGoOn();
}

RequestNeed Scheduler::NeedOf(const CompletionRequest& request) const {
  const auto prompt = static_cast<uint32_t>(request.prompt.size());
  const uint32_t room = context_tokens_max_ - prompt;
  const uint32_t output = std::min(request.max_tokens.value_or(room), room);
  return {.context_tokens = prompt + output,
          .output_tokens = output,
          .state_bytes = cost_.fixed_bytes + cost_.bytes_per_token * (prompt + output)};
}

absl::Status Scheduler::Refuse(Refusal why, absl::Status status) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++refused_[static_cast<size_t>(why)];
  return status;
}

absl::StatusOr<CompletionId> Scheduler::Submit(CompletionRequest request,
                                               std::shared_ptr<CompletionSink> sink) {
  HEARTH_CHECK(sink != nullptr);
  const absl::Status checked =
      CheckCompletionRequest(request, deps_.runner.geometry(), context_tokens_max_);
  if (!checked.ok()) {
    return Refuse(absl::IsOutOfRange(checked) ? Refusal::kContext : Refusal::kInvalid, checked);
  }
  const RequestNeed need = NeedOf(request);
  if (need.state_bytes > options_.state_budget_bytes) {
    return Refuse(Refusal::kQueueFull,
                  absl::ResourceExhaustedError(absl::StrCat(
                      "the state of ", need.context_tokens, " tokens takes ", need.state_bytes,
                      " bytes, all sequences together may take ", options_.state_budget_bytes,
                      ": shorten the prompt or ask for fewer max_tokens")));
  }
  const int64_t now_ns = deps_.clock.NowNs();
  int64_t deadline_ns = INT64_MAX;
  for (const int64_t timeout_ns : {request.timeout_ns, options_.timeout_ns}) {
    if (timeout_ns == 0 || timeout_ns > INT64_MAX - now_ns) continue;
    deadline_ns = std::min(deadline_ns, now_ns + timeout_ns);
  }
  std::unique_lock<std::mutex> lock(mutex_);
  if (draining_ || stopping_) {
    lock.unlock();
    return Refuse(Refusal::kStopping, Stopping());
  }
  if (queue_.full()) {
    lock.unlock();
    return Refuse(Refusal::kQueueFull,
                  absl::ResourceExhaustedError(
                      absl::StrCat(options_.queue_max, " requests wait already: ask again later")));
  }
  const CompletionId id = next_id_++;
  queue_.Push(std::make_unique<ServedRequest>(id, std::move(request), std::move(sink), need, now_ns,
                                              deadline_ns));
  live_[id] = queue_.requests().back().get();
  ++submitted_;
  lock.unlock();
  wake_.notify_one();
  return id;
}

void Scheduler::Cancel(CompletionId id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto at = live_.find(id);
  if (at != live_.end()) at->second->Cancel();
}

void Scheduler::Drain() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    draining_ = true;
  }
  wake_.notify_one();
}

void Scheduler::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
}

void Scheduler::Serve() {
  for (;;) {
    while (RunRound()) {
    }
    std::unique_lock<std::mutex> lock(mutex_);
    if (queue_.count() != 0) continue;
    if (draining_ || stopping_) return;
    lock.unlock();
    last_window_ns_ = -1;
    if (deps_.observer != nullptr) deps_.observer->BeforeIdle(counts_);
    const int64_t begin_ns = deps_.clock.NowNs();
    lock.lock();
    wake_.wait(lock, [this] { return queue_.count() != 0 || draining_ || stopping_; });
    counts_.idle_ns += deps_.clock.NowNs() - begin_ns;
  }
}

bool Scheduler::RunRound() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (queue_.count() == 0 && !has_work()) return false;
  }
  if (deps_.observer != nullptr) deps_.observer->BeforeRound();
  const int64_t begin_ns = deps_.clock.NowNs();
  const BatchTimes before = batch_.times();
  EndWhatMayNotGoOn();
  Admit();
  if (!reading_.empty()) {
    ReadChunk();
    EndWhatMayNotGoOn();
  }
  const bool window = !decoding_.empty();
  if (window) RunWindow();
  CountRound(begin_ns, before, window);
  Publish();
  if (deps_.observer != nullptr) deps_.observer->AfterRound(counts_);
  return true;
}

void Scheduler::EndWhatMayNotGoOn() {
  const int64_t now_ns = deps_.clock.NowNs();
  Requests ended;
  bool stopping = false;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping = stopping_;
    const auto& waiting = queue_.requests();
    for (size_t i = 0; i < waiting.size();) {
      if (stopping || waiting[i]->cancelled() || waiting[i]->expired(now_ns)) {
        ended.push_back(queue_.Take(waiting[i].get()));
      } else {
        ++i;
      }
    }
  }
  for (Requests* const requests : {&reading_, &decoding_}) {
    for (auto& request : *requests) {
      if (stopping || request->cancelled() || request->expired(now_ns)) {
        ended.push_back(std::move(request));
      }
    }
    std::erase(*requests, nullptr);
  }
  for (auto& request : ended) {
    if (stopping) {
      request->Fail(Stopping(), now_ns, counts_);
    } else if (request->cancelled()) {
      request->End(FinishReason::kCancelled, now_ns, counts_);
    } else {
      request->Fail(absl::DeadlineExceededError(absl::StrCat(
                        "the request was not done within its time, ",
                        (now_ns - request->submitted_ns()) / 1'000'000, " ms after it came")),
                    now_ns, counts_);
    }
    Forget(std::move(request));
  }
}

// Begins those that there is room for. The next in turn is waited for, so that a long one is not
// overtaken for ever by short ones.
void Scheduler::Admit() {
  while (reading_.size() + decoding_.size() < options_.sequences_max) {
    const int64_t now_ns = deps_.clock.NowNs();
    std::unique_ptr<ServedRequest> request;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const ServedRequest* const next = queue_.Next(now_ns);
      if (next == nullptr) return;
      if (next->need().state_bytes > options_.state_budget_bytes - state_bytes_) return;
      request = queue_.Take(next);
    }
    counts_.queue_wait.Add(now_ns - request->submitted_ns());
    const absl::Status begun =
        request->Begin(deps_.runner, deps_.tokenizer, deps_.clock,
                       {.batch = &batch_, .prefixes = deps_.prefixes}, options_.drafts_max);
    if (!begun.ok()) {
      request->Fail(begun, now_ns, counts_);
      Forget(std::move(request));
      continue;
    }
    state_bytes_ += request->need().state_bytes;
    request->set_admitted();
    reading_.push_back(std::move(request));
  }
}

void Scheduler::ReadChunk() {
  const int64_t now_ns = deps_.clock.NowNs();
  const auto priority = [&](const std::unique_ptr<ServedRequest>& request) {
    return AgedPriority(request->request().priority, now_ns - request->submitted_ns(),
                        options_.aging_ns);
  };
  const auto turn =
      std::max_element(reading_.begin(), reading_.end(),
                       [&](const auto& a, const auto& b) { return priority(a) < priority(b); });
  std::unique_ptr<ServedRequest> request = std::move(*turn);
  reading_.erase(turn);
  const absl::Status status = request->generation().ReadPromptChunk();
  ++counts_.prompt_passes;
  if (Settle(*request, status)) {
    Forget(std::move(request));
    return;
  }
  (request->generation().prompt_read() ? decoding_ : reading_).push_back(std::move(request));
}

void Scheduler::RunWindow() {
  const WindowFill fill = FillWindow({.rows_max = batch_.rows_max(),
                                      .drafts_max = options_.drafts_max,
                                      .drafting_sequences_max = options_.drafting_sequences_max},
                                     static_cast<uint32_t>(decoding_.size()));
  shares_.clear();
  for (uint32_t i = 0; i < fill.sequence_count; ++i) {
    shares_.push_back({.generation = &decoding_[i]->generation(),
                       .drafts_max = fill.drafts_of(i),
                       .keeps_drafting = fill.keeps_drafting,
                       .status = absl::OkStatus()});
  }
  batch_.Run(shares_);
  counts_.CountWindow(batch_.last_rows());
  for (uint32_t i = 0; i < fill.sequence_count; ++i) {
    if (Settle(*decoding_[i], shares_[i].status)) Forget(std::move(decoding_[i]));
  }
  std::rotate(decoding_.begin(), decoding_.begin() + fill.sequence_count, decoding_.end());
  std::erase(decoding_, nullptr);
}

bool Scheduler::Settle(ServedRequest& request, const absl::Status& status) {
  const int64_t now_ns = deps_.clock.NowNs();
  if (!status.ok()) {
    request.Fail(status, now_ns, counts_);
    return true;
  }
  request.Deliver(now_ns, counts_);
  if (!request.generation().finished()) return false;
  request.End(request.generation().finish(), now_ns, counts_);
  return true;
}

void Scheduler::Forget(std::unique_ptr<ServedRequest> request) {
  if (request->admitted()) state_bytes_ -= request->need().state_bytes;
  const std::lock_guard<std::mutex> lock(mutex_);
  live_.erase(request->id());
}

void Scheduler::CountRound(int64_t begin_ns, const BatchTimes& before, bool window) {
  const int64_t end_ns = deps_.clock.NowNs();
  if (!window) {
    last_window_ns_ = -1;
    return;
  }
  const BatchTimes& after = batch_.times();
  const int64_t busy_ns = after.pass_ns - before.pass_ns + after.choose_ns - before.choose_ns;
  counts_.overhead.Add(end_ns - begin_ns - busy_ns);
  counts_.window_time.Add(end_ns - (last_window_ns_ < 0 ? begin_ns : last_window_ns_));
  last_window_ns_ = end_ns;
}

void Scheduler::Publish() {
  shown_.clear();
  for (const Requests* const requests : {&reading_, &decoding_}) {
    for (const auto& request : *requests) shown_.push_back(request.get());
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  for (size_t i = 0; i < queue_.requests().size() && i < kRequestsShownMax; ++i) {
    shown_.push_back(queue_.requests()[i].get());
  }
  std::sort(shown_.begin(), shown_.end(),
            [](const ServedRequest* a, const ServedRequest* b) { return a->id() < b->id(); });
  counts_.shown_count = static_cast<uint32_t>(std::min<size_t>(shown_.size(), kRequestsShownMax));
  for (uint32_t i = 0; i < counts_.shown_count; ++i) counts_.shown[i] = shown_[i]->InFlight();
  counts_.queued = queue_.count();
  counts_.reading = static_cast<uint32_t>(reading_.size());
  counts_.decoding = static_cast<uint32_t>(decoding_.size());
  counts_.submitted = submitted_;
  counts_.refused = refused_;
  published_ = counts_;
}

ServeCounters Scheduler::counters() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  ServeCounters counters = published_;
  counters.refused = refused_;
  return counters;
}

}  // namespace hearth
