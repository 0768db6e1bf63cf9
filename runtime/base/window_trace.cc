#include "runtime/base/window_trace.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr std::array<std::string_view, kTraceLaneCount> kLaneNames = {"CPU passes", "GPU", "copy",
                                                                      "NVMe", "CPU worker"};
constexpr uint32_t kRowsPerLane = 1000;  // thread ids of the rows of one lane
constexpr uint32_t kLanesPerKind = 1000;

using LaneKey = std::pair<TraceLane, uint16_t>;

// Rows of one lane: a span goes into the first row where it follows what is there or lies within
// it, as the viewers draw nothing else.
class LaneRows {
 public:
  uint32_t RowOf(const TraceSpan& span) {
    for (uint32_t row = 0; row < rows_.size(); ++row) {
      if (Fits(rows_[row], span)) return row;
    }
    if (rows_.size() < kRowsPerLane) rows_.emplace_back();
    rows_.back() = {span.end_ns};
    return static_cast<uint32_t>(rows_.size() - 1);
  }
  uint32_t row_count() const { return static_cast<uint32_t>(rows_.size()); }

 private:
  static bool Fits(std::vector<int64_t>& open_end_ns, const TraceSpan& span) {
    while (!open_end_ns.empty() && open_end_ns.back() <= span.begin_ns) open_end_ns.pop_back();
    if (!open_end_ns.empty() && open_end_ns.back() < span.end_ns) return false;
    open_end_ns.push_back(span.end_ns);
    return true;
  }
  std::vector<std::vector<int64_t>> rows_;  // ends of the spans that are open in each, outer first
};

uint32_t ThreadIdOf(LaneKey lane, uint32_t row) {
  return ((static_cast<uint32_t>(lane.first) + 1) * kLanesPerKind +
          std::min<uint32_t>(lane.second, kLanesPerKind - 1)) *
             kRowsPerLane +
         row;
}

std::string LaneName(LaneKey lane, uint32_t row) {
  std::string name(kLaneNames[static_cast<size_t>(lane.first)]);
  if (lane.first == TraceLane::kWorker || lane.second != 0)
    absl::StrAppend(&name, " ", lane.second);
  if (row != 0) absl::StrAppend(&name, " (", row + 1, ")");
  return name;
}

nlohmann::ordered_json EventOf(const TraceSpan& span, uint32_t thread_id, int64_t zero_ns) {
  nlohmann::ordered_json args = nlohmann::ordered_json::object();
  if (span.layer.valid()) args["layer"] = span.layer.value;
  if (span.expert.valid()) args["expert"] = span.expert.value;
  if (span.expert_count != 0) args["experts"] = span.expert_count;
  if (span.row_count != 0) args["rows"] = span.row_count;
  if (span.bytes != 0) args["bytes"] = span.bytes;
  return {{"name", std::string(span.name)},
          {"cat", std::string(kLaneNames[static_cast<size_t>(span.lane)])},
          {"ph", "X"},
          {"pid", 1},
          {"tid", thread_id},
          {"ts", static_cast<double>(span.begin_ns - zero_ns) / 1000},
          {"dur", static_cast<double>(span.end_ns - span.begin_ns) / 1000},
          {"args", std::move(args)}};
}

nlohmann::ordered_json Metadata(const char* name, uint32_t thread_id, nlohmann::ordered_json args) {
  return {{"name", name}, {"ph", "M"}, {"pid", 1}, {"tid", thread_id}, {"args", std::move(args)}};
}

// By begin; of those that begin together the longest first, so that it holds the others.
std::vector<TraceSpan> InOrder(std::span<const TraceSpan> spans) {
  std::vector<TraceSpan> sorted(spans.begin(), spans.end());
  std::ranges::stable_sort(sorted, [](const TraceSpan& a, const TraceSpan& b) {
    return std::pair(a.begin_ns, b.end_ns) < std::pair(b.begin_ns, a.end_ns);
  });
  return sorted;
}

}  // namespace

void WindowTrace::Add(const TraceSpan& span) {
  const uint64_t at = count_.fetch_add(1, std::memory_order_relaxed);
  if (at >= spans_.size()) return;
  spans_[at] = span;
  spans_[at].end_ns = std::max(span.begin_ns, span.end_ns);
}

void WindowTrace::Keep(int64_t begin_ns, int64_t end_ns) {
  uint32_t kept = 0;
  const uint64_t dropped = dropped_count();
  for (TraceSpan span : std::span(spans_).first(span_count())) {
    if (span.end_ns < begin_ns || span.begin_ns > end_ns) continue;
    span.begin_ns = std::max(span.begin_ns, begin_ns);
    span.end_ns = std::min(span.end_ns, end_ns);
    spans_[kept++] = span;
  }
  count_.store(kept, std::memory_order_relaxed);
  dropped_ = dropped;
}

uint32_t WindowTrace::span_count() const {
  return static_cast<uint32_t>(
      std::min<uint64_t>(count_.load(std::memory_order_relaxed), spans_.size()));
}

uint64_t WindowTrace::dropped_count() const {
  return dropped_ + count_.load(std::memory_order_relaxed) - span_count();
}

int64_t WindowTrace::BusyNs(TraceLane lane, uint16_t number) const {
  int64_t busy_ns = 0;
  int64_t end_ns = INT64_MIN;
  for (const TraceSpan& span : InOrder(std::span(spans_).first(span_count()))) {
    if (span.lane != lane || span.number != number || span.end_ns <= end_ns) continue;
    busy_ns += span.end_ns - std::max(span.begin_ns, end_ns);
    end_ns = span.end_ns;
  }
  return busy_ns;
}

std::string WindowTrace::ToJson(std::string_view title) const {
  const std::vector<TraceSpan> spans = InOrder(std::span(spans_).first(span_count()));
  const int64_t zero_ns = spans.empty() ? 0 : spans.front().begin_ns;
  nlohmann::ordered_json events = nlohmann::ordered_json::array();
  events.push_back(Metadata("process_name", 0, {{"name", "hearth"}}));
  std::map<LaneKey, LaneRows> lanes;
  for (const TraceSpan& span : spans) {
    const LaneKey lane = {span.lane, span.number};
    events.push_back(EventOf(span, ThreadIdOf(lane, lanes[lane].RowOf(span)), zero_ns));
  }
  for (const auto& [lane, rows] : lanes) {
    for (uint32_t row = 0; row < rows.row_count(); ++row) {
      const uint32_t id = ThreadIdOf(lane, row);
      events.push_back(Metadata("thread_name", id, {{"name", LaneName(lane, row)}}));
      events.push_back(Metadata("thread_sort_index", id, {{"sort_index", id}}));
    }
  }
  const nlohmann::ordered_json trace = {
      {"displayTimeUnit", "ns"},
      {"otherData", {{"title", std::string(title)}, {"dropped_spans", dropped_count()}}},
      {"traceEvents", std::move(events)}};
  return trace.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace hearth
