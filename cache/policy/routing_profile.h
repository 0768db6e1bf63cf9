// A routing profile: how often each expert was chosen, over which texts, by which model. Parsing
// and printing only; profiles/README.md has the schema.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth {

inline constexpr uint32_t kProfileVersion = 1;
inline constexpr uint64_t kProfileBytesMax = 64 << 20;  // of a profile's text
inline constexpr uint32_t kProfileDomainsMax = 256;
inline constexpr uint64_t kProfileTokensMax = uint64_t{1} << 48;  // in all: no sum can overflow
inline constexpr uint32_t kDomainNameBytesMax = 128;

// Which model routed. Two packs of one checkpoint, whatever their formats, have the same identity.
struct RoutingIdentity {
  std::string model_xxh3_128;      // of the source checkpoint: Manifest::source_xxh3_128
  std::string tokenizer_xxh3_128;  // Manifest::tokenizer_xxh3_128
  uint32_t layer_count = 0;        // of the trunk
  bool has_mtp = false;            // one more layer, after the trunk's
  uint32_t expert_count = 0;       // per layer
  uint32_t ranks = 0;              // experts per token
  uint32_t all_layer_count() const { return layer_count + (has_mtp ? 1 : 0); }
  bool operator==(const RoutingIdentity&) const = default;
  // "8+1 layers x 64 experts, 6 per token, model 0123..., tokenizer 4567..."
  std::string ToString() const;
};

struct ProfileDomain {
  std::string name;          // a text's name, or a group of texts
  uint64_t token_count = 0;  // rows that went through the trunk
  // Route entries, (all_layer_count, expert_count). Each trunk layer's add up to tokens x ranks;
  // the MTP layer's to a multiple of ranks that is not above that.
  std::vector<uint64_t> counts;
};

struct RoutingProfile {
  RoutingIdentity identity;
  std::vector<ProfileDomain> domains;  // distinct names

  uint64_t token_count() const;
  // Summed over the domains: (all_layer_count, expert_count).
  std::vector<uint64_t> Counts() const;

  // The text of a profile, a function of the profile alone; it ends with a checksum of itself. Of a
  // profile that Validate() accepts.
  std::string ToJson() const;
  // DataLoss or InvalidArgument name `path`, key, expected and found: unknown versions and keys, a
  // wrong checksum, counts of another number or with other sums than the header says.
  static absl::StatusOr<RoutingProfile> FromJson(std::string_view text, const std::string& path);

  // InvalidArgument names the field that is not as this header says, or out of bounds.
  absl::Status Validate() const;

  // FailedPrecondition that shows both identities when they differ.
  absl::Status CheckIdentity(const RoutingIdentity& expected, const std::string& path) const;
};

// Domains of the same name are added up; the order is that of their first appearance. At least one
// profile. FailedPrecondition when the models differ, InvalidArgument when the sum is out of
// bounds.
absl::StatusOr<RoutingProfile> MergeProfiles(std::span<const RoutingProfile> profiles);

// How far two profiles' choices lie apart, layer by layer.
struct ProfileDifference {
  std::vector<double> total_variation;  // per layer: half the sum of |p - q| over the experts, 0-1
  std::vector<double> shared_hot;       // per layer: of a's hottest 40%, how many are in b's, 0-1
  double mean_total_variation = 0;      // over the layers that both profiles have counts of
  double mean_shared_hot = 0;
};
// FailedPrecondition when the models differ. A layer without counts in either differs by 0 when it
// has none in both, else by 1.
absl::StatusOr<ProfileDifference> DiffProfiles(const RoutingProfile& a, const RoutingProfile& b);

}  // namespace hearth
