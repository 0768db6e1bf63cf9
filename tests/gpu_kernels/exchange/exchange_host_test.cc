// The host's side of the exchange against a thread that plays the card: nothing is lost, nothing
// stale passes, waits end at their deadline and say what was awaited.
#include "gpu_kernels/ops/exchange/exchange_host.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "runtime/base/spin_wait.h"
#include "tests/gpu_kernels/exchange/play_host.h"

namespace hearth {
namespace {

ExchangeShape PlayShape() {
  return {.layer_count = 5,
          .rows_max = 4,
          .ranks = 10,
          .hidden = 64,
          .forms = {.quantized = true, .rotated = true, .fp32 = true}};
}

struct AlignedDelete {
  void operator()(std::byte* memory) const { ::operator delete[](memory, std::align_val_t(128)); }
};

// Memory of an exchange without a card.
class Memory {
 public:
  explicit Memory(const ExchangeLayout& layout)
      : bytes_(layout.bytes),
        memory_(static_cast<std::byte*>(::operator new[](layout.bytes, std::align_val_t(128)))) {
    std::memset(memory_.get(), 0, bytes_);
  }
  std::span<std::byte> span() const { return {memory_.get(), bytes_}; }

 private:
  uint64_t bytes_;
  std::unique_ptr<std::byte[], AlignedDelete> memory_;
};

// Does with the exchange's memory what the kernels do.
class CardTwin {
 public:
  CardTwin(const ExchangeLayout& layout, std::span<std::byte> memory)
      : layout_(layout), memory_(memory) {}

  // False when `stop` was set before the host began a window.
  bool BeginWindow(const std::atomic<bool>& stop) {
    for (SpinWait wait; TagOf(Load(layout_.window_offset_bytes)) == sequence_; wait.Pause()) {
      if (stop) return false;
    }
    sequence_ = TagOf(Load(layout_.window_offset_bytes));
    digest_ = PlayMix(sequence_);
    return true;
  }

  void PublishRoutes(uint32_t layer, uint32_t rows) {
    const uint64_t at = layout_.LayerOffsetBytes(layer) + layout_.routes_offset_bytes;
    for (uint32_t i = 0; i < rows * layout_.shape.ranks; ++i) {
      Store(at + i * 8, PlayExpert(digest_, i));
      Store(at - layout_.routes_offset_bytes + layout_.weights_offset_bytes + i * 8,
            PlayWord(digest_, PlayPart::kWeight, i));
    }
  }

  void PublishAhead(uint32_t layer, uint32_t rows) {
    const uint64_t at = layout_.LayerOffsetBytes(layer) + layout_.ahead_offset_bytes;
    for (uint32_t i = 0; i < rows * layout_.shape.ranks; ++i) Store(at + i * 8, i);
  }

  void EndWindow() { Store(layout_.end_offset_bytes, 0); }

  void PublishRows(uint32_t layer, uint32_t rows) {
    const ExchangeShape& shape = layout_.shape;
    const uint32_t blocks = shape.hidden / 32;
    Fill(layer, layout_.q_offset_bytes, PlayPart::kQ, rows * shape.hidden / 4);
    Fill(layer, layout_.scale_offset_bytes, PlayPart::kScale, rows * blocks);
    Fill(layer, layout_.sum16_offset_bytes, PlayPart::kSum16, rows * blocks * 2);
    Fill(layer, layout_.rotated_q_offset_bytes, PlayPart::kRotatedQ, rows * shape.hidden / 4);
    Fill(layer, layout_.rotated_scale_offset_bytes, PlayPart::kRotatedScale, rows);
    Fill(layer, layout_.rotated_sum_offset_bytes, PlayPart::kRotatedSum, rows);
    Fill(layer, layout_.x_offset_bytes, PlayPart::kX, rows * shape.hidden);
    const uint64_t at = layout_.LayerOffsetBytes(layer) + layout_.arrived_offset_bytes;
    for (uint32_t i = 0; i < kPublishBlocks; ++i) Store(at + i * 8, 0);
  }

  // The waits of a layer; false when the window was given up.
  bool Take(uint32_t layer, uint32_t rows) {
    const ExchangeShape& shape = layout_.shape;
    const uint64_t at = layout_.LayerOffsetBytes(layer);
    std::vector<bool> on_card(rows * shape.ranks);
    ListHeader hits, late;
    uint64_t sum = TakeList(at + layout_.hits_offset_bytes, PlayPart::kHitItem, PlayPart::kHitEntry,
                            &on_card, &hits);
    if ((hits.flags & kListAborted) != 0) return false;
    if ((hits.flags & kListLateFollows) != 0) {
      sum += TakeList(at + layout_.late_offset_bytes, PlayPart::kLateItem, PlayPart::kLateEntry,
                      &on_card, &late);
    }
    if ((hits.flags & kListOutputsFollow) != 0) Await(at + layout_.outputs_offset_bytes);
    const auto* output = reinterpret_cast<const uint32_t*>(
        memory_.data() + layout_.SetOffsetBytes(layer) + layout_.output_offset_bytes);
    for (uint32_t e = 0; e < on_card.size(); ++e) {
      const uint32_t* row = output + size_t{e} * shape.hidden;
      sum += on_card[e] ? PlayTerm(PlayPart::kOnCard, e, 1, 0)
                        : PlayTerm(PlayPart::kOutput, e, row[0], row[shape.hidden - 1]);
    }
    digest_ = PlayMix(digest_ + sum);
    return true;
  }

  void ReportError(uint32_t layer, ExchangeStage stage) {
    Store(layout_.error_offset_bytes, PackError(layer, stage));
  }

 private:
  uint64_t Load(uint64_t offset_bytes) const {
    return std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(memory_.data() + offset_bytes))
        .load(std::memory_order_acquire);
  }
  void Store(uint64_t offset_bytes, uint32_t payload) {
    std::atomic_ref<uint64_t>(*reinterpret_cast<uint64_t*>(memory_.data() + offset_bytes))
        .store(TaggedWord(sequence_, payload), std::memory_order_release);
  }
  uint32_t Await(uint64_t offset_bytes) const {
    SpinWait wait;
    while (TagOf(Load(offset_bytes)) != sequence_) wait.Pause();
    return PayloadOf(Load(offset_bytes));
  }
  uint64_t TakeList(uint64_t at, PlayPart item_part, PlayPart entry_part,
                    std::vector<bool>* on_card, ListHeader* header) {
    *header = UnpackHeader(Await(at));
    uint64_t sum = 0;
    for (uint32_t i = 0; i < header->item_count; ++i) {
      const uint32_t low = Await(at + 8 + i * 16);
      const uint32_t high = Await(at + 16 + i * 16);
      sum += PlayItemTerm(item_part, i, ItemAddress(low, high), ItemEntryBegin(high),
                          ItemEntryCount(high));
    }
    for (uint32_t i = 0; i < header->entry_count; ++i) {
      const ExpertFfnEntry entry = UnpackEntry(Await(at + 8 + (2 * header->item_count + i) * 8));
      sum += PlayTerm(entry_part, i, entry.x_row, entry.y_row);
      (*on_card)[entry.y_row] = true;
    }
    return sum;
  }
  void Fill(uint32_t layer, uint64_t offset_bytes, PlayPart part, uint32_t count) {
    auto* words =
        reinterpret_cast<uint32_t*>(memory_.data() + layout_.SetOffsetBytes(layer) + offset_bytes);
    for (uint32_t i = 0; i < count; ++i) words[i] = PlayWord(digest_, part, i);
  }

  const ExchangeLayout layout_;
  const std::span<std::byte> memory_;
  uint32_t sequence_ = 0;
  uint64_t digest_ = 0;
};

class ExchangeHostTest : public testing::Test {
 protected:
  ExchangeHostTest() : layout_(*LayOutExchange(PlayShape())), memory_(layout_) {}
  ExchangeLayout layout_;
  Memory memory_;
  SteadyClock clock_;
};

TEST_F(ExchangeHostTest, PlaysWindowsWithoutALostWord) {
  ExchangeHost host(layout_, memory_.span(), clock_);
  std::atomic<bool> stop = false;
  std::atomic<uint32_t> rows = 0;
  std::thread card([&] {
    CardTwin twin(layout_, memory_.span());
    while (twin.BeginWindow(stop)) {
      for (uint32_t layer = 0; layer < layout_.shape.layer_count; ++layer) {
        twin.PublishRoutes(layer, rows);
        twin.PublishRows(layer, rows);
        if (!twin.Take(layer, rows)) break;
      }
    }
  });
  PlayHost player(host, clock_, 1, true);
  absl::Status status;
  for (uint32_t window = 0; window < 400 && status.ok(); ++window) {
    rows = 1 + window % 4;
    host.BeginWindow();
    status = player.PlayWindow(rows);
  }
  EXPECT_TRUE(status.ok()) << status;
  host.Abort();
  stop = true;
  card.join();
}

TEST_F(ExchangeHostTest, SequenceNumbersStartAgainWithoutStaleWords) {
  ExchangeHost host(layout_, memory_.span(), clock_, UINT32_MAX - 2);
  CardTwin twin(layout_, memory_.span());
  const std::atomic<bool> stop = false;
  for (const uint32_t expected : {UINT32_MAX - 1, UINT32_MAX, 1u, 2u}) {
    EXPECT_EQ(host.BeginWindow(), expected);
    EXPECT_FALSE(host.AwaitRoutes(LayerId(0), 1, 0).ok());
    ASSERT_TRUE(twin.BeginWindow(stop));
    twin.PublishRoutes(0, 1);
    EXPECT_TRUE(host.AwaitRoutes(LayerId(0), 1, 0).ok());
  }
}

TEST_F(ExchangeHostTest, WordsOfAnEarlierWindowDoNotCount) {
  ExchangeHost host(layout_, memory_.span(), clock_);
  CardTwin twin(layout_, memory_.span());
  const std::atomic<bool> stop = false;
  host.BeginWindow();
  ASSERT_TRUE(twin.BeginWindow(stop));
  twin.PublishRoutes(2, 4);
  twin.PublishRows(2, 4);
  EXPECT_TRUE(host.AwaitRoutes(LayerId(2), 4, 0).ok());
  EXPECT_TRUE(host.AwaitRows(LayerId(2), 4, 0).ok());
  host.BeginWindow();
  EXPECT_FALSE(host.AwaitRoutes(LayerId(2), 4, 0).ok());
  EXPECT_FALSE(host.AwaitRows(LayerId(2), 4, 0).ok());
  ASSERT_TRUE(twin.BeginWindow(stop));
  twin.PublishRoutes(2, 3);  // one row too few
  EXPECT_TRUE(host.AwaitRoutes(LayerId(2), 3, 0).ok());
  EXPECT_FALSE(host.AwaitRoutes(LayerId(2), 4, 0).ok());
}

TEST_F(ExchangeHostTest, WaitsEndAtTheirDeadlineAndSayWhatWasAwaited) {
  ExchangeHost host(layout_, memory_.span(), clock_);
  host.BeginWindow();
  const int64_t start_ns = clock_.NowNs();
  const absl::Status routes = host.AwaitRoutes(LayerId(3), 2, start_ns + 20'000'000).status();
  EXPECT_GE(clock_.NowNs() - start_ns, 20'000'000);
  EXPECT_EQ(routes.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(routes.message().find("layer 3: the GPU has not published the routes of window 1"),
            std::string::npos)
      << routes;
  const absl::Status rows = host.AwaitRows(LayerId(3), 2, 0).status();
  EXPECT_EQ(rows.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(rows.message().find("the experts' rows"), std::string::npos) << rows;
}

TEST_F(ExchangeHostTest, AGuessIsEmptyUntilItIsThere) {
  ExchangeHost host(layout_, memory_.span(), clock_);
  CardTwin twin(layout_, memory_.span());
  const std::atomic<bool> stop = false;
  host.BeginWindow();
  ASSERT_TRUE(twin.BeginWindow(stop));
  EXPECT_TRUE(host.Ahead(LayerId(1), 2).empty());
  twin.PublishAhead(1, 2);
  EXPECT_EQ(host.Ahead(LayerId(1), 2).size(), 20u);
  EXPECT_TRUE(host.Ahead(LayerId(1), 3).empty());
  host.BeginWindow();
  EXPECT_TRUE(host.Ahead(LayerId(1), 2).empty());
}

TEST_F(ExchangeHostTest, TheEndOfAWindowIsAwaited) {
  ExchangeHost host(layout_, memory_.span(), clock_);
  CardTwin twin(layout_, memory_.span());
  const std::atomic<bool> stop = false;
  host.BeginWindow();
  const absl::Status status = host.AwaitEnd(0);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("not ended window 1"), std::string::npos) << status;
  ASSERT_TRUE(twin.BeginWindow(stop));
  twin.EndWindow();
  EXPECT_TRUE(host.AwaitEnd(0).ok());
  twin.ReportError(1, ExchangeStage::kHits);
  EXPECT_NE(host.AwaitEnd(0).message().find("layer 1"), std::string::npos);
}

TEST_F(ExchangeHostTest, AnErrorOfTheCardEndsTheHostsWait) {
  ExchangeHost host(layout_, memory_.span(), clock_);
  CardTwin twin(layout_, memory_.span());
  const std::atomic<bool> stop = false;
  host.BeginWindow();
  ASSERT_TRUE(twin.BeginWindow(stop));
  EXPECT_TRUE(host.CardError().ok());
  twin.ReportError(2, ExchangeStage::kLate);
  const absl::Status status =
      host.AwaitRoutes(LayerId(3), 1, clock_.NowNs() + 60'000'000'000).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("layer 2: the GPU has waited in vain for the list of uploaded"),
            std::string::npos)
      << status;
  EXPECT_EQ(host.CardError(), status);
  host.BeginWindow();
  EXPECT_TRUE(host.CardError().ok());
}

TEST_F(ExchangeHostTest, RefusesListsThatBreakABound) {
  ExchangeHost host(layout_, memory_.span(), clock_);
  host.BeginWindow();
  const auto refused = [&](ExpertFfnItem item, ExpertFfnEntry entry, const char* reason) {
    const absl::Status status =
        host.PostHits(LayerId(1), {.items = {&item, 1}, .entries = {&entry, 1}}, {});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(status.message().find(reason), std::string::npos) << status;
    EXPECT_NE(status.message().find("layer 1"), std::string::npos) << status;
  };
  const auto blob = [](uint64_t address) { return reinterpret_cast<const std::byte*>(address); };
  refused({blob(32), 0, 1}, {0, 0}, "a multiple of 64");
  refused({blob(uint64_t{1} << 57), 0, 1}, {0, 0}, "below 2^57");
  refused({blob(64), 0, 0}, {0, 0}, "entries 0 + 0");
  refused({blob(64), 0, 2}, {0, 0}, "entries 0 + 2");
  refused({blob(64), UINT32_MAX, 1}, {0, 0}, "entries 4294967295 + 1");
  refused({blob(64), 0, 1}, {16, 0}, "from row 16");
  refused({blob(64), 0, 1}, {0, 40}, "to 40");
  const std::vector<ExpertFfnEntry> many(41);
  EXPECT_FALSE(host.PostHits(LayerId(1), {.items = {}, .entries = many}, {}).ok());
  const std::vector<ExpertFfnItem> items(2, ExpertFfnItem{blob(64), 0, 1});
  EXPECT_FALSE(
      host.PostLate(LayerId(1), {.items = items, .entries = std::span(many).first(1)}).ok());
}

// What the words of a window make of a table on the card.
void ApplyChanges(const ExchangeLayout& layout, std::span<const std::byte> memory,
                  std::vector<uint64_t>* table) {
  uint64_t window = 0;
  std::memcpy(&window, memory.data() + layout.window_offset_bytes, sizeof(window));
  if (PayloadOf(window) > kTableChangesMax) {
    std::memcpy(table->data(), memory.data() + layout.table_offset_bytes, table->size() * 8);
    return;
  }
  for (uint32_t i = 0; i < PayloadOf(window); ++i) {
    TableChange change;
    std::memcpy(&change, memory.data() + layout.changes_offset_bytes + i * sizeof(change),
                sizeof(change));
    (*table)[change.index] = change.entry;
  }
}

TEST(ExchangeTable, ChangesWithTheNextWindow) {
  ExchangeShape shape = PlayShape();
  shape.expert_count = 300;
  const ExchangeLayout layout = *LayOutExchange(shape);
  const Memory memory(layout);
  SteadyClock clock;
  ExchangeHost host(layout, memory.span(), clock);
  std::vector<uint64_t> card(layout.table_count()), expected(layout.table_count());
  Prng prng(9);
  for (uint32_t window = 0; window < 40; ++window) {
    std::vector<uint64_t> next = expected;
    const uint32_t change_count = window % 5 == 0 ? 3000 : window % 3 * 50;
    for (uint32_t i = 0; i < change_count; ++i) {
      const auto index = static_cast<uint32_t>(prng.Below(next.size()));
      next[index] = prng.Below(3) * 64;
      if (next[index] != 0) next[index] |= prng.Below(2) * kFromAfar;
      host.SetEntry(LayerId(index / 300), ExpertId(index % 300), next[index]);
    }
    for (uint32_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(host.entry(LayerId(i / 300), ExpertId(i % 300)), expected[i]) << window;
    }
    host.BeginWindow();
    expected = next;
    ApplyChanges(layout, memory.span(), &card);
    ASSERT_EQ(card, expected) << window;
  }
}

TEST_F(ExchangeHostTest, AbortAnswersWhateverTheCardWaitsFor) {
  ExchangeHost host(layout_, memory_.span(), clock_);
  CardTwin twin(layout_, memory_.span());
  const std::atomic<bool> stop = false;
  host.BeginWindow();
  ASSERT_TRUE(twin.BeginWindow(stop));
  host.Abort();
  for (uint32_t layer = 0; layer < layout_.shape.layer_count; ++layer) {
    EXPECT_FALSE(twin.Take(layer, 1)) << layer;
  }
}

}  // namespace
}  // namespace hearth
