// ParseTelemetry(): JSON of a snapshot back into numbers.
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/serve/telemetry/telemetry_json.h"

namespace hearth {
namespace {

using Json = nlohmann::json;

constexpr size_t kJsonBytesMax = 4 << 20;
constexpr size_t kLayersMax = 1024;
constexpr size_t kListMax = 4096;  // notes, items of the memory plan
constexpr double kNsPerSec = 1e9;

// Reads members of one object; the first that is wrong is kept with its path, and everything read
// after it is 0. Members that are missing are wrong, those that are null read as none.
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string path, absl::Status& error)
      : json_(json), path_(std::move(path)), error_(error) {
    if (!json.is_object()) Fail("", "an object");
  }

  ObjectReader Object(const char* name) {
    return ObjectReader(Member(name), absl::StrCat(path_, name, "."), error_);
  }
  bool IsNull(const char* name) { return Member(name).is_null(); }
  uint64_t Whole(const char* name) { return WholeOf(Member(name), name); }
  uint32_t Whole32(const char* name) {
    const uint64_t value = Whole(name);
    if (value > UINT32_MAX) Fail(name, "less than 2^32");
    return static_cast<uint32_t>(value);
  }
  bool Bool(const char* name) {
    const Json& member = Member(name);
    if (!member.is_boolean()) return Fail(name, "true or false"), false;
    return member.get<bool>();
  }
  std::string Text(const char* name) {
    const Json& member = Member(name);
    if (!member.is_string()) return Fail(name, "text"), std::string();
    return member.get<std::string>();
  }
  std::optional<double> MaybeNumber(const char* name) {
    const Json& member = Member(name);
    if (member.is_null()) return std::nullopt;
    if (!member.is_number()) return Fail(name, "a number or null"), std::nullopt;
    return member.get<double>();
  }
  std::optional<uint64_t> MaybeWhole(const char* name) {
    if (Member(name).is_null()) return std::nullopt;
    return Whole(name);
  }
  double Number(const char* name) {
    const std::optional<double> value = MaybeNumber(name);
    if (!value) Fail(name, "a number");
    return value.value_or(0);
  }
  int64_t Ns(const char* name) { return NsOf(Number(name), name); }
  // Of exactly as many whole numbers.
  template <size_t N>
  void Wholes(const char* name, std::array<uint64_t, N>& out) {
    const Json& list = Member(name);
    if (!list.is_array() || list.size() != N) return Fail(name, absl::StrCat(N, " whole numbers"));
    for (size_t i = 0; i < N; ++i) out[i] = WholeOf(list[i], name);
  }
  template <size_t N>
  void Times(const char* name, std::array<int64_t, N>& out) {
    const Json& list = Member(name);
    if (!list.is_array() || list.size() != N) return Fail(name, absl::StrCat(N, " numbers"));
    for (size_t i = 0; i < N; ++i) {
      if (!list[i].is_number()) return Fail(name, "numbers");
      out[i] = NsOf(list[i].get<double>(), name);
    }
  }
  // At most `count_max` of them.
  const Json& List(const char* name, size_t count_max) {
    const Json& list = Member(name);
    if (list.is_array() && list.size() <= count_max) return list;
    Fail(name, absl::StrCat("a list of at most ", count_max));
    return kEmptyList;
  }
  ObjectReader Item(const Json& item, const char* name, size_t index) {
    return ObjectReader(item, absl::StrCat(path_, name, "[", index, "]."), error_);
  }
  void Fail(const char* name, absl::string_view expected) {
    if (!error_.ok()) return;
    error_ = absl::InvalidArgumentError(
        absl::StrCat("telemetry: ", path_, name, ": expected ", expected));
  }

 private:
  static const inline Json kNull = nullptr;
  static const inline Json kEmptyList = Json::array();

  const Json& Member(const char* name) {
    if (!json_.is_object()) return kNull;
    const auto found = json_.find(name);
    if (found != json_.end()) return *found;
    Fail(name, "to be there");
    return kNull;
  }
  uint64_t WholeOf(const Json& value, const char* name) {
    if (!value.is_number_unsigned()) return Fail(name, "a whole number"), 0;
    return value.get<uint64_t>();
  }
  int64_t NsOf(double seconds, const char* name) {
    constexpr double kSecondsMax = 9e9;  // what 63 bits of nanoseconds hold
    if (!(std::abs(seconds) < kSecondsMax)) return Fail(name, "a time in seconds"), 0;
    return std::llround(seconds * kNsPerSec);
  }

  const Json& json_;
  std::string path_;
  absl::Status& error_;
};

TimeHistogram HistogramOf(ObjectReader r) {
  TimeHistogram h;
  r.Wholes("buckets", h.counts);
  h.sum_ns = r.Ns("sum_sec");
  return h;
}

std::vector<LedgerCounts> LayersOf(ObjectReader& r) {
  std::vector<LedgerCounts> layers;
  for (const Json& item : r.List("layers", kLayersMax)) {
    ObjectReader one = r.Item(item, "layers", layers.size());
    LedgerCounts& layer = layers.emplace_back();
    std::array<uint64_t, kServiceCount> distinct{};
    std::array<uint64_t, kServiceCount> entries{};
    std::array<uint64_t, kServiceCount> bytes{};
    std::array<int64_t, kServiceCount> ns{};
    one.Wholes("distinct", distinct);
    one.Wholes("entries", entries);
    one.Wholes("bytes", bytes);
    one.Times("sec", ns);
    for (uint32_t s = 0; s < kServiceCount; ++s) {
      layer.services[s] = {
          .distinct = distinct[s], .entries = entries[s], .bytes = bytes[s], .ns = ns[s]};
    }
    layer.wait_ns = one.Ns("wait_sec");
    layer.passes = one.Whole("passes");
  }
  return layers;
}

void ReadServer(ObjectReader r, TelemetrySnapshot& s) {
  s.facts.version = r.Text("version");
  s.facts.start_id = r.Text("start_id");
  s.facts.started_unix_ms = static_cast<int64_t>(r.Whole("started_unix_ms"));
  s.uptime_ns = r.Ns("uptime_sec");
  s.facts.model = r.Text("model");
  s.facts.pack = r.Text("pack");
  s.facts.device = r.Text("device");
  s.facts.expert_count = r.Whole32("expert_count");
  s.facts.context_tokens_max = r.Whole32("context_tokens_max");
  s.facts.requests_max = r.Whole32("requests_max");
  s.facts.queue_max = r.Whole32("queue_max");
  for (const Json& note : r.List("notes", kListMax)) {
    if (note.is_string()) s.facts.notes.push_back(note.get<std::string>());
  }
}

RequestInFlight InFlightOf(ObjectReader r, int64_t now_ns) {
  RequestInFlight request;
  request.id = r.Whole("id");
  const std::string phase = r.Text("phase");
  for (const RequestPhase p : {RequestPhase::kReading, RequestPhase::kDecoding}) {
    if (phase == RequestPhaseName(p)) request.phase = p;
  }
  request.prompt_tokens = r.Whole32("prompt_tokens");
  request.reused_tokens = r.Whole32("reused_tokens");
  request.read_tokens = r.Whole32("read_tokens");
  request.output_tokens = r.Whole32("output_tokens");
  request.submitted_ns = now_ns - r.Ns("age_sec");
  if (!r.IsNull("first_token_sec")) {
    request.first_token_ns = request.submitted_ns + r.Ns("first_token_sec");
  }
  return request;
}

void ReadRequests(ObjectReader r, int64_t now_ns, ServeCounters& c) {
  c.queued = r.Whole32("queued");
  c.reading = r.Whole32("reading");
  c.decoding = r.Whole32("decoding");
  c.submitted = r.Whole("submitted");
  ObjectReader finished = r.Object("finished");
  for (uint32_t f = 1; f < kFinishReasonCount; ++f) {
    c.finished[f] = finished.Whole(FinishReasonName(static_cast<FinishReason>(f)));
  }
  ObjectReader refused = r.Object("refused");
  for (uint32_t i = 0; i < kRefusalCount; ++i) {
    c.refused[i] = refused.Whole(RefusalName(static_cast<Refusal>(i)));
  }
  for (const Json& item : r.List("in_flight", kRequestsShownMax)) {
    c.shown[c.shown_count] = InFlightOf(r.Item(item, "in_flight", c.shown_count), now_ns);
    ++c.shown_count;
  }
}

void ReadLatency(ObjectReader r, ServeCounters& c) {
  const Json& bounds = r.List("bucket_bounds_sec", kListMax);
  bool same = bounds.size() == TimeHistogram::kBoundsNs.size();
  for (size_t b = 0; same && b < bounds.size(); ++b) {
    same = bounds[b].is_number() &&
           std::llround(bounds[b].get<double>() * kNsPerSec) == TimeHistogram::kBoundsNs[b];
  }
  if (!same) r.Fail("bucket_bounds_sec", "the bounds of this version");
  c.queue_wait = HistogramOf(r.Object("queue_wait"));
  c.first_token = HistogramOf(r.Object("time_to_first_token"));
  c.token_gap = HistogramOf(r.Object("token_gap"));
  c.request_time = HistogramOf(r.Object("request"));
  c.window_time = HistogramOf(r.Object("window"));
  c.overhead = HistogramOf(r.Object("scheduler_overhead"));
}

void ReadWork(ObjectReader& root, ServeCounters& c) {
  ObjectReader tokens = root.Object("tokens");
  c.prompt_tokens = tokens.Whole("prompt");
  c.reused_tokens = tokens.Whole("reused");
  c.output_tokens = tokens.Whole("output");
  ObjectReader windows = root.Object("windows");
  windows.Wholes("by_rows", c.windows_by_rows);
  c.prompt_passes = windows.Whole("prompt_passes");
  c.idle_ns = windows.Ns("idle_sec");
  ObjectReader drafts = root.Object("drafts");
  size_t position = 0;
  for (const Json& item : drafts.List("by_position", kDraftsMax)) {
    ObjectReader one = drafts.Item(item, "by_position", position);
    c.drafted[position] = one.Whole("offered");
    c.accepted[position] = one.Whole("accepted");
    ++position;
  }
}

ExpertKey KeyOf(ObjectReader& r, const char* name) {
  if (r.IsNull(name)) return ExpertKey();
  std::array<uint64_t, 2> pair{};
  r.Wholes(name, pair);
  return {LayerId(static_cast<uint32_t>(pair[0])), ExpertId(static_cast<uint32_t>(pair[1]))};
}

void ReadSlots(ObjectReader r, SlotTelemetry& slots) {
  slots.present = true;
  slots.slots = r.Whole("count");
  slots.used = r.Whole("used");
  slots.bytes = r.Whole("bytes");
  slots.swaps = r.Whole("swaps");
  slots.swap_bytes = r.Whole("swap_bytes");
  slots.cancelled = r.Whole("cancelled");
  slots.pinned = r.Bool("pinned");
  for (const Json& item : r.List("recent", kSwapsShownMax)) {
    ObjectReader one = r.Item(item, "recent", slots.recent_count);
    slots.recent[slots.recent_count++] = {
        .in = KeyOf(one, "in"),
        .out = KeyOf(one, "out"),
        .in_heat = static_cast<float>(one.MaybeNumber("in_heat").value_or(0)),
        .out_heat = static_cast<float>(one.MaybeNumber("out_heat").value_or(0)),
        .window = one.Whole("pass")};
  }
}

void ReadTiers(ObjectReader& root, EngineCounts& engine) {
  if (!root.IsNull("slots")) ReadSlots(root.Object("slots"), engine.slots);
  if (!root.IsNull("regret")) {
    ObjectReader r = root.Object("regret");
    engine.regret = {.windows = r.Whole("windows"),
                     .distinct = r.Whole("distinct"),
                     .hits = r.Whole("hits"),
                     .belady_hits = r.Whole("belady_hits")};
  }
  ObjectReader ram = root.Object("ram_tier");
  engine.store = {.capacity_bytes = ram.Whole("capacity_bytes"),
                  .resident_count = ram.Whole("resident"),
                  .read_count = ram.Whole("reads"),
                  .read_bytes = ram.Whole("read_bytes"),
                  .lookahead_read_count = ram.Whole("lookahead_reads"),
                  .lookahead_used_count = ram.Whole("lookahead_used"),
                  .exchange_count = ram.Whole("exchanges"),
                  .major_fault_count = ram.Whole("major_faults"),
                  .read_busy_ns = ram.Ns("read_busy_sec")};
  engine.dense_bytes = root.Whole("dense_bytes");
  engine.layers = LayersOf(root);
}

void ReadChannels(ObjectReader r, TelemetrySnapshot& s) {
  for (uint32_t c = 0; c < kChannelCount; ++c) {
    ObjectReader one = r.Object(ChannelName(static_cast<Channel>(c)));
    s.peak_bytes_per_sec[c] = one.MaybeNumber("peak_bytes_per_sec").value_or(0);
    s.facts.max_bytes_per_sec[c] = one.MaybeNumber("measured_bytes_per_sec");
  }
  ObjectReader link = r.Object("link");
  s.facts.link_window_budget_bytes = link.MaybeWhole("window_budget_bytes").value_or(UINT64_MAX);
}

void ReadMemory(ObjectReader r, TelemetrySnapshot& s) {
  ObjectReader ram = r.Object("ram");
  s.process.ram_bytes = ram.MaybeWhole("used_bytes");
  s.facts.ram_limit_bytes = ram.MaybeWhole("limit_bytes").value_or(0);
  s.facts.ram_limit_source = ram.Text("limit_source");
  ObjectReader vram = r.Object("vram");
  s.process.card_bytes = vram.MaybeWhole("used_bytes");
  s.facts.card_bytes = vram.Whole("card_bytes");
  for (const Json& item : r.List("plan", kListMax)) {
    ObjectReader one = r.Item(item, "plan", s.facts.memory.size());
    s.facts.memory.push_back(
        {.what = one.Text("what"), .bytes = one.Whole("bytes"), .on_card = one.Bool("on_card")});
  }
}

void ReadPrefix(ObjectReader r, PrefixCounters& p) {
  p.lookups = r.Whole("lookups");
  p.hits = r.Whole("hits");
  p.reused_tokens = r.Whole("reused_tokens");
  p.stored = r.Whole("stored");
  p.evicted = r.Whole("evicted");
  p.entries = r.Whole("entries");
  p.bytes = r.Whole("bytes");
  p.budget_bytes = r.Whole("budget_bytes");
  ObjectReader disk = r.Object("disk");
  p.disk_entries = disk.Whole("entries");
  p.disk_bytes = disk.Whole("bytes");
  p.disk_budget_bytes = disk.Whole("budget_bytes");
  p.disk_hits = disk.Whole("hits");
  p.disk_errors = disk.Whole("errors");
}

void ReadHttp(ObjectReader r, HttpCounters& h) {
  h.connections_open = r.Whole("connections_open");
  h.connections = r.Whole("connections");
  h.connections_refused = r.Whole("connections_refused");
  h.streams_open = r.Whole("streams_open");
  ObjectReader responses = r.Object("responses");
  for (size_t i = 0; i < h.responses.size(); ++i) {
    h.responses[i] = responses.Whole(absl::StrCat(i + 1, "xx").c_str());
  }
}

void ReadRecent(ObjectReader r, RecentCounts& recent) {
  recent.span_ns = r.Ns("span_sec");
  recent.prompt_tokens = r.Whole("prompt_tokens");
  recent.output_tokens = r.Whole("output_tokens");
  recent.windows = r.Whole("windows");
  recent.swaps = r.Whole("swaps");
  recent.drafted = r.Whole("offered");
  recent.accepted = r.Whole("accepted");
  r.Wholes("channel_bytes", recent.bytes);
  recent.first_token = HistogramOf(r.Object("time_to_first_token"));
  recent.token_gap = HistogramOf(r.Object("token_gap"));
  recent.overhead = HistogramOf(r.Object("scheduler_overhead"));
  recent.layers = LayersOf(r);
}

void ReadHistory(ObjectReader r, std::vector<HistoryPoint>& history) {
  const auto read = [&](const char* name, float HistoryPoint::*member) {
    const Json& list = r.List(name, kHistoryPointsMax);
    if (history.empty()) history.resize(list.size());
    if (list.size() != history.size()) return r.Fail(name, "as many as of the others");
    for (size_t i = 0; i < list.size(); ++i) {
      if (list[i].is_number()) history[i].*member = list[i].get<float>();
    }
  };
  read("output_tokens_per_sec", &HistoryPoint::output_tokens_per_sec);
  read("prompt_tokens_per_sec", &HistoryPoint::prompt_tokens_per_sec);
  read("time_to_first_token_sec", &HistoryPoint::first_token_sec);
  read("vram_share", &HistoryPoint::vram_share);
}

absl::Status CheckSchema(ObjectReader& root, const absl::Status& error) {
  const std::string schema = root.Text("schema");
  const uint64_t version = root.Whole("schema_version");
  HEARTH_RETURN_IF_ERROR(error);
  if (schema != "hearth.telemetry") {
    return absl::InvalidArgumentError(
        absl::StrCat("telemetry: schema: expected hearth.telemetry, found ", schema));
  }
  if (version != kTelemetrySchemaVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("telemetry: schema_version ", version, ", this program reads ",
                     kTelemetrySchemaVersion, ": use the program that the server came with"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TelemetrySnapshot> ParseTelemetry(std::string_view text) {
  if (text.size() > kJsonBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("telemetry: ", text.size(), " bytes, expected at most ", kJsonBytesMax));
  }
  const Json json = Json::parse(text, nullptr, false);
  if (json.is_discarded()) return absl::InvalidArgumentError("telemetry: not JSON");
  absl::Status error;
  ObjectReader root(json, "", error);
  HEARTH_RETURN_IF_ERROR(CheckSchema(root, error));
  TelemetrySnapshot s;
  ReadServer(root.Object("server"), s);
  s.engine.at_ns = s.uptime_ns;
  ReadRequests(root.Object("requests"), s.engine.at_ns, s.engine.serve);
  ReadWork(root, s.engine.serve);
  ReadLatency(root.Object("latency"), s.engine.serve);
  ReadTiers(root, s.engine);
  ReadChannels(root.Object("channels"), s);
  ReadMemory(root.Object("memory"), s);
  ReadPrefix(root.Object("prefix_cache"), s.engine.prefix);
  ReadHttp(root.Object("http"), s.http);
  s.process.disk_read_bytes = root.Object("process").MaybeWhole("disk_read_bytes");
  ReadRecent(root.Object("recent"), s.recent);
  ReadHistory(root.Object("history"), s.history);
  HEARTH_RETURN_IF_ERROR(error);
  return s;
}

}  // namespace hearth
