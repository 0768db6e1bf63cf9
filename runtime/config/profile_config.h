// What `hearth profile` and its group read, and where they write.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "runtime/config/cache_config.h"
#include "runtime/config/compute_config.h"
#include "runtime/config/field.h"

namespace hearth {

enum class DomainBy { kFile, kFolder };

constexpr std::array<EnumEntry<DomainBy>, 2> EnumEntriesOf(DomainBy) {
  return {{{DomainBy::kFile, "file"}, {DomainBy::kFolder, "folder"}}};
}

struct ProfileConfig {
  std::string pack;
  std::vector<std::string> text;  // paths
  std::string out;
  std::string trace;
  DomainBy domain_by = DomainBy::kFile;
  uint64_t tokens_max = 0;
  uint64_t trace_tokens_max = 262'144;
  uint32_t context_tokens = 8192;
  ComputeConfig compute;
  CacheConfig cache;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("pack", pack, "folder that `hearth pack build` made", {.metavar = "DIR"});
    v("text", text, "UTF-8 text to read", {.metavar = "FILE"});
    v("out", out, "profile to write", {.metavar = "FILE"});
    v("trace", trace, "trace to write, for replay and report", {.metavar = "FILE"});
    v("domain_by", domain_by, "texts of one name, or of one folder, are one domain");
    v("tokens_max", tokens_max, "read the first N tokens of each text, 0 = all");
    v("trace_tokens_max", trace_tokens_max, "tokens that the trace holds at most");
    v("context_tokens", context_tokens, "longer texts begin afresh after so many",
      {.minimum = 2, .maximum = 1 << 20});
    compute.Visit(v);
    cache.Visit(v);
  }

  absl::Status Validate(const GivenFields& given) const;
};

struct ProfileReportConfig {
  std::string profile;
  std::string trace;
  std::string out;
  uint64_t trace_tokens_max = 32'768;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("profile", profile, "profile that `hearth profile` made", {.metavar = "FILE"});
    v("trace", trace, "trace of the same model: adds hit rates and windows", {.metavar = "FILE"});
    v("out", out, "HTML page to write; none: only the text here", {.metavar = "FILE"});
    v("trace_tokens_max", trace_tokens_max, "replay about N of its tokens, 0 = all");
  }

  absl::Status Validate(const GivenFields& given) const;
};

struct ProfileMergeConfig {
  std::vector<std::string> profile;
  std::string out;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("profile", profile, "profile to add; two or more", {.metavar = "FILE"});
    v("out", out, "profile to write", {.metavar = "FILE"});
  }

  absl::Status Validate(const GivenFields& given) const;
};

struct ProfileDiffConfig {
  std::vector<std::string> profile;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("profile", profile, "profile to compare; two of them", {.metavar = "FILE"});
  }

  absl::Status Validate(const GivenFields& given) const;
};

}  // namespace hearth
