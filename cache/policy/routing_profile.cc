#include "cache/policy/routing_profile.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/sealed_json.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormatName = "hearth-routing-profile";
constexpr JsonSeal kSeal = {
    .format = kFormatName, .noun = "profile", .article = "a routing profile of Hearth"};
constexpr size_t kHashDigits = 32;
constexpr uint32_t kLayersMax = 1024;
constexpr uint32_t kExpertsMax = 65536;
constexpr uint32_t kRanksMax = 256;
constexpr double kHotShare = 0.4;
static_assert(kProfileTokensMax <= UINT64_MAX / kRanksMax);

// What was found, in one short line whatever it is.
std::string Shown(const Json& value) {
  const std::string text = value.is_array()    ? absl::StrCat("a list of ", value.size())
                           : value.is_object() ? std::string("an object")
                                               : value.dump(-1, ' ', true);
  return text.size() <= 64 ? text : text.substr(0, 61) + "...";
}

std::string ShownText(const std::string& text) {
  return Json(text.substr(0, 64)).dump(-1, ' ', true, Json::error_handler_t::replace);
}

bool IsHash(std::string_view text) {
  return text.size() == kHashDigits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

// UTF-8 without control characters, quotes and backslashes: what every reader prints as it stands.
bool IsDomainName(const std::string& name) {
  const auto plain = [](char c) {
    return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f && c != '"' && c != '\\';
  };
  return !name.empty() && name.size() <= kDomainNameBytesMax && std::ranges::all_of(name, plain) &&
         Json::accept(absl::StrCat("\"", name, "\""));
}

absl::Status Wrong(std::string_view key, std::string_view expected, std::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat(ToAbsl(key), ": expected ", ToAbsl(expected), ", found ", ToAbsl(found)));
}

absl::Status CheckBounds(std::string_view key, uint64_t found, uint64_t minimum, uint64_t maximum) {
  if (found >= minimum && found <= maximum) return absl::OkStatus();
  return Wrong(key, absl::StrCat(minimum, " to ", maximum), absl::StrCat(found));
}

absl::Status CheckIdentityFields(const RoutingIdentity& id) {
  for (const auto& [key, hash] : {std::pair{"model_xxh3_128", &id.model_xxh3_128},
                                  std::pair{"tokenizer_xxh3_128", &id.tokenizer_xxh3_128}}) {
    if (!IsHash(*hash)) return Wrong(key, "32 lower-case hex digits", ShownText(*hash));
  }
  HEARTH_RETURN_IF_ERROR(CheckBounds("layer_count", id.layer_count, 1, kLayersMax));
  HEARTH_RETURN_IF_ERROR(CheckBounds("expert_count", id.expert_count, 1, kExpertsMax));
  return CheckBounds("experts_per_token", id.ranks, 1, std::min(id.expert_count, kRanksMax));
}

// One layer's counts of a domain of `token_count` tokens. No sum overflows: a count is at most
// token_count, and of two more a layer's sum is refused before it could.
absl::Status CheckLayer(std::span<const uint64_t> counts, const RoutingIdentity& id, uint32_t layer,
                        uint64_t token_count, const std::string& key) {
  const uint64_t entries_max = token_count * id.ranks;
  uint64_t sum = 0;
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    if (counts[expert] > token_count) {
      return Wrong(absl::StrCat(key, "[", layer, "][", expert, "]"),
                   absl::StrCat("0 to ", token_count, " (token_count)"),
                   absl::StrCat(counts[expert]));
    }
    sum += counts[expert];
    if (sum > entries_max) break;
  }
  const bool mtp = layer >= id.layer_count;
  const bool fits = mtp ? sum <= entries_max && sum % id.ranks == 0 : sum == entries_max;
  if (fits) return absl::OkStatus();
  return Wrong(absl::StrCat(key, "[", layer, "]"),
               mtp ? absl::StrCat("a sum that is a multiple of ", id.ranks, ", at most ",
                                  entries_max, " (token_count x experts_per_token)")
                   : absl::StrCat("the sum ", entries_max, " (token_count x experts_per_token)"),
               sum > entries_max ? "more" : absl::StrCat(sum));
}

absl::Status CheckDomain(const ProfileDomain& domain, const RoutingIdentity& id,
                         const std::string& key) {
  if (!IsDomainName(domain.name)) {
    return Wrong(key + ".name",
                 absl::StrCat("1 to ", kDomainNameBytesMax,
                              " bytes of UTF-8 without quotes, backslashes and control characters"),
                 ShownText(domain.name));
  }
  HEARTH_RETURN_IF_ERROR(
      CheckBounds(key + ".token_count", domain.token_count, 1, kProfileTokensMax));
  const size_t expected = size_t{id.all_layer_count()} * id.expert_count;
  if (domain.counts.size() != expected) {
    return Wrong(key + ".counts", absl::StrCat(expected, " counts"),
                 absl::StrCat(domain.counts.size()));
  }
  for (uint32_t layer = 0; layer < id.all_layer_count(); ++layer) {
    const std::span<const uint64_t> counts =
        std::span(domain.counts).subspan(size_t{layer} * id.expert_count, id.expert_count);
    HEARTH_RETURN_IF_ERROR(CheckLayer(counts, id, layer, domain.token_count, key + ".counts"));
  }
  return absl::OkStatus();
}

// Reads one object: every key must be asked for, and every key asked for must be there.
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    if (!json_.is_object()) status_ = Wrong(where_, "an object", Shown(json_));
  }
  std::string KeyOf(std::string_view key) const {
    return where_.empty() ? std::string(key) : absl::StrCat(where_, ".", ToAbsl(key));
  }
  const Json* Take(std::string_view key) {
    if (!status_.ok()) return nullptr;
    const auto it = json_.find(std::string(key));
    taken_.emplace(key);
    if (it != json_.end()) return &*it;
    status_ = Wrong(KeyOf(key), "a value", "none: the key is missing");
    return nullptr;
  }
  void Text(std::string_view key, std::string& out) {
    const Json* value = Take(key);
    if (value == nullptr) return;
    if (!value->is_string()) return Complain(key, "text", *value);
    out = value->get<std::string>();
  }
  void Switch(std::string_view key, bool& out) {
    const Json* value = Take(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return Complain(key, "true or false", *value);
    out = value->get<bool>();
  }
  template <class T>
  void Number(std::string_view key, T& out, uint64_t maximum = std::numeric_limits<T>::max()) {
    const Json* value = Take(key);
    if (value == nullptr) return;
    if (!value->is_number_unsigned() || value->get<uint64_t>() > maximum) {
      return Complain(key, absl::StrCat("a whole number from 0 to ", maximum), *value);
    }
    out = static_cast<T>(value->get<uint64_t>());
  }
  absl::Status Finish() const {
    if (!status_.ok()) return status_;
    for (const auto& item : json_.items()) {
      if (taken_.contains(item.key())) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(where_.empty() ? "" : where_ + ": ", "expected only the keys of version ",
                       kProfileVersion, ", found ", ShownText(item.key())));
    }
    return absl::OkStatus();
  }

 private:
  void Complain(std::string_view key, std::string_view expected, const Json& found) {
    status_ = Wrong(KeyOf(key), expected, Shown(found));
  }
  const Json& json_;
  const std::string where_;
  absl::Status status_;
  std::set<std::string, std::less<>> taken_;
};

absl::Status ReadCounts(const Json& json, const RoutingIdentity& id, const std::string& key,
                        std::vector<uint64_t>& out) {
  if (!json.is_array() || json.size() != id.all_layer_count()) {
    return Wrong(key, absl::StrCat("a list of ", id.all_layer_count(), " layers"), Shown(json));
  }
  out.reserve(size_t{id.all_layer_count()} * id.expert_count);
  for (size_t layer = 0; layer < json.size(); ++layer) {
    const Json& row = json[layer];
    if (!row.is_array() || row.size() != id.expert_count) {
      return Wrong(absl::StrCat(key, "[", layer, "]"),
                   absl::StrCat("a list of ", id.expert_count, " counts"), Shown(row));
    }
    for (size_t expert = 0; expert < row.size(); ++expert) {
      if (!row[expert].is_number_unsigned()) {
        return Wrong(absl::StrCat(key, "[", layer, "][", expert, "]"), "a whole number from 0 on",
                     Shown(row[expert]));
      }
      out.push_back(row[expert].get<uint64_t>());
    }
  }
  return absl::OkStatus();
}

absl::Status ReadDomains(const Json& json, RoutingProfile& profile) {
  if (!json.is_array() || json.size() > kProfileDomainsMax) {
    return Wrong("domains", absl::StrCat("a list of at most ", kProfileDomainsMax), Shown(json));
  }
  for (size_t i = 0; i < json.size(); ++i) {
    ProfileDomain domain;
    ObjectReader r(json[i], absl::StrCat("domains[", i, "]"));
    r.Text("name", domain.name);
    r.Number("token_count", domain.token_count, kProfileTokensMax);
    const Json* counts = r.Take("counts");
    HEARTH_RETURN_IF_ERROR(r.Finish());
    HEARTH_RETURN_IF_ERROR(ReadCounts(*counts, profile.identity, r.KeyOf("counts"), domain.counts));
    profile.domains.push_back(std::move(domain));
  }
  return absl::OkStatus();
}

absl::Status ReadProfileFields(const Json& json, RoutingProfile& profile) {
  std::string format, own_hash;
  uint64_t own_bytes = 0, version = 0, token_count = 0;
  RoutingIdentity& id = profile.identity;
  ObjectReader r(json, "");
  r.Text("format", format);
  r.Number("profile_bytes", own_bytes);
  r.Number("version", version);
  r.Text("model_xxh3_128", id.model_xxh3_128);
  r.Text("tokenizer_xxh3_128", id.tokenizer_xxh3_128);
  r.Number("layer_count", id.layer_count);
  r.Switch("has_mtp", id.has_mtp);
  r.Number("expert_count", id.expert_count);
  r.Number("experts_per_token", id.ranks);
  r.Number("token_count", token_count, kProfileTokensMax);
  const Json* domains = r.Take("domains");
  r.Text("profile_xxh3_128", own_hash);
  HEARTH_RETURN_IF_ERROR(r.Finish());
  HEARTH_RETURN_IF_ERROR(CheckIdentityFields(id));
  HEARTH_RETURN_IF_ERROR(ReadDomains(*domains, profile));
  HEARTH_RETURN_IF_ERROR(profile.Validate());
  if (profile.token_count() == token_count) return absl::OkStatus();
  return Wrong("token_count", absl::StrCat(profile.token_count(), " (the domains' sum)"),
               absl::StrCat(token_count));
}

absl::Status CheckVersion(const Json& json, const std::string& path) {
  const auto it = json.is_object() ? json.find("version") : json.end();
  if (it == json.end() || *it == kProfileVersion) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, ": version: expected ", kProfileVersion, ", which this build reads, found ", Shown(*it),
      ": make the profile again with `hearth profile`"));
}

// The hottest share of a layer's experts, equals by id.
std::set<uint32_t> HottestOf(std::span<const uint64_t> counts) {
  std::vector<uint32_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) { return counts[a] > counts[b]; });
  const auto hot = static_cast<size_t>(std::ceil(kHotShare * static_cast<double>(order.size())));
  return {order.begin(), order.begin() + static_cast<ptrdiff_t>(hot)};
}

}  // namespace

std::string RoutingIdentity::ToString() const {
  return absl::StrCat(layer_count, has_mtp ? "+1" : "", " layers x ", expert_count, " experts, ",
                      ranks, " per token, model ",
                      model_xxh3_128.empty() ? "unknown" : model_xxh3_128, ", tokenizer ",
                      tokenizer_xxh3_128.empty() ? "unknown" : tokenizer_xxh3_128);
}

uint64_t RoutingProfile::token_count() const {
  uint64_t sum = 0;
  for (const ProfileDomain& domain : domains) sum += domain.token_count;
  return sum;
}

std::vector<uint64_t> RoutingProfile::Counts() const {
  std::vector<uint64_t> sum(size_t{identity.all_layer_count()} * identity.expert_count);
  for (const ProfileDomain& domain : domains) {
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += domain.counts[i];
  }
  return sum;
}

std::string RoutingProfile::ToJson() const {
  std::string out =
      absl::StrCat("\n  \"version\": ", kProfileVersion, ",\n  \"model_xxh3_128\": \"",
                   identity.model_xxh3_128, "\",\n  \"tokenizer_xxh3_128\": \"",
                   identity.tokenizer_xxh3_128, "\",\n  \"layer_count\": ", identity.layer_count,
                   ",\n  \"has_mtp\": ", identity.has_mtp ? "true" : "false",
                   ",\n  \"expert_count\": ", identity.expert_count,
                   ",\n  \"experts_per_token\": ", identity.ranks,
                   ",\n  \"token_count\": ", token_count(), ",\n  \"domains\": [");
  for (size_t i = 0; i < domains.size(); ++i) {
    absl::StrAppend(&out, i == 0 ? "" : ",", "\n    {\"name\": \"", domains[i].name,
                    "\", \"token_count\": ", domains[i].token_count, ", \"counts\": [");
    for (size_t c = 0; c < domains[i].counts.size(); ++c) {
      const bool first = c % identity.expert_count == 0;
      const char* before = c == 0 ? "\n      [" : first ? "],\n      [" : ", ";
      absl::StrAppend(&out, before, domains[i].counts[c]);
    }
    out += "]]}";
  }
  out += domains.empty() ? "]" : "\n  ]";
  return SealJson(kSeal, out);
}

absl::Status RoutingProfile::Validate() const {
  HEARTH_RETURN_IF_ERROR(CheckIdentityFields(identity));
  HEARTH_RETURN_IF_ERROR(CheckBounds("domains", domains.size(), 1, kProfileDomainsMax));
  std::set<std::string_view> names;
  uint64_t sum = 0;  // at most 256 x 2^48
  for (size_t i = 0; i < domains.size(); ++i) {
    const std::string key = absl::StrCat("domains[", i, "]");
    HEARTH_RETURN_IF_ERROR(CheckDomain(domains[i], identity, key));
    if (!names.insert(domains[i].name).second) {
      return Wrong(key + ".name", "a name of its own",
                   absl::StrCat(ShownText(domains[i].name), " once more"));
    }
    sum += domains[i].token_count;
  }
  return CheckBounds("token_count", sum, 1, kProfileTokensMax);
}

absl::StatusOr<RoutingProfile> RoutingProfile::FromJson(std::string_view text,
                                                        const std::string& path) {
  if (text.size() > kProfileBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected at most ", kProfileBytesMax, " bytes, found ", text.size()));
  }
  HEARTH_RETURN_IF_ERROR(CheckSealedJson(kSeal, text, path));
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  HEARTH_RETURN_IF_ERROR(CheckVersion(json, path));
  RoutingProfile profile;
  if (absl::Status status = ReadProfileFields(json, profile); !status.ok()) {
    return Annotate(status, path);
  }
  return profile;
}

absl::Status RoutingProfile::CheckIdentity(const RoutingIdentity& expected,
                                           const std::string& path) const {
  if (identity == expected) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(path, ": is about another model: expected ", expected.ToString(), "; found ",
                   identity.ToString(), "; make one for this model with `hearth profile`"));
}

absl::StatusOr<RoutingProfile> MergeProfiles(std::span<const RoutingProfile> profiles) {
  if (profiles.empty()) return absl::InvalidArgumentError("no profiles: nothing to merge");
  RoutingProfile merged{.identity = profiles[0].identity, .domains = {}};
  std::map<std::string, size_t, std::less<>> index_of;
  for (size_t p = 0; p < profiles.size(); ++p) {
    const std::string which = absl::StrCat("profile ", p + 1, " of ", profiles.size());
    HEARTH_RETURN_IF_ERROR(profiles[p].CheckIdentity(merged.identity, which));
    if (absl::Status status = profiles[p].Validate(); !status.ok()) return Annotate(status, which);
    for (const ProfileDomain& domain : profiles[p].domains) {
      const auto [it, added] = index_of.emplace(domain.name, merged.domains.size());
      if (added) {
        merged.domains.push_back(domain);
        continue;
      }
      // Each is at most 2^48, and so is a sum that passed: no overflow.
      ProfileDomain& sum = merged.domains[it->second];
      sum.token_count += domain.token_count;
      HEARTH_RETURN_IF_ERROR(CheckBounds(absl::StrCat("domain ", ShownText(sum.name), ": tokens"),
                                         sum.token_count, 1, kProfileTokensMax));
      for (size_t i = 0; i < sum.counts.size(); ++i) sum.counts[i] += domain.counts[i];
    }
  }
  if (absl::Status status = merged.Validate(); !status.ok()) {
    return Annotate(status, "the merged profile");
  }
  return merged;
}

absl::StatusOr<ProfileDifference> DiffProfiles(const RoutingProfile& a, const RoutingProfile& b) {
  HEARTH_RETURN_IF_ERROR(b.CheckIdentity(a.identity, "the second profile"));
  const std::vector<uint64_t> counts_a = a.Counts();
  const std::vector<uint64_t> counts_b = b.Counts();
  const size_t experts = a.identity.expert_count;
  ProfileDifference difference;
  uint32_t compared = 0;
  for (uint32_t layer = 0; layer < a.identity.all_layer_count(); ++layer) {
    const std::span<const uint64_t> p = std::span(counts_a).subspan(layer * experts, experts);
    const std::span<const uint64_t> q = std::span(counts_b).subspan(layer * experts, experts);
    const auto p_sum = static_cast<double>(std::accumulate(p.begin(), p.end(), uint64_t{0}));
    const auto q_sum = static_cast<double>(std::accumulate(q.begin(), q.end(), uint64_t{0}));
    if (p_sum == 0 || q_sum == 0) {
      difference.total_variation.push_back(p_sum == q_sum ? 0 : 1);
      difference.shared_hot.push_back(p_sum == q_sum ? 1 : 0);
      continue;
    }
    double distance = 0;
    for (size_t e = 0; e < experts; ++e) {
      distance +=
          std::abs(static_cast<double>(p[e]) / p_sum - static_cast<double>(q[e]) / q_sum) / 2;
    }
    const std::set<uint32_t> hot_a = HottestOf(p);
    const std::set<uint32_t> hot_b = HottestOf(q);
    const auto shared = std::ranges::count_if(hot_a, [&](uint32_t e) { return hot_b.contains(e); });
    difference.total_variation.push_back(distance);
    difference.shared_hot.push_back(static_cast<double>(shared) /
                                    static_cast<double>(hot_a.size()));
    difference.mean_total_variation += distance;
    difference.mean_shared_hot += difference.shared_hot.back();
    ++compared;
  }
  if (compared > 0) {
    difference.mean_total_variation /= compared;
    difference.mean_shared_hot /= compared;
  }
  return difference;
}

}  // namespace hearth
