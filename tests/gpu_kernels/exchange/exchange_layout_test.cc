// Sections of the exchange's memory do not overlap and bounds are refused by name; words keep what
// is put into them.
#include "gpu_kernels/ops/exchange/exchange_layout.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/ops/exchange/card_state.h"
#include "gpu_kernels/ops/exchange/exchange_words.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

using Section = std::pair<uint64_t, uint64_t>;  // offset, bytes

void ExpectDisjoint(std::vector<Section> sections, uint64_t bytes) {
  std::ranges::sort(sections);
  uint64_t end = 0;
  for (const auto& [offset, section_bytes] : sections) {
    EXPECT_EQ(offset % 128, 0u);
    if (section_bytes == 0) continue;
    EXPECT_GE(offset, end);
    end = offset + section_bytes;
  }
  EXPECT_LE(end, bytes);
}

ExchangeShape Flash() {
  return {.layer_count = 49,
          .rows_max = 9,
          .ranks = 10,
          .hidden = 2560,
          .forms = {.quantized = true, .rotated = true, .fp32 = true}};
}

TEST(ExchangeLayout, SectionsAreDisjoint) {
  for (const uint32_t hidden : {32u, 96u, 256u, 2560u}) {
    for (const uint32_t rows : {1u, 5u, 16u}) {
      ExchangeShape shape = Flash();
      shape.hidden = hidden;
      shape.rows_max = rows;
      shape.forms.rotated = rows != 5;
      const absl::StatusOr<ExchangeLayout> l = LayOutExchange(shape);
      ASSERT_TRUE(l.ok()) << l.status();
      const uint64_t entries = l->entries_max();
      const uint64_t blocks = ActivationBlocks(hidden);
      ExpectDisjoint({{l->routes_offset_bytes, entries * 8},
                      {l->weights_offset_bytes, entries * 8},
                      {l->ahead_offset_bytes, entries * 8},
                      {l->arrived_offset_bytes, kPublishBlocks * 8},
                      {l->hits_offset_bytes, (1 + 3 * entries) * 8},
                      {l->late_offset_bytes, (1 + 3 * entries) * 8},
                      {l->outputs_offset_bytes, 8}},
                     l->layer_stride_bytes);
      const uint64_t rotated = shape.forms.rotated ? 1 : 0;
      ExpectDisjoint({{l->q_offset_bytes, rows * blocks * 32},
                      {l->scale_offset_bytes, rows * blocks * 4},
                      {l->sum16_offset_bytes, rows * blocks * 8},
                      {l->rotated_q_offset_bytes, rotated * rows * hidden},
                      {l->rotated_scale_offset_bytes, rotated * rows * 4},
                      {l->rotated_sum_offset_bytes, rotated * rows * 4},
                      {l->x_offset_bytes, rows * hidden * 4},
                      {l->output_offset_bytes, entries * hidden * 4}},
                     l->set_stride_bytes);
      const uint64_t stamps = uint64_t{kStampWindows} * (49 + 1) * kExchangeStamps * 8;
      ExpectDisjoint({{l->window_offset_bytes, 8},
                      {l->error_offset_bytes, 8},
                      {l->end_offset_bytes, 8},
                      {l->layers_offset_bytes, 49 * l->layer_stride_bytes},
                      {l->sets_offset_bytes, 2 * l->set_stride_bytes},
                      {l->stamps_offset_bytes, stamps}},
                     l->bytes);
      EXPECT_EQ(l->StampsOffsetBytes(7, 48) + kExchangeStamps * 8, l->WindowStampsOffsetBytes(7));
      EXPECT_LE(l->WindowStampsOffsetBytes(7) + kExchangeStamps * 8, l->bytes);
    }
  }
}

TEST(ExchangeLayout, CardSectionsAreDisjoint) {
  for (const uint32_t entries : {1u, 90u, 160u, 512u}) {
    const CardLayout l = LayOutCard(entries, 100);
    ExpectDisjoint({{0, sizeof(CardState)},
                    {l.hit_items_offset_bytes, entries * sizeof(ExpertFfnItem)},
                    {l.hit_entries_offset_bytes, entries * sizeof(ExpertFfnEntry)},
                    {l.late_items_offset_bytes, entries * sizeof(ExpertFfnItem)},
                    {l.late_entries_offset_bytes, entries * sizeof(ExpertFfnEntry)},
                    {l.on_card_offset_bytes, entries},
                    {l.table_offset_bytes, 800}},
                   l.bytes);
  }
}

TEST(ExchangeLayout, RefusesWhatBreaksABound) {
  const auto message_of = [](auto change) {
    ExchangeShape shape = Flash();
    change(shape);
    const absl::StatusOr<ExchangeLayout> l = LayOutExchange(shape);
    EXPECT_EQ(l.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(l.status().message());
  };
  EXPECT_NE(message_of([](ExchangeShape& s) { s.layer_count = 0; }).find("0 layers: 1 to 256"),
            std::string::npos);
  EXPECT_NE(message_of([](ExchangeShape& s) { s.rows_max = 17; }).find("17 rows"),
            std::string::npos);
  EXPECT_NE(message_of([](ExchangeShape& s) { s.ranks = 57; }).find("57 ranks"), std::string::npos);
  EXPECT_NE(message_of([](ExchangeShape& s) { s.hidden = 48; }).find("a multiple of 32"),
            std::string::npos);
}

TEST(ExchangeWords, KeepWhatIsPutIntoThem) {
  Prng prng(3);
  for (int i = 0; i < 10000; ++i) {
    const auto tag = static_cast<uint32_t>(prng.Next());
    const auto payload = static_cast<uint32_t>(prng.Next());
    EXPECT_EQ(TagOf(TaggedWord(tag, payload)), tag);
    EXPECT_EQ(PayloadOf(TaggedWord(tag, payload)), payload);
    const uint64_t address = prng.Next() % (uint64_t{1} << (kItemAddressBits - 6)) * 64;
    const auto begin = static_cast<uint32_t>(prng.Below(kExchangeEntriesMax));
    const auto count = static_cast<uint32_t>(1 + prng.Below(kItemRowsMax));
    const uint32_t high = PackItemHigh(address, begin, count);
    EXPECT_EQ(ItemAddress(PackItemLow(address), high), address);
    EXPECT_EQ(ItemEntryBegin(high), begin);
    EXPECT_EQ(ItemEntryCount(high), count);
    const ExpertFfnEntry entry = {static_cast<uint32_t>(prng.Below(kExchangeRowsMax)),
                                  static_cast<uint32_t>(prng.Below(kExchangeEntriesMax))};
    EXPECT_EQ(UnpackEntry(PackEntry(entry)).x_row, entry.x_row);
    EXPECT_EQ(UnpackEntry(PackEntry(entry)).y_row, entry.y_row);
  }
  const ListHeader header = {.item_count = 512, .entry_count = 511, .flags = kListOutputsFollow};
  EXPECT_EQ(UnpackHeader(PackHeader(header)).item_count, 512u);
  EXPECT_EQ(UnpackHeader(PackHeader(header)).entry_count, 511u);
  EXPECT_EQ(UnpackHeader(PackHeader(header)).flags, kListOutputsFollow);
}

}  // namespace
}  // namespace hearth
