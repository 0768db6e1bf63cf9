#include "runtime/topology/machine.h"

#include <hwloc.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "runtime/base/control_groups.h"
#include "runtime/base/cpus.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

// Cores of one tier differ by less than a fifth.
constexpr uint64_t kTierPercent = 80;

// What the system says of a kind of cores: a capacity (ARM), or its highest frequency; 0 is
// nothing.
uint64_t RatingOf(hwloc_topology_t hwloc, unsigned kind) {
  unsigned count = 0;
  hwloc_info_s* infos = nullptr;
  if (hwloc_cpukinds_get_info(hwloc, kind, nullptr, nullptr, &count, &infos, 0) != 0) return 0;
  uint64_t rating = 0;
  for (const hwloc_info_s& info : std::span(infos, count)) {
    const std::string_view name = info.name;
    uint64_t value = 0;
    if (name != "LinuxCapacity" && name != "FrequencyMaxMHz") continue;
    if (!ReadLeadingNumber(info.value, &value)) continue;
    if (name == "LinuxCapacity") return value;
    rating = value;
  }
  return rating;
}

// For each of hwloc's kinds of cores how fast it is, from 0; kinds that differ little, such as
// favoured cores, count as one, and so do all when hwloc ranks none.
std::vector<int> KindSpeeds(hwloc_topology_t hwloc) {
  const int kind_count = std::max(0, hwloc_cpukinds_get_nr(hwloc, 0));
  std::vector<int> speeds(static_cast<size_t>(kind_count));
  uint64_t tier_rating = 0;                        // of the slowest kind of the tier at hand
  for (int kind = 0; kind < kind_count; ++kind) {  // slowest first
    int efficiency = -1;
    hwloc_cpukinds_get_info(hwloc, static_cast<unsigned>(kind), nullptr, &efficiency, nullptr,
                            nullptr, 0);
    if (efficiency < 0) return std::vector<int>(speeds.size(), 0);
    const uint64_t rating = RatingOf(hwloc, static_cast<unsigned>(kind));
    const bool alike =
        kind > 0 && tier_rating != 0 && rating != 0 && tier_rating * 100 >= rating * kTierPercent;
    if (kind > 0)
      speeds[static_cast<size_t>(kind)] = speeds[static_cast<size_t>(kind) - 1] + !alike;
    if (!alike) tier_rating = rating;
  }
  return speeds;
}

int SpeedOf(hwloc_topology_t hwloc, const hwloc_obj* core, const std::vector<int>& kind_speeds) {
  const int kind = hwloc_cpukinds_get_by_cpuset(hwloc, core->cpuset, 0);
  return kind < 0 ? 0 : kind_speeds[static_cast<size_t>(kind)];
}

// The small cores of an Intel hybrid processor; empty on others. hwloc would learn of them by
// moving this thread over every CPU.
std::vector<uint32_t> SmallCpus(const std::string& root) {
  const absl::StatusOr<std::string> text =
      ReadKernelFile(JoinPath(root, "sys/devices/cpu_atom/cpus"));
  if (!text.ok() || !FileExists(JoinPath(root, "sys/devices/cpu_core/cpus"))) return {};
  const absl::StatusOr<std::vector<uint32_t>> cpus =
      ParseCpuList(std::string_view(*text).substr(0, text->find('\n')));
  return cpus.ok() ? *cpus : std::vector<uint32_t>();
}

// The last cache above `pu`, or its package; numbers of the two kinds do not mix on one machine.
uint32_t CacheOf(hwloc_topology_t hwloc, hwloc_obj* pu) {
  for (const hwloc_obj_type_t type : {HWLOC_OBJ_L3CACHE, HWLOC_OBJ_PACKAGE}) {
    const hwloc_obj* above = hwloc_get_ancestor_obj_by_type(hwloc, type, pu);
    if (above != nullptr) return above->logical_index;
  }
  return 0;
}

}  // namespace

void Machine::Destroy::operator()(hwloc_topology* hwloc) const { hwloc_topology_destroy(hwloc); }

absl::StatusOr<Machine::Handle> Machine::Start() {
  hwloc_topology_t hwloc = nullptr;
  if (hwloc_topology_init(&hwloc) != 0) return ErrnoStatus(errno, "hwloc");
  Handle handle(hwloc);
  // hwloc would otherwise move this thread over every CPU to ask each about itself.
  hwloc_topology_set_flags(hwloc, HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING);
  return handle;
}

absl::StatusOr<std::unique_ptr<Machine>> Machine::Finish(Handle hwloc,
                                                         std::span<const uint32_t> small_cpus) {
  if (hwloc_topology_load(hwloc.get()) != 0) {
    return ErrnoStatus(errno, "hwloc: the topology cannot be read");
  }
  std::unique_ptr<Machine> machine(new Machine(std::move(hwloc)));
  machine->ReadCores(small_cpus);
  return machine;
}

absl::StatusOr<std::unique_ptr<Machine>> Machine::Read(const std::string& root) {
  HEARTH_ASSIGN_OR_RETURN(Handle hwloc, Start());
  return Finish(std::move(hwloc), SmallCpus(root));
}

absl::StatusOr<std::unique_ptr<Machine>> Machine::FromSynthetic(const std::string& description) {
  HEARTH_ASSIGN_OR_RETURN(Handle hwloc, Start());
  if (hwloc_topology_set_synthetic(hwloc.get(), description.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("hwloc: '", description, "'"));
  }
  return Finish(std::move(hwloc), {});
}

absl::StatusOr<std::unique_ptr<Machine>> Machine::FromXml(const std::string& xml) {
  HEARTH_ASSIGN_OR_RETURN(Handle hwloc, Start());
  if (hwloc_topology_set_xmlbuffer(hwloc.get(), xml.c_str(), static_cast<int>(xml.size() + 1)) !=
      0) {
    return ErrnoStatus(errno, "hwloc: XML");
  }
  return Finish(std::move(hwloc), {});
}

void Machine::ReadCores(std::span<const uint32_t> small_cpus) {
  std::map<const hwloc_obj*, size_t> index_of_core;
  std::vector<std::pair<bool, int>> slowness;  // of each core: small, then its speed
  const std::vector<int> kind_speeds = KindSpeeds(hwloc_.get());
  const int count = hwloc_get_nbobjs_by_type(hwloc_.get(), HWLOC_OBJ_PU);
  for (int i = 0; i < count; ++i) {
    hwloc_obj* pu = hwloc_get_obj_by_type(hwloc_.get(), HWLOC_OBJ_PU, static_cast<unsigned>(i));
    const hwloc_obj* core = hwloc_get_ancestor_obj_by_type(hwloc_.get(), HWLOC_OBJ_CORE, pu);
    if (core == nullptr) core = pu;
    const auto [at, added] = index_of_core.emplace(core, topology_.cores.size());
    if (added) {
      const int node = hwloc_bitmap_first(pu->nodeset);
      topology_.cores.push_back({.cache = CacheOf(hwloc_.get(), pu),
                                 .numa_node = static_cast<uint32_t>(std::max(node, 0))});
      const bool small =
          std::find(small_cpus.begin(), small_cpus.end(), pu->os_index) != small_cpus.end();
      slowness.emplace_back(small, -SpeedOf(hwloc_.get(), core, kind_speeds));
    }
    topology_.cores[at->second].cpus.push_back(pu->os_index);
  }
  const std::set<std::pair<bool, int>> kinds(slowness.begin(), slowness.end());
  for (size_t i = 0; i < topology_.cores.size(); ++i) {
    Core& core = topology_.cores[i];
    std::sort(core.cpus.begin(), core.cpus.end());
    core.tier = static_cast<uint32_t>(std::distance(kinds.begin(), kinds.find(slowness[i])));
  }
}

absl::Status Machine::Bind(std::thread::native_handle_type thread, std::span<const uint32_t> cpus) {
  const Bitmap set(hwloc_bitmap_alloc());
  if (set == nullptr) return absl::ResourceExhaustedError("hwloc: no memory");
  for (const uint32_t cpu : cpus) hwloc_bitmap_set(set.get(), cpu);
  if (hwloc_set_thread_cpubind(hwloc_.get(), thread, set.get(), 0) != 0) {
    return ErrnoStatus(errno, absl::StrCat("pin to CPU ", FormatCpuList(cpus)));
  }
  return absl::OkStatus();
}

}  // namespace hearth
