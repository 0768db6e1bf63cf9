// Leases without messages: whoever holds a place reads its bytes unchanged, whatever the owner of
// the arena does at the same time; the headers in shared memory are checked.
#include "cache/protocol/hazard_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "cache/protocol/resident_directory.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

constexpr ResidentDirectory::Shape kShape{.layer_count = 2, .expert_count = 3};

// Zeroed and aligned as shared memory is.
class Memory {
 public:
  explicit Memory(uint64_t bytes) : words_((bytes + 7) / 8), bytes_(bytes) {}
  std::span<std::byte> data() { return std::as_writable_bytes(std::span(words_)).first(bytes_); }

 private:
  std::vector<uint64_t> words_;
  uint64_t bytes_;
};

TEST(ResidentDirectory, SaysWhereEachExpertLies) {
  Memory memory(ResidentDirectory::BytesFor(kShape));
  ResidentDirectory writer = ResidentDirectory::Format(memory.data(), kShape);
  const absl::StatusOr<ResidentDirectory> reader = ResidentDirectory::Attach(memory.data(), kShape);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const ExpertKey first{LayerId(0), ExpertId(0)}, last{LayerId(1), ExpertId(2)};
  EXPECT_FALSE(reader->Read(first).valid());
  writer.Publish(first, {.page = 0, .generation = 1});
  writer.Publish(last, {.page = 0xFFFFFFFE, .generation = 0xFFFFFFFF});
  EXPECT_EQ(reader->Read(first), (ArenaPlace{.page = 0, .generation = 1}));
  EXPECT_EQ(reader->Read(last), (ArenaPlace{.page = 0xFFFFFFFE, .generation = 0xFFFFFFFF}));
  EXPECT_FALSE(reader->Read({LayerId(0), ExpertId(2)}).valid());
  writer.TakeOut(first);
  EXPECT_FALSE(reader->Read(first).valid());
}

TEST(ResidentDirectory, AnotherHeaderIsRefused) {
  Memory memory(ResidentDirectory::BytesFor(kShape));
  EXPECT_EQ(ResidentDirectory::Attach(memory.data(), kShape).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ResidentDirectory::Format(memory.data(), kShape);
  EXPECT_TRUE(ResidentDirectory::Attach(memory.data(), kShape).ok());
  EXPECT_THAT(ResidentDirectory::Attach(memory.data(), {.layer_count = 3, .expert_count = 2})
                  .status()
                  .message(),
              HasSubstr("2 layers of 3 experts"));
  EXPECT_FALSE(ResidentDirectory::Attach(memory.data().first(64), kShape).ok());
  EXPECT_FALSE(ResidentDirectory::Attach({}, kShape).ok());
}

TEST(HazardPage, HoldsWhatTheDirectoryShows) {
  Memory directory_memory(ResidentDirectory::BytesFor(kShape));
  Memory page_memory(HazardPage::BytesFor(4));
  ResidentDirectory directory = ResidentDirectory::Format(directory_memory.data(), kShape);
  HazardPage daemon = HazardPage::Format(page_memory.data(), 4);
  absl::StatusOr<HazardPage> engine = HazardPage::Attach(page_memory.data(), 4);
  ASSERT_TRUE(engine.ok()) << engine.status();
  const ExpertKey key{LayerId(1), ExpertId(1)};
  EXPECT_FALSE(engine->TryHold(0, key, directory).has_value());
  EXPECT_EQ(daemon.held_count(), 0u);
  directory.Publish(key, {.page = 9, .generation = 4});
  ASSERT_TRUE(engine->TryHold(3, key, directory).has_value());
  EXPECT_TRUE(daemon.Holds(9));
  EXPECT_FALSE(daemon.Holds(0)) << "an empty word holds nothing, not page 0";
  EXPECT_EQ(daemon.held_count(), 1u);
  engine->Drop(3);
  EXPECT_FALSE(daemon.Holds(9));
  EXPECT_FALSE(daemon.closed());
  engine->Close();
  EXPECT_TRUE(daemon.closed());
}

TEST(HazardPage, AnotherHeaderIsRefused) {
  Memory memory(HazardPage::BytesFor(4));
  EXPECT_EQ(HazardPage::Attach(memory.data(), 4).status().code(),
            absl::StatusCode::kFailedPrecondition);
  HazardPage::Format(memory.data(), 4);
  EXPECT_FALSE(HazardPage::Attach(memory.data(), 5).ok());
  EXPECT_FALSE(HazardPage::Attach(memory.data().first(60), 4).ok());
}

// One owner moves four experts between five blocks for as long as it likes, and poisons a block
// before each write; readers lease by the words alone and check that what they hold stays whole.
// The bytes are plain memory: under TSan an overlap is a report as well.
TEST(HazardPage, ABlockIsNeverWrittenWhileItIsHeld) {
  constexpr uint32_t kExperts = 4, kBlocks = 5, kReaders = 3, kWords = 64, kHolds = 300;
  constexpr ResidentDirectory::Shape shape{.layer_count = 1, .expert_count = kExperts};
  Memory directory_memory(ResidentDirectory::BytesFor(shape));
  ResidentDirectory directory = ResidentDirectory::Format(directory_memory.data(), shape);
  Memory page_memory(HazardPage::BytesFor(kReaders));
  HazardPage page = HazardPage::Format(page_memory.data(), kReaders);
  std::vector<std::vector<uint64_t>> arena(kBlocks, std::vector<uint64_t>(kWords));
  std::vector<std::atomic<uint64_t>> held(kReaders), wrong(kReaders);
  std::atomic<bool> stop{false};

  std::vector<std::thread> readers;
  for (uint32_t r = 0; r < kReaders; ++r) {
    readers.emplace_back([&, r] {
      Prng prng(r + 1);
      while (!stop.load()) {
        const ExpertKey key{LayerId(0), ExpertId(static_cast<uint32_t>(prng.Below(kExperts)))};
        const std::optional<ArenaPlace> place = page.TryHold(r, key, directory);
        if (!place.has_value()) {
          std::this_thread::yield();
          continue;
        }
        ++held[r];
        for (int pass = 0; pass < 3; ++pass) {
          for (const uint64_t word : arena[place->page]) {
            if (word != key.expert.value + 1) ++wrong[r];
          }
        }
        page.Drop(r);
      }
    });
  }

  std::vector<uint32_t> block_of(kExperts, kBlocks), generations(kExperts);
  uint32_t free_block = 0;  // kBlocks: none
  std::vector<uint32_t> unused;
  for (uint32_t b = 0; b < kBlocks; ++b) unused.push_back(b);
  Prng prng(99);
  uint64_t move_count = 0, refused_count = 0;
  const auto enough = [&] {
    return move_count >= kHolds && std::all_of(held.begin(), held.end(), [&](const auto& count) {
             return count.load() >= kHolds;
           });
  };
  while (!enough()) {
    const auto expert = static_cast<uint32_t>(prng.Below(kExperts));
    const ExpertKey key{LayerId(0), ExpertId(expert)};
    if (block_of[expert] != kBlocks) {
      directory.TakeOut(key);
      if (page.Holds(block_of[expert])) {
        ++refused_count;
        directory.Publish(key, {.page = block_of[expert], .generation = generations[expert]});
        continue;
      }
      unused.insert(unused.begin(), block_of[expert]);
      block_of[expert] = kBlocks;
    }
    free_block = unused.back();
    unused.pop_back();
    std::fill(arena[free_block].begin(), arena[free_block].end(), 0xBAD);
    std::fill(arena[free_block].begin(), arena[free_block].end(), expert + 1);
    block_of[expert] = free_block;
    directory.Publish(key, {.page = free_block, .generation = ++generations[expert]});
    ++move_count;
    if (move_count % 4 == 0) std::this_thread::yield();
  }
  stop.store(true);
  for (std::thread& reader : readers) reader.join();
  for (uint32_t r = 0; r < kReaders; ++r) EXPECT_EQ(wrong[r].load(), 0u) << "reader " << r;
  (void)refused_count;  // whether the two met is the scheduler's choice
}

}  // namespace
}  // namespace hearth
