// Images on disk, under the prefix cache: found after a restart, never used when damaged or
// foreign, within their budget, one owner, and whole whenever the process is killed.
#include "runtime/engine/prefix_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/prng.h"
#include "runtime/engine/prefix_index.h"
#include "tests/runtime/engine/prefix_reading.h"
#include "tests/support/safetensors_fixture.h"
#include "tests/support/yield_for.h"

namespace hearth {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPage = 4096;
constexpr uint64_t kPlenty = 1 << 30;

class PrefixStoreTest : public testing::Test {
 protected:
  PrefixStoreOptions Options(uint64_t budget_bytes = kPlenty, std::string_view model = "model") {
    PrefixStoreOptions options;
    options.dir = dir();
    options.budget_bytes = budget_bytes;
    options.binding = HashPrefixBinding(model);
    options.waiting_max = 1000;
    options.log = [this](std::string_view text) {
      const std::lock_guard lock(log_mutex_);
      log_ += std::string(text) + "\n";
    };
    return options;
  }
  std::string dir() const { return root_.File("images"); }
  std::string Log() {
    const std::lock_guard lock(log_mutex_);
    return std::exchange(log_, {});
  }
  std::unique_ptr<PrefixStore> Open(const PrefixStoreOptions& options) {
    auto store = PrefixStore::Open(options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  // A process's life: `use` with a cache over the directory.
  template <class Use>
  PrefixStoreStats Live(const PrefixStoreOptions& options, Use use,
                        uint64_t ram_budget_bytes = kPlenty) {
    const std::unique_ptr<PrefixStore> store = Open(options);
    if (store == nullptr) return {};
    PrefixCache cache(
        imager_,
        {.ram_budget_bytes = ram_budget_bytes, .spacing_tokens = 1000, .disk_gain_tokens = 1},
        store.get());
    use(cache);
    store->Flush();
    return store->stats();
  }
  // Tokens that were not read; everything is as if all had been.
  uint32_t Read(PrefixCache& cache, const Tokens& prompt, bool drafts = true,
                std::string_view salt = "") {
    const Cuts cuts = EveryCut(prompt.size(), 10);
    const PrefixQuery query{.tokens = prompt, .cuts = cuts, .salt = salt, .drafts = drafts};
    const Reading with = ReadPrompt(&cache, query);
    const Reading without = ReadPrompt(nullptr, query);
    EXPECT_EQ(with.sequence, without.sequence);
    if (drafts) {
      EXPECT_EQ(with.sequence.draft_values, without.sequence.draft_values);
    }
    return with.reused;
  }
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(dir())) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  int WholeFiles() const {
    if (!fs::exists(dir())) return 0;
    int count = 0;
    for (const std::string& name : Files()) count += name.ends_with(".prefix");
    return count;
  }
  static std::string Name(uint64_t number) {
    char name[32];
    std::snprintf(name, sizeof(name), "%016llx.prefix", static_cast<unsigned long long>(number));
    return name;
  }

  FixtureDir root_;
  FakeImager imager_{100};
  std::mutex log_mutex_;
  std::string log_;
};

TEST_F(PrefixStoreTest, ConversationGoesOnAfterARestart) {
  const Tokens first = Range(0, 101);
  const Tokens second = Join(first, Range(500, 60));
  const Tokens third = Join(second, Range(900, 60));
  Live(Options(), [&](PrefixCache& cache) { EXPECT_EQ(Read(cache, first), 0u); });
  Live(Options(), [&](PrefixCache& cache) {
    EXPECT_EQ(Read(cache, second), 100u);
    EXPECT_EQ(cache.stats().disk_hits, 1u);
    EXPECT_EQ(Read(cache, second), 160u) << "from memory";
    EXPECT_EQ(cache.stats().disk_hits, 1u);
  });
  const PrefixStoreStats stats = Live(Options(), [&](PrefixCache& cache) {
    EXPECT_EQ(Read(cache, third), 160u) << "of two files";
    EXPECT_EQ(Read(cache, first), 100u);
    EXPECT_EQ(Read(cache, first, true, "other"), 0u);
  });
  EXPECT_EQ(stats.images, 4u) << "three turns, and the other name space's";
  EXPECT_EQ(stats.damaged, 0u);
  EXPECT_EQ(Log(), "");
  struct stat info;
  ASSERT_EQ(::stat(dir().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u) << "conversations are nobody else's";
  ASSERT_EQ(::stat((dir() + "/" + Name(1)).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(PrefixStoreTest, KeysAndValuesOfAConversationAreWrittenOnce) {
  Tokens prompt = Range(0, 10001);  // 80 kB of values
  Live(Options(), [&](PrefixCache& cache) {
    for (int turn = 0; turn < 5; ++turn) {
      Read(cache, prompt, false);
      prompt = Join(prompt, Range(100000 * (turn + 1), 20));
    }
  });
  uint64_t bytes = 0;
  for (const std::string& name : Files()) bytes += fs::file_size(dir() + "/" + name);
  EXPECT_EQ(Files().size(), 6u) << "and the lock";
  EXPECT_LT(bytes, 80000 + 10000 * 8 + 16 * kPage);
}

TEST_F(PrefixStoreTest, SecondOwnerIsRefused) {
  const auto store = Open(Options());
  const auto second = PrefixStore::Open(Options());
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(second.status().message().find(dir()), absl::string_view::npos) << second.status();
}

TEST_F(PrefixStoreTest, PlacesThatCannotBeUsedAreErrors) {
  PrefixStoreOptions options = Options();
  options.dir = root_.File("none/images");
  EXPECT_EQ(PrefixStore::Open(options).status().code(), absl::StatusCode::kNotFound);
  options.dir = root_.File("file");
  std::ofstream(options.dir) << "text";
  EXPECT_FALSE(PrefixStore::Open(options).ok());
}

TEST_F(PrefixStoreTest, DamagedFilesAreNeverUsed) {
  const Tokens first = Range(0, 101);
  const Tokens second = Join(first, Range(500, 60));
  Live(Options(), [&](PrefixCache& cache) {
    Read(cache, first);
    Read(cache, second);
  });
  const std::string saved = root_.File("saved");
  fs::copy(dir(), saved);
  Prng prng(5);
  for (int round = 0; round < 60; ++round) {
    fs::remove_all(dir());
    fs::copy(saved, dir());
    const uint64_t victim = 1 + prng.Below(2);
    const std::string path = dir() + "/" + Name(victim);
    const uint64_t size = fs::file_size(path);
    bool fixed_part = false;
    if (round % 3 == 0) {
      fs::resize_file(path, prng.Below(size));
    } else {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      const uint64_t page = prng.Below(size / kPage);
      const uint64_t at = page * kPage + prng.Below(page == 0 ? 160 : 90);
      file.seekg(static_cast<long>(at));
      const char was = static_cast<char>(file.get());
      file.seekp(static_cast<long>(at));
      file.put(static_cast<char>(was ^ (1 << prng.Below(8))));
      fixed_part = page == 1;
    }
    // The fixed part of the first is not read for the second, which has its own.
    const uint32_t want = victim == 2 ? 100 : fixed_part ? 160 : 0;
    const Tokens asked = Join(second, Range(900, 20));
    Live(Options(),
         [&](PrefixCache& cache) { EXPECT_EQ(Read(cache, asked), want) << "round " << round; });
    EXPECT_EQ(Log().empty(), want == 160) << "round " << round;
    if (want == 160) continue;
    Live(Options(), [&](PrefixCache& cache) { EXPECT_EQ(Read(cache, asked), 180u); });
    EXPECT_EQ(Log(), "") << "what was damaged is gone";
  }
}

TEST_F(PrefixStoreTest, ImagesOfOthersAreLeftUntilTheirRoomIsNeeded) {
  const Tokens prompt = Range(0, 101);
  const auto read = [&](PrefixCache& cache) { EXPECT_EQ(Read(cache, prompt), 0u); };
  const uint64_t one_bytes = Live(Options(kPlenty, "model A"), read).bytes;
  EXPECT_EQ(Live(Options(kPlenty, "model B"), read).images, 2u);
  Live(Options(kPlenty, "model A"),
       [&](PrefixCache& cache) { EXPECT_EQ(Read(cache, prompt), 100u); });
  const PrefixStoreStats stats = Live(Options(2 * one_bytes, "model A"), [&](PrefixCache& cache) {
    EXPECT_EQ(Read(cache, Range(5000, 101)), 0u);
    EXPECT_EQ(Read(cache, prompt), 100u);
  });
  EXPECT_EQ(stats.images, 2u);
  EXPECT_EQ(stats.evictions, 1u);
  Live(Options(kPlenty, "model B"), read);
  Live(Options(kPlenty, "model A"), [&](PrefixCache& cache) {
    EXPECT_EQ(Read(cache, prompt), 100u);
    EXPECT_EQ(Read(cache, Range(5000, 101)), 100u);
  });
  EXPECT_EQ(Log(), "");
}

TEST_F(PrefixStoreTest, LeastRecentlyUsedGoesAcrossRestarts) {
  const auto prompt = [](TokenId n) { return Range(1000 * n, 101); };
  uint64_t one_bytes = 0;
  one_bytes = Live(Options(), [&](PrefixCache& cache) { Read(cache, prompt(0)); }).bytes;
  for (const TokenId n : {1, 2}) {
    Live(Options(), [&](PrefixCache& cache) { Read(cache, prompt(n)); });
  }
  Live(Options(), [&](PrefixCache& cache) { EXPECT_EQ(Read(cache, prompt(0)), 100u); });
  Live(Options(3 * one_bytes), [&](PrefixCache& cache) { Read(cache, prompt(3)); });
  const PrefixStoreStats stats = Live(Options(3 * one_bytes), [&](PrefixCache& cache) {
    EXPECT_EQ(Read(cache, prompt(0)), 100u) << "used after 1 and 2 were written";
    EXPECT_EQ(Read(cache, prompt(3)), 100u);
    EXPECT_EQ(Read(cache, prompt(2)), 100u);
  });
  EXPECT_LE(stats.bytes, 3 * one_bytes);
}

TEST_F(PrefixStoreTest, WhatOthersGoOnFromStaysAndTheBudgetHolds) {
  Tokens prompt = Range(0, 101);
  uint64_t one_bytes = 0;
  one_bytes = Live(Options(), [&](PrefixCache& cache) { Read(cache, prompt); }).bytes;
  for (TokenId turn = 1; turn < 9; ++turn) {
    prompt = Join(prompt, Range(1000 * turn, 100));
    const PrefixStoreStats stats = Live(
        Options(4 * one_bytes), [&](PrefixCache& cache) { EXPECT_GT(Read(cache, prompt), 0u); });
    EXPECT_LE(stats.bytes, 4 * one_bytes);
  }
  const PrefixStoreStats stats = Live(Options(one_bytes / 2), [&](PrefixCache& cache) {
    EXPECT_EQ(Read(cache, prompt), 0u) << "opening a store of a smaller budget makes it so";
  });
  EXPECT_EQ(stats.images, 0u);
  EXPECT_GT(stats.not_written, 0u);
  EXPECT_NE(Log().find("no room"), std::string::npos);
}

TEST_F(PrefixStoreTest, OtherFilesAreNotTouched) {
  fs::create_directory(dir());
  for (const char* name : {"notes.txt", "0000000000000001.prefi", "x000000000000001.prefix",
                           "0000000000000000.prefix", "00000000000000001.prefix"}) {
    std::ofstream(dir() + "/" + name) << "mine";
  }
  std::ofstream(dir() + "/0000000000000005.prefix.partial") << "half";
  fs::create_directory(dir() + "/0000000000000009.prefix");
  Live(Options(kPage), [&](PrefixCache& cache) { Read(cache, Range(0, 101)); });
  EXPECT_EQ(Files().size(), 7u) << "all but what was half written, and the lock";
}

TEST_F(PrefixStoreTest, BeginningsAreWrittenWhenTheyAreShared) {
  const Tokens system = Range(0, 50);
  const auto live = [&](TokenId first, int prompts, uint32_t want) {
    const std::unique_ptr<PrefixStore> store = Open(Options());
    PrefixCache cache(imager_,
                      {.ram_budget_bytes = kPlenty, .spacing_tokens = 50, .disk_gain_tokens = 1},
                      store.get());
    for (int i = 0; i < prompts; ++i) {
      EXPECT_EQ(Read(cache, Join(system, Range(first + 100 * i, 30))), i == 0 ? want : 50u);
    }
  };
  live(1000, 2, 0);
  live(2000, 3, 0);  // only where conversations ended is on disk yet
  live(3000, 1, 50);
}

TEST_F(PrefixStoreTest, FileThatVanishedIsReadAgain) {
  const Tokens prompt = Range(0, 101);
  Live(Options(), [&](PrefixCache& cache) { Read(cache, prompt); });
  Live(Options(), [&](PrefixCache& cache) {
    fs::remove(dir() + "/" + Name(1));
    EXPECT_EQ(Read(cache, prompt), 0u);
    EXPECT_EQ(Read(cache, prompt), 100u);
  });
  Live(Options(), [&](PrefixCache& cache) { EXPECT_EQ(Read(cache, prompt), 100u); });
}

TEST_F(PrefixStoreTest, ImageOfOtherSizesIsNotUsed) {
  const Tokens prompt = Range(0, 101);
  Live(Options(), [&](PrefixCache& cache) { Read(cache, prompt); });
  imager_ = FakeImager(108);
  Live(Options(), [&](PrefixCache& cache) { EXPECT_EQ(Read(cache, prompt), 0u); });
  EXPECT_NE(Log().find("not of this model"), std::string::npos);
  Live(Options(), [&](PrefixCache& cache) { EXPECT_EQ(Read(cache, prompt), 100u); });
}

// A child writes conversations until it is killed; what it leaves is whole.
TEST_F(PrefixStoreTest, KilledWhileWriting) {
  FakeImager large(200000);
  const auto prompt = [](TokenId n) { return Range(1000 * n, 101); };
  int partial = 0;
  for (int round = 0; round < 12; ++round) {
    const int whole_before = WholeFiles();
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto store = PrefixStore::Open(Options());
      if (!store.ok()) ::_exit(1);
      PrefixCache cache(large, {.ram_budget_bytes = kPlenty}, store->get());
      for (TokenId n = 0; n < 100; ++n) {
        const Tokens tokens = prompt(100 * round + n);
        const Cuts cuts = EveryCut(tokens.size(), 10);
        ReadPrompt(&cache, {.tokens = tokens, .cuts = cuts});
        (*store)->Flush();
      }
      ::_exit(2);
    }
    while (WholeFiles() <= whole_before) YieldFor(100);
    YieldFor(500 + 700 * round);
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    ASSERT_TRUE(WIFSIGNALED(state)) << "it ended by itself: " << state;
    for (const std::string& name : Files()) partial += name.ends_with(".partial");
    const std::unique_ptr<PrefixStore> store = Open(Options());
    ASSERT_NE(store, nullptr);
    PrefixCache cache(large, {.ram_budget_bytes = kPlenty, .disk_gain_tokens = 1}, store.get());
    EXPECT_EQ(Read(cache, prompt(100 * round), false), 100u);
    EXPECT_EQ(Log(), "") << "nothing is damaged";
    for (const std::string& name : Files()) EXPECT_FALSE(name.ends_with(".partial")) << name;
  }
  std::printf("killed in the middle of a file: %d of 12\n", partial);
}

// Conversations, restarts, evictions from memory and disk.
TEST_F(PrefixStoreTest, WhateverIsFoundIsWhatReadingGives) {
  uint64_t disk_hits = 0, evictions = 0;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    fs::remove_all(dir());
    Prng prng(seed);
    std::vector<Tokens> told(1);
    for (int life = 0; life < 6; ++life) {
      const uint64_t ram_bytes = (10 + prng.Below(100)) * kPage;
      const PrefixStoreStats stats = Live(
          Options((20 + prng.Below(150)) * kPage),
          [&](PrefixCache& cache) {
            for (int step = 0; step < 15; ++step) {
              Tokens prompt = told[prng.Below(told.size())];
              prompt.resize(prng.Below(prompt.size() + 1));
              for (uint64_t n = 1 + prng.Below(60); n > 0; --n) {
                prompt.push_back(static_cast<TokenId>(prng.Below(3)));
              }
              Read(cache, prompt, prng.Below(4) != 0);
              told.push_back(std::move(prompt));
            }
            EXPECT_LE(cache.stats().images, kPrefixImagesMax);
            disk_hits += cache.stats().disk_hits;
          },
          ram_bytes);
      ASSERT_LE(stats.bytes, stats.budget_bytes);
      ASSERT_EQ(stats.damaged, 0u);
      evictions += stats.evictions;
    }
    ASSERT_FALSE(HasFailure()) << "seed " << seed << "\n" << Log();
  }
  EXPECT_GT(disk_hits, 20u);
  EXPECT_GT(evictions, 40u);
}

}  // namespace
}  // namespace hearth
