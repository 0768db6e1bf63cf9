#include "runtime/engine/route_recorder.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

// Sets a runner's observer and takes it away again.
class ObserverScope {
 public:
  ObserverScope(ModelRunner& runner, PassObserver* observer) : runner_(runner) {
    runner_.set_observer(observer);
  }
  ~ObserverScope() { runner_.set_observer(nullptr); }
  ObserverScope(const ObserverScope&) = delete;
  ObserverScope& operator=(const ObserverScope&) = delete;

 private:
  ModelRunner& runner_;
};

}  // namespace

RouteRecorder::RouteRecorder(const RoutingIdentity& identity, const RouteRecorderOptions& options)
    : identity_(identity), options_(options), seen_(identity.expert_count) {
  HEARTH_CHECK(identity.expert_count <= UINT16_MAX + 1u);
  trace_.identity = identity;
}

absl::Status RouteRecorder::BeginText(std::string_view domain) {
  pass_layers_ = 0;
  text_begins_ = true;
  const auto it = std::ranges::find_if(
      domains_, [&](const Domain& d) { return std::string_view(d.counts.name) == domain; });
  domain_ = static_cast<size_t>(it - domains_.begin());
  if (it != domains_.end()) return absl::OkStatus();
  if (domains_.size() == kProfileDomainsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("domain '", ToAbsl(domain.substr(0, 60)), "': a profile has at most ",
                     kProfileDomainsMax, "; put texts together by folder"));
  }
  Domain added;
  added.counts.name = domain;
  added.counts.counts.resize(size_t{identity_.all_layer_count()} * identity_.expert_count);
  domains_.push_back(std::move(added));
  return absl::OkStatus();
}

void RouteRecorder::OnRoutes(LayerId layer, const Routes& routes) {
  HEARTH_CHECK(routes.ranks == identity_.ranks && layer.value < identity_.all_layer_count() &&
               domain_ < domains_.size());
  if (layer.value >= identity_.layer_count) return AddDrafts(routes);
  if (layer.value == 0) {
    pass_rows_ = routes.rows;
    pass_layers_ = 0;
    pass_.resize(size_t{routes.rows} * identity_.layer_count * identity_.ranks);
  }
  HEARTH_CHECK(layer.value == pass_layers_ && routes.rows == pass_rows_);
  for (uint32_t row = 0; row < routes.rows; ++row) {
    uint16_t* const to =
        pass_.data() + (size_t{row} * identity_.layer_count + layer.value) * identity_.ranks;
    for (uint32_t rank = 0; rank < identity_.ranks; ++rank) {
      const uint32_t expert = routes.expert[size_t{row} * identity_.ranks + rank];
      HEARTH_CHECK(expert < identity_.expert_count);
      to[rank] = static_cast<uint16_t>(expert);
    }
  }
  if (++pass_layers_ == identity_.layer_count) EndPass();
}

void RouteRecorder::AddDrafts(const Routes& routes) {
  Domain& domain = domains_[domain_];
  const uint64_t rows =
      std::min<uint64_t>(routes.rows, domain.counts.token_count - domain.draft_rows);
  uint64_t* const counts =
      domain.counts.counts.data() + size_t{identity_.layer_count} * identity_.expert_count;
  for (const uint32_t expert : routes.expert.first(rows * identity_.ranks)) {
    HEARTH_CHECK(expert < identity_.expert_count);
    ++counts[expert];
  }
  domain.draft_rows += rows;
}

void RouteRecorder::EndPass() {
  Domain& domain = domains_[domain_];
  domain.counts.token_count += pass_rows_;
  const uint16_t* route = pass_.data();
  for (uint32_t row = 0; row < pass_rows_; ++row) {
    uint64_t* counts = domain.counts.counts.data();
    for (uint32_t layer = 0; layer < identity_.layer_count; ++layer) {
      for (uint32_t rank = 0; rank < identity_.ranks; ++rank) ++counts[*route++];
      counts += identity_.expert_count;
    }
  }
  CountWindows(domain);
  const uint64_t traced =
      std::min<uint64_t>(pass_rows_, options_.trace_tokens_max -
                                         std::min(options_.trace_tokens_max, trace_.token_count()));
  untraced_tokens_ += pass_rows_ - traced;
  if (traced == 0) return;
  if (text_begins_) trace_.text_begins.push_back(trace_.token_count());
  text_begins_ = false;
  const size_t values = traced * identity_.layer_count * identity_.ranks;
  trace_.routes.insert(trace_.routes.end(), pass_.begin(),
                       pass_.begin() + static_cast<ptrdiff_t>(values));
}

uint64_t RouteRecorder::DistinctIn(uint32_t layer, uint32_t row_begin, uint32_t row_count) {
  if (++window_number_ == 0) {  // the numbers have come round
    std::ranges::fill(seen_, 0u);
    ++window_number_;
  }
  uint64_t distinct = 0;
  for (uint32_t row = row_begin; row < row_begin + row_count; ++row) {
    const uint16_t* const routes =
        pass_.data() + (size_t{row} * identity_.layer_count + layer) * identity_.ranks;
    for (uint32_t rank = 0; rank < identity_.ranks; ++rank) {
      distinct += seen_[routes[rank]] != window_number_;
      seen_[routes[rank]] = window_number_;
    }
  }
  return distinct;
}

void RouteRecorder::CountWindows(Domain& domain) {
  for (uint32_t window = 1; window <= kStatWindowMax; ++window) {
    for (uint32_t row = 0; row + window <= pass_rows_; row += window) {
      ++domain.windows[window];
      for (uint32_t layer = 0; layer < identity_.layer_count; ++layer) {
        domain.distinct[window] += DistinctIn(layer, row, window);
      }
    }
  }
}

RoutingProfile RouteRecorder::profile() const {
  RoutingProfile profile{.identity = identity_, .domains = {}};
  for (const Domain& domain : domains_) {
    if (domain.counts.token_count > 0) profile.domains.push_back(domain.counts);
  }
  return profile;
}

double RouteRecorder::DistinctPerWindow(std::string_view domain, uint32_t window) const {
  HEARTH_CHECK(window >= 1 && window <= kStatWindowMax);
  for (const Domain& d : domains_) {
    if (std::string_view(d.counts.name) != domain || d.windows[window] == 0) continue;
    return static_cast<double>(d.distinct[window]) /
           (static_cast<double>(d.windows[window]) * identity_.layer_count);
  }
  return 0;
}

namespace {

// One part of a text, in a sequence of its own.
absl::Status RecordPart(ModelRunner& runner, std::span<const TokenId> tokens,
                        const std::function<void(uint64_t)>& progress) {
  HEARTH_ASSIGN_OR_RETURN(const std::unique_ptr<Sequence> sequence,
                          runner.CreateSequence(static_cast<uint32_t>(tokens.size())));
  const bool has_mtp = runner.geometry().has_mtp;
  for (size_t begin = 0; begin < tokens.size();) {
    const size_t count =
        std::min<size_t>(runner.options().limits.prompt_rows_max, tokens.size() - begin);
    const Segment segment{.sequence = sequence.get(), .tokens = tokens.subspan(begin, count)};
    HEARTH_RETURN_IF_ERROR(runner.RunTrunk({&segment, 1}, Phase::kPrompt));
    HEARTH_RETURN_IF_ERROR(runner.Commit(*sequence, static_cast<uint32_t>(count)));
    begin += count;
    // The MTP layer reads every position whose next token is known: all but the last.
    const size_t known = std::min(begin, tokens.size() - 1);
    const uint32_t first = sequence->draft_count();
    if (has_mtp && known > first) {
      HEARTH_RETURN_IF_ERROR(runner.RunDraft(*sequence, tokens.subspan(first + 1, known - first),
                                             Backend::DraftSource::kTrunk));
      HEARTH_RETURN_IF_ERROR(runner.CommitDraft(*sequence));
    }
    if (progress) progress(begin);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RecordText(ModelRunner& runner, RouteRecorder& recorder, std::string_view domain,
                        std::span<const TokenId> tokens, const RecordOptions& options) {
  const ObserverScope scope(runner, &recorder);
  const size_t part_max =
      std::min<size_t>(options.context_tokens_max, runner.geometry().context_tokens_max);
  HEARTH_CHECK(part_max > 0);
  for (size_t begin = 0; begin < tokens.size(); begin += part_max) {
    HEARTH_RETURN_IF_ERROR(recorder.BeginText(domain));
    HEARTH_RETURN_IF_ERROR(
        RecordPart(runner, tokens.subspan(begin, std::min(part_max, tokens.size() - begin)),
                   [&](uint64_t done) {
                     if (options.progress) options.progress(begin + done);
                   }));
  }
  return absl::OkStatus();
}

}  // namespace hearth
