// The host's side of the game of play_layer.h.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/ops/exchange/exchange_host.h"
#include "runtime/base/prng.h"
#include "runtime/base/status.h"
#include "tests/gpu_kernels/exchange/play_layer.h"

namespace hearth {

// What the host tells the card of one layer, drawn at random: each entry is a hit, late or the
// CPU's.
struct PlayDraw {
  std::vector<ExpertFfnItem> hit_items, late_items;
  std::vector<ExpertFfnEntry> hit_entries, late_entries;
  std::vector<uint32_t> cpu_entries;

  void Clear() {
    for (auto* items : {&hit_items, &late_items}) items->clear();
    for (auto* entries : {&hit_entries, &late_entries}) entries->clear();
    cpu_entries.clear();
  }

  // The card finds the hits: `table` has each expert as the card's does. `streams_left`: of the
  // window.
  void DrawFromTable(Prng* prng, std::span<const uint32_t> experts, uint32_t ranks,
                     std::vector<uint64_t> table, const StreamRule& rule, uint32_t* streams_left) {
    Clear();
    DropWhatIsNotStreamed(experts, rule, streams_left, &table);
    const uint64_t late_share = prng->Below(3);  // of 2
    std::vector<uint32_t> item_of(table.size(), UINT32_MAX);
    std::vector<std::vector<ExpertFfnEntry>> rows_of_item;
    for (uint32_t e = 0; e < experts.size(); ++e) {
      const ExpertFfnEntry entry = {.x_row = e / ranks, .y_row = e};
      const uint32_t expert = experts[e];
      if (table[expert] == 0) {
        if (prng->Below(2) < late_share) {
          late_entries.push_back(entry);
        } else {
          cpu_entries.push_back(e);
        }
        continue;
      }
      uint32_t& item = item_of[expert];
      if (item == UINT32_MAX || rows_of_item[item].size() == kExpertRowsMax) {
        item = static_cast<uint32_t>(rows_of_item.size());
        rows_of_item.emplace_back();
        const auto address = reinterpret_cast<const std::byte*>(table[expert] & ~kFromAfar);
        hit_items.push_back({.blob = address, .entry_begin = 0, .entry_count = 0});
      }
      rows_of_item[item].push_back(entry);
    }
    for (size_t i = 0; i < hit_items.size(); ++i) {
      hit_items[i].entry_begin = static_cast<uint32_t>(hit_entries.size());
      hit_items[i].entry_count = static_cast<uint32_t>(rows_of_item[i].size());
      hit_entries.insert(hit_entries.end(), rows_of_item[i].begin(), rows_of_item[i].end());
    }
    Group(prng, static_cast<uint32_t>(late_entries.size()), &late_items);
  }

  // Leaves of the experts in host memory those that the rule has the card stream.
  static void DropWhatIsNotStreamed(std::span<const uint32_t> experts, const StreamRule& rule,
                                    uint32_t* streams_left, std::vector<uint64_t>* table) {
    std::vector<uint32_t> missed;  // in the order of their entries
    for (const uint32_t expert : experts) {
      const bool in_slot = (*table)[expert] != 0 && ((*table)[expert] & kFromAfar) == 0;
      if (!in_slot && !std::ranges::count(missed, expert)) missed.push_back(expert);
    }
    uint32_t left = std::min<uint32_t>(
        *streams_left, rule.count[std::min<size_t>(missed.size(), StreamRule::kMissesMax)]);
    for (const uint32_t expert : missed) {
      if ((*table)[expert] == 0) continue;
      if (left == 0) {
        (*table)[expert] = 0;
      } else {
        --left;
        --*streams_left;
      }
    }
  }

  // The host finds them: any entry may be one.
  void Draw(Prng* prng, uint32_t rows, uint32_t ranks) {
    Clear();
    const uint64_t hit_share = prng->Below(5), late_share = prng->Below(3);  // of 4 and of 2
    for (uint32_t e = 0; e < rows * ranks; ++e) {
      const ExpertFfnEntry entry = {.x_row = e / ranks, .y_row = e};
      if (prng->Below(4) < hit_share) {
        hit_entries.push_back(entry);
      } else if (prng->Below(2) < late_share) {
        late_entries.push_back(entry);
      } else {
        cpu_entries.push_back(e);
      }
    }
    Group(prng, static_cast<uint32_t>(hit_entries.size()), &hit_items);
    Group(prng, static_cast<uint32_t>(late_entries.size()), &late_items);
  }

  static void Group(Prng* prng, uint32_t entry_count, std::vector<ExpertFfnItem>* items) {
    for (uint32_t begin = 0; begin < entry_count;) {
      const auto count =
          static_cast<uint32_t>(1 + prng->Below(std::min(entry_count - begin, kItemRowsMax)));
      const uint64_t address = prng->Below(uint64_t{1} << (kItemAddressBits - 6)) * 64;
      items->push_back({.blob = reinterpret_cast<const std::byte*>(address),
                        .entry_begin = begin,
                        .entry_count = count});
      begin += count;
    }
  }
};

class PlayHost {
 public:
  // `check_rows`: looks at every word of the rows, not only at a few.
  PlayHost(ExchangeHost& host, Clock& clock, uint64_t seed, bool check_rows)
      : host_(host), clock_(clock), prng_(seed), check_rows_(check_rows) {}

  // Before BeginWindow: takes experts into the card's table and out of it, so that about `share` of
  // 4 are in it, some of them in host memory; `count` of them are looked at. And another rule of
  // what is streamed.
  void ChangeTable(uint32_t count, uint32_t share) {
    for (uint32_t m = 0; m <= StreamRule::kMissesMax; ++m) {
      rule_.count[m] = static_cast<uint8_t>(prng_.Below(m + 2));
    }
    rule_.experts_max = static_cast<uint32_t>(prng_.Below(2) != 0 ? 1u << 20 : prng_.Below(200));
    host_.SetStreamRule(rule_);
    streams_left_ = rule_.experts_max;
    const ExchangeShape& shape = host_.layout().shape;
    table_.resize(host_.layout().table_count());
    for (uint32_t i = 0; i < count; ++i) {
      const auto index = static_cast<uint32_t>(prng_.Below(table_.size()));
      const bool in = prng_.Below(4) < share;
      table_[index] = in ? (1 + prng_.Below(1u << 30)) * 64 : 0;
      if (in && prng_.Below(3) == 0) table_[index] |= kFromAfar;
      host_.SetEntry(LayerId(index / shape.expert_count), ExpertId(index % shape.expert_count),
                     table_[index]);
    }
  }

  // The host's part of a window that the card has been told to begin.
  absl::Status PlayWindow(uint32_t rows) {
    uint64_t digest = PlayMix(host_.sequence());
    for (uint32_t layer = 0; layer < host_.layout().shape.layer_count; ++layer) {
      HEARTH_RETURN_IF_ERROR(PlayOne(LayerId(layer), rows, &digest));
      // A guess that came in time is the one that the card made.
      const std::span<const uint32_t> ahead = host_.Ahead(LayerId(layer), rows);
      for (uint32_t i = 0; i < ahead.size() && layer != 0; ++i) {
        if (ahead[i] == experts_[i]) continue;
        return absl::DataLossError(absl::StrCat("window ", host_.sequence(), " layer ", layer,
                                                " entry ", i, ": ahead ", ahead[i]));
      }
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kWaitNs = 3'000'000'000;

  absl::Status PlayOne(LayerId layer, uint32_t rows, uint64_t* digest) {
    const ExchangeShape& shape = host_.layout().shape;
    HEARTH_ASSIGN_OR_RETURN(const std::span<const uint32_t> experts,
                            host_.AwaitRoutes(layer, rows, clock_.NowNs() + kWaitNs));
    for (uint32_t i = 0; i < experts.size(); ++i) {
      if (experts[i] == PlayExpert(*digest, i)) continue;
      return absl::DataLossError(absl::StrCat("window ", host_.sequence(), " layer ", layer.value,
                                              " entry ", i, ": expert ", experts[i]));
    }
    experts_.assign(experts.begin(), experts.end());
    ExchangeFollows follows;
    if (shape.expert_count == 0) {
      draw_.Draw(&prng_, rows, shape.ranks);
      follows = {.late = !draw_.late_items.empty(), .outputs = !draw_.cpu_entries.empty()};
      HEARTH_RETURN_IF_ERROR(host_.PostHits(layer, {draw_.hit_items, draw_.hit_entries}, follows));
    } else {
      const auto of_layer = table_.begin() + ptrdiff_t{layer.value} * shape.expert_count;
      draw_.DrawFromTable(&prng_, experts, shape.ranks, {of_layer, of_layer + shape.expert_count},
                          rule_, &streams_left_);
      const bool misses = draw_.hit_entries.size() != experts.size();
      if (misses == host_.all_claimed()) {
        return absl::DataLossError(
            absl::StrCat("window ", host_.sequence(), " layer ", layer.value, ": claims"));
      }
      follows = {.late = misses, .outputs = misses};
    }
    // A card that found everything by itself does not wait, and may have come to the layers that
    // use the same memory for their rows.
    if (shape.expert_count == 0 || follows.outputs) {
      HEARTH_ASSIGN_OR_RETURN(const PublishedRows published,
                              host_.AwaitRows(layer, rows, clock_.NowNs() + kWaitNs));
      HEARTH_RETURN_IF_ERROR(CheckRows(published, layer, rows, *digest));
    }
    const bool outputs_first = prng_.Below(2) != 0;
    if (follows.outputs && outputs_first) PostOutputs(layer);
    if (follows.late) {
      HEARTH_RETURN_IF_ERROR(host_.PostLate(layer, {draw_.late_items, draw_.late_entries}));
    }
    if (follows.outputs && !outputs_first) PostOutputs(layer);
    *digest = PlayMix(*digest + Terms(layer));
    return absl::OkStatus();
  }

  void PostOutputs(LayerId layer) {
    const uint32_t hidden = host_.layout().shape.hidden;
    const std::span<float> output = host_.output(layer);
    for (const uint32_t e : draw_.cpu_entries) {
      output[size_t{e} * hidden] = static_cast<float>(prng_.Uniform());
      output[size_t{e} * hidden + hidden - 1] = static_cast<float>(prng_.Uniform());
    }
    host_.PostOutputs(layer);
  }

  uint64_t Terms(LayerId layer) const {
    uint64_t sum =
        ListTerms(draw_.hit_items, draw_.hit_entries, PlayPart::kHitItem, PlayPart::kHitEntry) +
        ListTerms(draw_.late_items, draw_.late_entries, PlayPart::kLateItem, PlayPart::kLateEntry);
    for (const auto* entries : {&draw_.hit_entries, &draw_.late_entries}) {
      for (const ExpertFfnEntry& entry : *entries) {
        sum += PlayTerm(PlayPart::kOnCard, entry.y_row, 1, 0);
      }
    }
    const uint32_t hidden = host_.layout().shape.hidden;
    const std::span<const float> output = host_.output(layer);
    for (const uint32_t e : draw_.cpu_entries) {
      sum += PlayTerm(PlayPart::kOutput, e, std::bit_cast<uint32_t>(output[size_t{e} * hidden]),
                      std::bit_cast<uint32_t>(output[size_t{e} * hidden + hidden - 1]));
    }
    return sum;
  }

  static uint64_t ListTerms(std::span<const ExpertFfnItem> items,
                            std::span<const ExpertFfnEntry> entries, PlayPart item_part,
                            PlayPart entry_part) {
    uint64_t sum = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      sum += PlayItemTerm(item_part, i, reinterpret_cast<uint64_t>(items[i].blob),
                          items[i].entry_begin, items[i].entry_count);
    }
    for (size_t i = 0; i < entries.size(); ++i) {
      sum += PlayTerm(entry_part, i, entries[i].x_row, entries[i].y_row);
    }
    return sum;
  }

  absl::Status CheckRows(const PublishedRows& rows, LayerId layer, uint32_t row_count,
                         uint64_t digest) const {
    const ExchangeShape& shape = host_.layout().shape;
    const uint32_t blocks = shape.hidden / 32;
    const struct {
      PlayPart part;
      const void* words;
      uint32_t count;
    } arrays[] = {{PlayPart::kWeight, rows.weight, shape.ranks},
                  {PlayPart::kQ, rows.quantized.q, shape.hidden / 4},
                  {PlayPart::kScale, rows.quantized.scale, blocks},
                  {PlayPart::kSum16, rows.quantized.sum16, blocks * 2},
                  {PlayPart::kRotatedQ, rows.rotated.q, shape.hidden / 4},
                  {PlayPart::kRotatedScale, rows.rotated.scale, 1},
                  {PlayPart::kRotatedSum, rows.rotated.sum, 1},
                  {PlayPart::kX, rows.x, shape.hidden}};
    for (const auto& array : arrays) {
      if (array.words == nullptr) continue;
      const uint32_t count = array.count * row_count;
      for (uint32_t i = 0; i < count; i += check_rows_ ? 1 : count / 7 + 1) {
        uint32_t word = 0;
        std::memcpy(&word, static_cast<const std::byte*>(array.words) + size_t{i} * 4, 4);
        if (word == PlayWord(digest, array.part, i)) continue;
        return absl::DataLossError(absl::StrCat("window ", host_.sequence(), " layer ", layer.value,
                                                " rows, part ", static_cast<uint32_t>(array.part),
                                                " word ", i));
      }
    }
    return absl::OkStatus();
  }

  ExchangeHost& host_;
  Clock& clock_;
  Prng prng_;
  bool check_rows_;
  PlayDraw draw_;
  std::vector<uint32_t> experts_;  // of the last layer
  std::vector<uint64_t> table_;    // what the card's is to be in this window
  StreamRule rule_;
  uint32_t streams_left_ = 0;
};

}  // namespace hearth
