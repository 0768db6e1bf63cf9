#include "cache/daemon/heat_state.h"

#include <cmath>
#include <cstring>
#include <span>
#include <type_traits>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/file.h"
#include "runtime/base/replace_file.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint64_t kHeatMagic = 0x3154414548545248;  // "HRTHEAT1" as bytes in order
constexpr uint32_t kHeatVersion = 1;
constexpr size_t kHashBytes = 32;
constexpr uint64_t kStateBytesMax = uint64_t{1} << 30;  // a full-size model takes 98 KiB

struct HeatHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t layer_count;
  uint32_t expert_count;
  uint32_t values_crc32c;
  char source_hash[kHashBytes];
  uint64_t reserved;  // zero
};
static_assert(sizeof(HeatHeader) == 64 && std::has_unique_object_representations_v<HeatHeader>);

HeatHeader HeaderFor(const HeatModelIdentity& identity, std::span<const float> heat) {
  HeatHeader header{};
  header.magic = kHeatMagic;
  header.version = kHeatVersion;
  header.layer_count = identity.layer_count;
  header.expert_count = identity.expert_count;
  header.values_crc32c = Crc32c(std::as_bytes(heat));
  identity.source_hash.copy(header.source_hash, kHashBytes);
  return header;
}

}  // namespace

absl::Status SaveHeat(const std::string& path, const HeatModelIdentity& identity,
                      const std::vector<float>& heat) {
  HEARTH_CHECK(heat.size() == size_t{identity.layer_count} * identity.expert_count);
  const HeatHeader header = HeaderFor(identity, heat);
  std::string text(reinterpret_cast<const char*>(&header), sizeof(header));
  text.append(reinterpret_cast<const char*>(heat.data()), heat.size() * sizeof(float));
  return ReplaceFile(path, text);
}

absl::StatusOr<std::vector<float>> LoadHeat(const std::string& path,
                                            const HeatModelIdentity& identity) {
  HEARTH_ASSIGN_OR_RETURN(const std::string bytes, ReadFile(path, kStateBytesMax));
  HeatHeader header{};
  if (bytes.size() < sizeof(header)) {
    return absl::DataLossError(absl::StrCat(path, ": ", bytes.size(), " bytes, a saved state has ",
                                            sizeof(header), " and more"));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kHeatMagic) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": not a state of hearthd"));
  }
  if (header.version != kHeatVersion) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": state version ", header.version,
                                                      ", this build reads ", kHeatVersion));
  }
  const HeatModelIdentity found{.source_hash = std::string(header.source_hash, kHashBytes),
                                .layer_count = header.layer_count,
                                .expert_count = header.expert_count};
  if (!(found == identity)) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": of another model: ", found.layer_count, " layers of ", found.expert_count,
        " experts, source ", found.source_hash, "; expected ", identity.layer_count, " of ",
        identity.expert_count, ", source ", identity.source_hash));
  }
  std::vector<float> heat(size_t{header.layer_count} * header.expert_count);
  const size_t values_bytes = heat.size() * sizeof(float);
  if (bytes.size() != sizeof(header) + values_bytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", bytes.size(), " bytes, expected ", sizeof(header) + values_bytes));
  }
  if (!heat.empty()) std::memcpy(heat.data(), bytes.data() + sizeof(header), values_bytes);
  HeatHeader expected = HeaderFor(identity, heat);
  if (std::memcmp(&expected, &header, sizeof(header)) != 0) {
    return absl::DataLossError(absl::StrCat(path, ": damaged: its checksum does not fit"));
  }
  for (const float value : heat) {
    if (std::isfinite(value) && value >= 0) continue;
    return absl::DataLossError(absl::StrCat(path, ": damaged: a heat is negative or not finite"));
  }
  return heat;
}

}  // namespace hearth
