// Workers start as the flags say, say so in one line, and refuse what they cannot do.
#include "tools/hearth/workers.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/cpus.h"

namespace hearth::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Workers, PlanOfThisMachineIsCarriedOut) {
  const std::vector<uint32_t> before = AllowedCpus();
  {
    const absl::StatusOr<Workers> workers = Workers::Start(0, "", {});
    ASSERT_TRUE(workers.ok()) << workers.status();
    EXPECT_EQ(workers->team->worker_count(), workers->plan.workers.size());
    EXPECT_LE(workers->team->worker_count(), before.size());
    std::ostringstream out;
    PrintWorkers(*workers, out);
    EXPECT_THAT(out.str(), StartsWith("hearth: "));
    EXPECT_THAT(out.str(), HasSubstr("pinned"));
  }
  EXPECT_EQ(AllowedCpus(), before);  // whoever started them is free again
}

TEST(Workers, MoreThreadsThanCpusRunUnpinnedWithoutAWarning) {
  const absl::StatusOr<Workers> workers = Workers::Start(AllowedCpuCount() + 1, "", {});
  ASSERT_TRUE(workers.ok()) << workers.status();
  EXPECT_EQ(workers->team->worker_count(), AllowedCpuCount() + 1);
  EXPECT_FALSE(workers->binding->pinned());
  EXPECT_EQ(workers->warning, "");
}

TEST(Workers, NamedCpusAreTakenOrRefused) {
  const uint32_t last = AllowedCpus().back();
  const absl::StatusOr<Workers> workers = Workers::Start(0, FormatCpuList({&last, 1}), {});
  ASSERT_TRUE(workers.ok()) << workers.status();
  EXPECT_EQ(workers->plan.cpus(), std::vector<uint32_t>{last});
  EXPECT_EQ(Workers::Start(0, "65535", {}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Workers::Start(0, "?", {}).status().code(), absl::StatusCode::kInvalidArgument);
}

// The first set keeps its caller on one CPU; the second must not take that for all there is.
TEST(Workers, SecondSetGetsAsManyAsTheFirst) {
  const std::vector<uint32_t> allowed = AllowedCpus();
  const absl::StatusOr<Workers> first = Workers::Start(0, "", allowed);
  const absl::StatusOr<Workers> second = Workers::Start(0, "", allowed);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(second->plan.cpus(), first->plan.cpus());
}

TEST(Workers, WarningIsOneLineMore) {
  Workers workers;
  workers.plan.workers.resize(2);
  workers.warning = "pin to CPU 3: Invalid argument";
  std::ostringstream out;
  PrintWorkers(workers, out);
  EXPECT_THAT(out.str(), HasSubstr("\nhearth: warning: the workers are not pinned"));
  EXPECT_THAT(out.str(), HasSubstr("CPU 3"));
}

TEST(Workers, AnotherSetMayTakeTheirPlace) {
  absl::StatusOr<Workers> first = Workers::Start(1, "", {});
  absl::StatusOr<Workers> second = Workers::Start(2, "", {});
  ASSERT_TRUE(first.ok() && second.ok());
  *first = *std::move(second);
  EXPECT_EQ(first->team->worker_count(), 2u);
}

}  // namespace
}  // namespace hearth::cli
