// hearth profile: which experts a model chooses for which texts.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "cache/policy/routing_statistics.h"
#include "runtime/base/file.h"
#include "runtime/base/replace_file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"
#include "runtime/config/profile_config.h"
#include "runtime/engine/profile_file.h"
#include "runtime/engine/route_recorder.h"
#include "runtime/engine/trace_file.h"
#include "tools/hearth/command.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/model_session.h"
#include "tools/hearth/profile_facts.h"
#include "tools/hearth/progress.h"

namespace hearth::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kTextBytesMax = 64_MiB;
constexpr uint64_t kTokensMax = uint64_t{1} << 26;  // of all texts, in memory

struct DomainText {
  std::string domain;
  std::string path;
  std::vector<TokenId> tokens;
};

// "texts/code/queue.py": "queue" by file, "code" by folder.
std::string DomainOf(const std::string& path, DomainBy by) {
  std::error_code ignored;
  const std::filesystem::path file(path);
  if (by == DomainBy::kFile) return file.stem().string();
  const std::filesystem::path absolute = std::filesystem::absolute(file, ignored);
  return absolute.parent_path().filename().string();
}

// All texts as tokens, before the model reads any: a file that is missing is known at once.
absl::StatusOr<std::vector<DomainText>> ReadTexts(const ProfileConfig& config,
                                                  const ModelSession& session) {
  std::vector<DomainText> texts;
  uint64_t total = 0;
  for (const std::string& path : config.text) {
    HEARTH_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kTextBytesMax));
    std::vector<TokenId> tokens = session.tokenizer->Encode(text, SpecialTokens::kParse);
    if (config.tokens_max != 0 && tokens.size() > config.tokens_max) {
      tokens.resize(config.tokens_max);
    }
    if (tokens.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": expected at least one token, found an empty text"));
    }
    total += tokens.size();
    if (total > kTokensMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": ", total, " tokens so far, at most ", kTokensMax,
                       " in one run: profile in parts and merge them"));
    }
    texts.push_back(
        {.domain = DomainOf(path, config.domain_by), .path = path, .tokens = std::move(tokens)});
  }
  return texts;
}

absl::Status Record(const ProfileConfig& config, const std::vector<DomainText>& texts,
                    ModelRunner& runner, RouteRecorder& recorder, const CommandIo& io) {
  uint64_t total = 0;
  for (const DomainText& text : texts) total += text.tokens.size();
  Progress line(io, {.label = "profiling", .unit = ProgressUnit::kTokens, .total = total});
  uint64_t done = 0;
  for (const DomainText& text : texts) {
    const absl::Status status =
        RecordText(runner, recorder, text.domain, text.tokens,
                   {.context_tokens_max = config.context_tokens,
                    .progress = [&](uint64_t in_text) { line.Update(done + in_text); }});
    if (!status.ok()) return Annotate(status, text.path);
    done += text.tokens.size();
  }
  return absl::OkStatus();
}

Json ResultJson(const ProfileConfig& config, const RoutingProfile& profile,
                const RouteRecorder& recorder, double seconds) {
  Json domains = Json::array();
  for (const DomainFacts& domain : DomainFactsOf(profile)) {
    Json j = DomainJson(domain);
    for (const uint32_t window : {1u, 4u}) {
      j["distinct_per_window"][std::to_string(window)] =
          recorder.DistinctPerWindow(domain.name, window);
    }
    domains.push_back(std::move(j));
  }
  Json json = {{"profile", config.out},
               {"tokens", profile.token_count()},
               {"seconds", seconds},
               {"domains", std::move(domains)}};
  if (!config.trace.empty()) {
    json["trace"] = config.trace;
    json["trace_tokens"] = recorder.trace().token_count();
    json["untraced_tokens"] = recorder.untraced_token_count();
  }
  return json;
}

void PrintResult(const RoutingProfile& profile, const RouteRecorder& recorder, std::ostream& out) {
  const std::vector<DomainFacts> facts = DomainFactsOf(profile);
  const size_t width = NameColumns(facts);
  out << absl::StrFormat("%-*s %9s   share of the traffic, hottest   distinct experts in a\n",
                         width, "", "");
  out << absl::StrFormat("%-*s %9s %6s %6s %6s %6s   window of 1      of 4\n", width, "domain",
                         "tokens", "10%", "18%", "34%", "40%");
  for (const DomainFacts& domain : facts) {
    out << PaddedName(domain.name, width) << absl::StrFormat(" %9d", domain.token_count);
    for (const double share : domain.hot_traffic) out << absl::StrFormat(" %5.1f%%", 100 * share);
    out << absl::StrFormat("   %11.2f %9.2f\n", recorder.DistinctPerWindow(domain.name, 1),
                           recorder.DistinctPerWindow(domain.name, 4));
  }
}

absl::Status Run(const ProfileConfig& config, const CommandIo& io) {
  HEARTH_RETURN_IF_ERROR(CheckReplaceable(config.out));
  if (!config.trace.empty()) HEARTH_RETURN_IF_ERROR(CheckReplaceable(config.trace));
  for (const std::string& path : config.text) {  // before the model takes its time to load
    HEARTH_RETURN_IF_ERROR(RandomAccessFile::Open(path).status());
  }
  HEARTH_ASSIGN_OR_RETURN(const ModelSession session,
                          ModelSession::Open(config.pack, config.compute, config.cache, io));
  HEARTH_ASSIGN_OR_RETURN(const std::vector<DomainText> texts, ReadTexts(config, session));
  RouteRecorder recorder(IdentityOf(session.runner->pack().manifest),
                         {.trace_tokens_max = config.trace.empty() ? 0 : config.trace_tokens_max});
  const int64_t start_ns = io.clock.NowNs();
  HEARTH_RETURN_IF_ERROR(Record(config, texts, *session.runner, recorder, io));
  const double seconds = static_cast<double>(io.clock.NowNs() - start_ns) * 1e-9;
  const RoutingProfile profile = recorder.profile();
  HEARTH_RETURN_IF_ERROR(WriteProfile(config.out, profile));
  if (!config.trace.empty()) {
    HEARTH_RETURN_IF_ERROR(WriteTrace(config.trace, recorder.trace()));
    if (recorder.untraced_token_count() > 0) {
      io.talk << absl::StrFormat("the trace holds the first %d tokens, %d more were only counted\n",
                                 recorder.trace().token_count(), recorder.untraced_token_count());
    }
  }
  if (io.json) {
    io.results << ResultJson(config, profile, recorder, seconds).dump() << "\n";
    return absl::OkStatus();
  }
  PrintResult(profile, recorder, io.results);
  io.talk << absl::StrFormat("%d tokens in %.2f s, %.0f tok/s; wrote %s\n", profile.token_count(),
                             seconds, static_cast<double>(profile.token_count()) / seconds,
                             config.out);
  return absl::OkStatus();
}

}  // namespace

Command ProfileCommand() {
  return MakeCommand<ProfileConfig>(
      {.name = "profile",
       .summary = "count which experts a model chooses for texts",
       .notes =
           "The profile is bound to the model and its tokenizer, whatever format the pack has."},
      Run);
}

}  // namespace hearth::cli
