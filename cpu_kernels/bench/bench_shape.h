// The sizes of a model's layers that the kernel benchmark runs at.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"

namespace hearth {

struct BenchShape {
  uint32_t hidden = 0;
  uint32_t width = 0;         // of an expert
  uint32_t stream_count = 0;  // of the hyper-connections
  uint32_t expert_count = 0;
  uint32_t rank_count = 0;  // experts of one token
  uint32_t head_count = 0;  // of attention
  uint32_t head_dim = 0;
  uint32_t rotary_dim = 0;
  uint32_t position_count = 0;  // that one query attends to
  uint32_t indexer_head_count = 0;
  uint32_t indexer_dim = 0;
  uint32_t block_count = 0;         // of positions, that the indexer scores
  uint32_t chosen_block_count = 0;  // of them
  uint32_t conv_channel_count = 0;
  uint32_t conv_taps = 0;
  uint32_t gdn_key_head_count = 0;
  uint32_t gdn_dim = 0;  // keys and values of one head

  // "flash-next", "flashlet", or "HxW": Flash-Next with H hidden values and experts of width W,
  // both multiples of 32 (the longest block of a weight format) up to 65536.
  static absl::StatusOr<BenchShape> Parse(std::string_view text);
};

BenchShape FlashNextShape();
BenchShape FlashletShape();

}  // namespace hearth
