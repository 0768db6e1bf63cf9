// What hwloc makes of machines that do not exist: synthetic ones, and a made-up /sys with hybrid
// cores. Then the machine at hand.
#include "runtime/topology/machine.h"

#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/cpus.h"

namespace hearth {
namespace {

using ::testing::ElementsAre;
using ::testing::IsSubsetOf;
using Ids = std::vector<uint32_t>;

Topology TopologyOf(const absl::StatusOr<std::unique_ptr<Machine>>& machine) {
  EXPECT_TRUE(machine.ok()) << machine.status();
  return machine.ok() ? (*machine)->topology() : Topology{};
}

template <class Get>
Ids EachCore(const Topology& topology, Get&& get) {
  Ids values;
  for (const Core& core : topology.cores) values.push_back(get(core));
  return values;
}

Ids Tiers(const Topology& topology) {
  return EachCore(topology, [](const Core& core) { return core.tier; });
}

TEST(Machine, SyntheticCoresKeepTheirThreadsCachesAndNodes) {
  const Topology topology = TopologyOf(Machine::FromSynthetic("package:2 [numa] l3:2 core:2 pu:2"));
  ASSERT_EQ(topology.cores.size(), 8u);
  EXPECT_THAT(topology.cores[0].cpus, ElementsAre(0, 1));
  EXPECT_THAT(topology.cores[7].cpus, ElementsAre(14, 15));
  EXPECT_THAT(EachCore(topology, [](const Core& c) { return c.numa_node; }),
              ElementsAre(0, 0, 0, 0, 1, 1, 1, 1));
  EXPECT_THAT(EachCore(topology, [](const Core& c) { return c.cache; }),
              ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_THAT(Tiers(topology), ::testing::Each(0u));
}

TEST(Machine, ManyCpusAreAllListed) {
  const Topology topology = TopologyOf(Machine::FromSynthetic("numa:4 core:48 pu:2"));
  ASSERT_EQ(topology.cores.size(), 192u);
  EXPECT_THAT(topology.cores.back().cpus, ElementsAre(382, 383));
  EXPECT_EQ(topology.cores.back().numa_node, 3u);
}

TEST(Machine, DescriptionThatMakesNoSenseIsRefused) {
  EXPECT_FALSE(Machine::FromSynthetic("core:none").ok());
  EXPECT_FALSE(Machine::FromXml("<topology").ok());
}

// A directory that stands for "/": hwloc reads it where HWLOC_FSROOT says so.
class FakeSys {
 public:
  FakeSys() : dir_(testing::TempDir() + "machine_root") {
    std::filesystem::remove_all(dir_);
    Write("proc/cpuinfo", "");
    ::setenv("HWLOC_FSROOT", dir_.c_str(), 1);
    ::setenv("HWLOC_COMPONENTS", "linux,stop", 1);
  }
  ~FakeSys() {
    ::unsetenv("HWLOC_FSROOT");
    ::unsetenv("HWLOC_COMPONENTS");
    std::filesystem::remove_all(dir_);
  }
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path full = std::filesystem::path(dir_) / path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
  }
  // The hardware threads of one core, which join those that are there.
  void AddCore(const Ids& cpus) {
    uint64_t siblings = 0;
    for (const uint32_t cpu : cpus) siblings |= uint64_t{1} << cpu;
    for (const uint32_t cpu : cpus) {
      const std::string topology = CpuDir(cpu) + "topology/";
      Write(topology + "core_id", std::to_string(cpus.front()));
      Write(topology + "physical_package_id", "0");
      Write(topology + "thread_siblings", Mask(siblings));
      cpus_.push_back(cpu);
    }
  }
  void Finish() const {
    uint64_t all = 0;
    for (const uint32_t cpu : cpus_) all |= uint64_t{1} << cpu;
    for (const uint32_t cpu : cpus_) Write(CpuDir(cpu) + "topology/core_siblings", Mask(all));
    const std::string list = FormatCpuList(cpus_);
    for (const char* name : {"online", "possible", "present"}) {
      Write(std::string("sys/devices/system/cpu/") + name, list);
    }
  }
  const std::string& dir() const { return dir_; }
  static std::string CpuDir(uint32_t cpu) {
    return "sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/";
  }

 private:
  static std::string Mask(uint64_t bits) {
    char text[32];
    std::snprintf(text, sizeof(text), "%08x,%08x", static_cast<uint32_t>(bits >> 32),
                  static_cast<uint32_t>(bits));
    return text;
  }
  std::string dir_;
  Ids cpus_;
};

TEST(Machine, IntelHybridCoresHaveTwoTiers) {
  FakeSys sys;
  for (uint32_t i = 0; i < 8; ++i) sys.AddCore({2 * i, 2 * i + 1});
  for (uint32_t i = 16; i < 32; ++i) sys.AddCore({i});
  sys.Finish();
  sys.Write("sys/devices/cpu_core/cpus", "0-15");
  sys.Write("sys/devices/cpu_atom/cpus", "16-31");
  const Topology topology = TopologyOf(Machine::Read(sys.dir()));
  ASSERT_EQ(topology.cores.size(), 24u);
  EXPECT_THAT(topology.cores[0].cpus, ElementsAre(0, 1));
  for (const Core& core : topology.cores) {
    EXPECT_EQ(core.tier, core.cpus.front() < 16 ? 0u : 1u) << core.cpus.front();
  }
}

// Meteor Lake: the small cores outside the main die are slower still.
TEST(Machine, SmallCoresMayDifferAmongThemselves) {
  FakeSys sys;
  for (uint32_t i = 0; i < 8; ++i) sys.AddCore({i});
  sys.Finish();
  sys.Write("sys/devices/cpu_core/cpus", "0-1");
  sys.Write("sys/devices/cpu_atom/cpus", "2-7");
  for (uint32_t i = 0; i < 8; ++i) {
    sys.Write(FakeSys::CpuDir(i) + "cpufreq/cpuinfo_max_freq",
              i < 2 ? "5000000" : (i < 6 ? "3800000" : "2500000"));
  }
  EXPECT_THAT(Tiers(TopologyOf(Machine::Read(sys.dir()))), ElementsAre(0, 0, 1, 1, 1, 1, 2, 2));
}

TEST(Machine, ArmCoresAreRankedByCapacity) {
  FakeSys sys;
  for (uint32_t i = 0; i < 8; ++i) sys.AddCore({i});
  sys.Finish();
  for (uint32_t i = 0; i < 8; ++i) {
    sys.Write(FakeSys::CpuDir(i) + "cpu_capacity", i < 4 ? "300" : (i < 7 ? "750" : "1024"));
  }
  EXPECT_THAT(Tiers(TopologyOf(Machine::Read())), ElementsAre(2, 2, 2, 2, 1, 1, 1, 0));
}

TEST(Machine, MissingFilesMeanThatAllCoresAreEqual) {
  FakeSys sys;
  for (uint32_t i = 0; i < 8; ++i) sys.AddCore({i});
  sys.Finish();
  const Topology topology = TopologyOf(Machine::Read());
  ASSERT_EQ(topology.cores.size(), 8u);
  EXPECT_THAT(Tiers(topology), ::testing::Each(0u));
}

TEST(Machine, SmallDifferencesOfFrequencyMakeNoTier) {
  FakeSys sys;  // favoured cores of one kind
  for (uint32_t i = 0; i < 4; ++i) sys.AddCore({i});
  sys.Finish();
  for (uint32_t i = 0; i < 4; ++i) {
    sys.Write(FakeSys::CpuDir(i) + "cpufreq/cpuinfo_max_freq", i < 2 ? "5700000" : "5500000");
  }
  EXPECT_THAT(Tiers(TopologyOf(Machine::Read())), ::testing::Each(0u));
}

TEST(Machine, OfflineCpuIsNotListed) {
  FakeSys sys;
  for (const uint32_t i : {0u, 1u, 3u}) sys.AddCore({i});
  sys.Finish();
  sys.Write("sys/devices/system/cpu/possible", "0-3");
  sys.Write(FakeSys::CpuDir(2) + "online", "0");
  EXPECT_THAT(EachCore(TopologyOf(Machine::Read()), [](const Core& c) { return c.cpus.front(); }),
              ElementsAre(0, 1, 3));
}

TEST(Machine, ThisOneKnowsTheAllowedCpus) {
  Ids cpus;
  for (const Core& core : TopologyOf(Machine::Read()).cores) {
    cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
  }
  EXPECT_THAT(AllowedCpus(), IsSubsetOf(cpus));
}

TEST(Machine, BindPinsAThreadAndRefusesWhatIsNotThere) {
  const auto machine = Machine::Read();
  ASSERT_TRUE(machine.ok()) << machine.status();
  std::thread([&] {  // the mask is the thread's own
    const uint32_t last = AllowedCpus().back();
    EXPECT_EQ((*machine)->Bind(pthread_self(), Ids{last}), absl::OkStatus());
    EXPECT_THAT(AllowedCpus(), ElementsAre(last));
    EXPECT_FALSE((*machine)->Bind(pthread_self(), Ids{kCpuIdMax}).ok());
    EXPECT_THAT(AllowedCpus(), ElementsAre(last));
  })
      .join();
}

}  // namespace
}  // namespace hearth
