#include "runtime/topology/cpu_quota.h"

#include <cstdint>
#include <string_view>

#include "runtime/base/control_groups.h"
#include "runtime/base/file.h"

namespace hearth {
namespace {

constexpr uint64_t kDefaultPeriodUs = 100'000;  // when cpu.max names none

struct TimeShare {
  uint64_t quota_us = 0;
  uint64_t period_us = 0;
};

// "max 100000" has no quota, "50000 100000" has.
bool ReadVersion2(const std::string& path, TimeShare* share) {
  const absl::StatusOr<std::string> text = ReadKernelFile(path);
  if (!text.ok() || !ReadLeadingNumber(*text, &share->quota_us)) return false;
  const size_t space = text->find(' ');
  if (space == std::string::npos ||
      !ReadLeadingNumber(std::string_view(*text).substr(space + 1), &share->period_us)) {
    share->period_us = kDefaultPeriodUs;
  }
  return true;
}

// A quota of -1 is none.
bool ReadVersion1(const std::string& dir, TimeShare* share) {
  const absl::StatusOr<std::string> quota = ReadKernelFile(JoinPath(dir, "cpu.cfs_quota_us"));
  const absl::StatusOr<std::string> period = ReadKernelFile(JoinPath(dir, "cpu.cfs_period_us"));
  return quota.ok() && period.ok() && ReadLeadingNumber(*quota, &share->quota_us) &&
         ReadLeadingNumber(*period, &share->period_us);
}

}  // namespace

std::optional<CpuQuota> ReadCpuQuota(const std::string& root) {
  std::optional<CpuQuota> least;
  for (const ControlGroup& group : ControlGroupsOf("cpu", root)) {
    const bool first_version = group.version == GroupVersion::k1;
    const std::string path = JoinPath(group.dir, first_version ? "cpu.cfs_quota_us" : "cpu.max");
    TimeShare share;
    const bool found = first_version ? ReadVersion1(group.dir, &share) : ReadVersion2(path, &share);
    if (!found || share.quota_us == 0 || share.period_us == 0) continue;
    const double cpus = static_cast<double>(share.quota_us) / static_cast<double>(share.period_us);
    if (!least.has_value() || cpus < least->cpus) least = CpuQuota{.cpus = cpus, .source = path};
  }
  return least;
}

}  // namespace hearth
