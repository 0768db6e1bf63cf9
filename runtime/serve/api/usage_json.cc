#include "runtime/serve/api/usage_json.h"

#include <algorithm>
#include <string>

#include "runtime/plan/ledger.h"

namespace hearth {
namespace {

constexpr double kMsPerNs = 1e-6;
constexpr double kSecPerNs = 1e-9;

Json Ratio(double part, double whole) { return whole > 0 ? Json(part / whole) : Json(nullptr); }

Json Milliseconds(int64_t ns) { return static_cast<double>(ns) * kMsPerNs; }

Json ExpertsJson(const RequestCounts& served) {
  const RequestServed total = served.total();
  Json experts = Json::object();
  for (uint32_t i = 0; i < kServiceCount; ++i) {
    const auto service = static_cast<Service>(i);
    const RequestServed& counts = served.of(service);
    experts[std::string(ServiceName(service))] = Json{
        {"entries", counts.entries},
        {"distinct", counts.distinct},
        {"share", Ratio(static_cast<double>(counts.entries), static_cast<double>(total.entries))}};
  }
  return experts;
}

Json DraftsJson(const GenerationStats& stats) {
  uint64_t offered = 0;
  uint64_t accepted = 0;
  Json positions = Json::array();
  for (uint32_t i = 0; i < kDraftsMax; ++i) {
    offered += stats.drafted[i];
    accepted += stats.accepted[i];
    if (stats.drafted[i] == 0) continue;
    positions.push_back(Json{{"offered", stats.drafted[i]}, {"accepted", stats.accepted[i]}});
  }
  return Json{{"offered", offered},
              {"accepted", accepted},
              {"acceptance", Ratio(static_cast<double>(accepted), static_cast<double>(offered))},
              {"by_position", std::move(positions)}};
}

const char* FinishName(const CompletionEnd& end) { return FinishReasonName(end.finish); }

}  // namespace

Json HearthUsage(const CompletionEnd& end) {
  const GenerationStats& stats = end.stats;
  // The first token comes with the prompt's last pass.
  const uint32_t decoded = end.output_tokens > 0 ? end.output_tokens - 1 : 0;
  const uint32_t read = end.prompt_tokens - std::min(end.prompt_tokens, end.reused_tokens);
  Json first = end.output_tokens > 0 ? Milliseconds(end.first_token_ns) : Json(nullptr);
  return Json{
      {"experts", ExpertsJson(stats.served)},
      {"drafts", DraftsJson(stats)},
      {"windows", stats.windows},
      {"bytes_read", stats.decode_bytes},
      {"queued_ms", Milliseconds(end.queued_ns)},
      {"time_to_first_token_ms", std::move(first)},
      {"total_ms", Milliseconds(end.total_ns)},
      {"prompt_tokens_per_second", Ratio(read, static_cast<double>(stats.prompt_ns) * kSecPerNs)},
      {"decode_tokens_per_second",
       Ratio(decoded, static_cast<double>(stats.decode_ns) * kSecPerNs)},
      {"finish", FinishName(end)}};
}

Json OpenAiUsage(const CompletionEnd& end, uint32_t reasoning_tokens) {
  return Json{{"prompt_tokens", end.prompt_tokens},
              {"completion_tokens", end.output_tokens},
              {"total_tokens", uint64_t{end.prompt_tokens} + end.output_tokens},
              {"prompt_tokens_details", Json{{"cached_tokens", end.reused_tokens}}},
              {"completion_tokens_details",
               Json{{"reasoning_tokens", std::min(reasoning_tokens, end.output_tokens)}}},
              {"hearth", HearthUsage(end)}};
}

Json AnthropicUsage(const CompletionEnd& end) {
  const uint32_t reused = std::min(end.reused_tokens, end.prompt_tokens);
  return Json{{"input_tokens", end.prompt_tokens - reused},
              {"cache_creation_input_tokens", 0},
              {"cache_read_input_tokens", reused},
              {"output_tokens", end.output_tokens},
              {"hearth", HearthUsage(end)}};
}

}  // namespace hearth
