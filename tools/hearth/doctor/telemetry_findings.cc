// One rule for each promise: memory, channels, hits, speed.
#include "tools/hearth/doctor/telemetry_findings.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/units.h"

namespace hearth::cli {
namespace {

constexpr double kMemorySlack = 1.15;  // the plan knows no fragments, no libraries
constexpr double kHitSlack = 0.05;     // below the plan
constexpr uint64_t kGapsWanted = 20;   // tokens before their speed is worth a word
constexpr double kBusyShare = 0.6;     // of a channel's measured rate

void CompareMemory(const TelemetrySnapshot& snapshot, std::vector<Finding>& findings) {
  uint64_t planned = 0;
  for (const MemoryItem& item : snapshot.facts.memory) planned += item.on_card ? 0 : item.bytes;
  if (!snapshot.process.ram_bytes.has_value() || planned == 0) return;
  const uint64_t used = *snapshot.process.ram_bytes;
  const std::string found =
      absl::StrCat("RAM: planned ", FormatBytes(planned), ", in use ", FormatBytes(used));
  const bool over = static_cast<double>(used) > static_cast<double>(planned) * kMemorySlack;
  findings.push_back(
      {"telemetry.memory", over ? Severity::kWarning : Severity::kOk, found,
       over ? "lower --ram-budget or the context, or serve fewer requests at once" : ""});
}

void CompareChannels(const TelemetrySnapshot& snapshot, std::vector<Finding>& findings) {
  for (uint32_t i = 0; i < kChannelCount; ++i) {
    const std::optional<double>& most = snapshot.facts.max_bytes_per_sec[i];
    const double peak = snapshot.peak_bytes_per_sec[i];
    if (!most.has_value() || *most <= 0 || peak <= 0) continue;
    const char* name = ChannelName(static_cast<Channel>(i));
    const double share = peak / *most;
    const bool is_drive = static_cast<Channel>(i) == Channel::kDrive;
    const bool busy = is_drive && share > kBusyShare;
    findings.push_back(
        {absl::StrCat("telemetry.rate.", name), busy ? Severity::kAdvice : Severity::kOk,
         absl::StrFormat("%s: %.1f of %.1f GB/s in its best second (%.0f%%)", name, peak * 1e-9,
                         *most * 1e-9, share * 100),
         busy ? "the drive bounds it: more RAM for experts, or a smaller format" : ""});
  }
}

void CompareHits(const TelemetrySnapshot& snapshot, const std::optional<SpeedPlan>& planned,
                 std::vector<Finding>& findings) {
  if (!snapshot.engine.slots.present) return;
  const LedgerCounts all =
      snapshot.recent.span_ns > 0 ? snapshot.recent.total() : snapshot.engine.total();
  if (all.passes == 0) return;
  const double share = all.share(Service::kVram);
  std::string found = absl::StrFormat("slots: %.0f%% of experts found in them", share * 100);
  if (!planned.has_value() || !planned->fits) {
    findings.push_back({"telemetry.hits", Severity::kOk, found, ""});
    return;
  }
  const HitRange& range = planned->slot_hits;
  absl::StrAppendFormat(&found, ", planned %.0f%% (%.0f to %.0f)", range.expected * 100,
                        range.low * 100, range.high * 100);
  const bool below = share + kHitSlack < range.low;
  findings.push_back({"telemetry.hits", below ? Severity::kAdvice : Severity::kOk, found,
                      below ? "a profile of your own texts (hearth profile, --profile) fills the "
                              "slots with what they need"
                            : ""});
}

void CompareSpeed(const TelemetrySnapshot& snapshot, const std::optional<SpeedPlan>& planned,
                  std::vector<Finding>& findings) {
  const TimeHistogram& gaps = snapshot.recent.token_gap;
  const std::optional<double> median = gaps.Quantile(0.5);
  if (gaps.count() < kGapsWanted || !median.has_value() || *median <= 0) {
    findings.push_back(
        {"telemetry.speed", Severity::kOk, "too few tokens of late for a word on speed", ""});
    return;
  }
  const double speed = 1 / *median;
  std::string found = absl::StrFormat("%.1f tokens/s within one answer", speed);
  if (!planned.has_value() || !planned->fits) {
    findings.push_back({"telemetry.speed", Severity::kOk, found, ""});
    return;
  }
  const SpeedRange& range = planned->tokens_per_sec;
  absl::StrAppendFormat(&found, ", planned %.1f (%.1f to %.1f, bound by %s)", range.expected,
                        range.low, range.high, planned->bound);
  const bool slow = speed < range.low;
  findings.push_back({"telemetry.speed", slow ? Severity::kAdvice : Severity::kOk, found,
                      slow ? "several requests at once share the machine; alone and still slow: "
                             "look for other work on it (hearth top), and at the findings above"
                           : ""});
}

}  // namespace

std::vector<Finding> CompareWithTelemetry(const TelemetrySnapshot& snapshot,
                                          const std::optional<SpeedPlan>& planned) {
  std::vector<Finding> findings;
  if (planned.has_value() && !planned->fits) {
    findings.push_back({"telemetry.plan", Severity::kWarning, planned->trouble, "see hearth plan"});
  }
  CompareMemory(snapshot, findings);
  CompareChannels(snapshot, findings);
  CompareHits(snapshot, planned, findings);
  CompareSpeed(snapshot, planned, findings);
  return findings;
}

}  // namespace hearth::cli
