// Huge pages are found in the kernel's report, and asked for without harm where there are none.
#include "runtime/base/huge_pages.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/base/file.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

std::span<const std::byte> At(uintptr_t address, size_t bytes) {
  return {reinterpret_cast<const std::byte*>(address), bytes};
}

constexpr std::string_view kSmaps =
    "00400000-00600000 r-xp 00000000 08:01 1 /bin/x\n"
    "Size:               2048 kB\n"
    "AnonHugePages:         0 kB\n"
    "VmFlags: rd ex\n"
    "7f0000000000-7f0001000000 rw-p 00000000 00:00 0\n"
    "Size:              16384 kB\n"
    "AnonHugePages:      4096 kB\n"
    "VmFlags: rd wr hg\n";

TEST(HugePages, AreCountedForTheMappingThatHoldsTheAddress) {
  EXPECT_EQ(HugeBytesOf(At(0x7f0000000000, 16_MiB), kSmaps), 4_MiB);
  EXPECT_EQ(HugeBytesOf(At(0x7f0000200000, 14_MiB), kSmaps), 4_MiB);
  EXPECT_EQ(HugeBytesOf(At(0x7f0000200000, 1_MiB), kSmaps), 1_MiB);  // never more than there is
  EXPECT_EQ(HugeBytesOf(At(0x400000, 2_MiB), kSmaps), 0u);
  EXPECT_EQ(HugeBytesOf(At(0x7f0001000000, 2_MiB), kSmaps), 0u);  // just past its end
  EXPECT_EQ(HugeBytesOf(At(0x1000, 2_MiB), kSmaps), 0u);
  EXPECT_EQ(HugeBytesOf(At(0x7f0000000000, 2_MiB), ""), 0u);
  EXPECT_EQ(HugeBytesOf(At(0x7f0000000000, 2_MiB),
                        "7f0000000000-7f0001000000 rw\nAnonHugePages: many kB\n"),
            0u);
}

TEST(HugePages, CollapseKeepsTheBytes) {
  const absl::StatusOr<AnonymousMapping> memory = AnonymousMapping::Create(8_MiB);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const std::span<std::byte> data = memory->data();
  std::fill(data.begin(), data.end(), std::byte{42});
  const absl::Status status = CollapseToHugePages(data);
  EXPECT_EQ(std::count(data.begin(), data.end(), std::byte{42}), static_cast<int64_t>(8_MiB));
  EXPECT_EQ(CollapseToHugePages({}), absl::OkStatus());
  if (!status.ok()) GTEST_SKIP() << "no huge pages to be had: " << status;
  EXPECT_EQ(HugeBytesOf(data), 8_MiB);
}

TEST(AnonymousMapping, LargeOnesStartOnAHugePageAndGiveTheRestBack) {
  for (const uint64_t bytes : {2_MiB, 2_MiB + 1, 7_MiB + 4096}) {
    const absl::StatusOr<AnonymousMapping> memory = AnonymousMapping::Create(bytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(memory->data().size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data().data()) % kHugePageBytes, 0u);
    std::fill(memory->data().begin(), memory->data().end(), std::byte{1});
  }
  EXPECT_FALSE(AnonymousMapping::Create(UINT64_MAX - 5).ok());
}

}  // namespace
}  // namespace hearth
