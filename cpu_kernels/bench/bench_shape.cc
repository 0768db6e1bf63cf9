#include "cpu_kernels/bench/bench_shape.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kDimMultiple = 32;
constexpr uint32_t kDimMax = 65536;

bool ParseDim(std::string_view text, uint32_t* dim) {
  return absl::SimpleAtoi(ToAbsl(text), dim) && *dim > 0 && *dim <= kDimMax &&
         *dim % kDimMultiple == 0;
}

}  // namespace

BenchShape FlashNextShape() {
  return {.hidden = 2560,
          .width = 640,
          .stream_count = 4,
          .expert_count = 512,
          .rank_count = 10,
          .head_count = 24,
          .head_dim = 256,
          .rotary_dim = 64,
          .position_count = 2051,  // 512 blocks of 4 and the open block
          .indexer_head_count = 4,
          .indexer_dim = 128,
          .block_count = 16384,  // a context of 65,536 tokens
          .chosen_block_count = 512,
          .conv_channel_count = 10240,
          .conv_taps = 4,
          .gdn_key_head_count = 16,
          .gdn_dim = 128};
}

BenchShape FlashletShape() {
  return {.hidden = 256,
          .width = 64,
          .stream_count = 4,
          .expert_count = 64,
          .rank_count = 6,
          .head_count = 8,
          .head_dim = 64,
          .rotary_dim = 16,
          .position_count = 131,
          .indexer_head_count = 4,
          .indexer_dim = 32,
          .block_count = 2048,
          .chosen_block_count = 32,
          .conv_channel_count = 512,
          .conv_taps = 4,
          .gdn_key_head_count = 4,
          .gdn_dim = 32};
}

absl::StatusOr<BenchShape> BenchShape::Parse(std::string_view text) {
  if (text == "flash-next") return FlashNextShape();
  if (text == "flashlet") return FlashletShape();
  BenchShape shape = FlashNextShape();
  const size_t cross = text.find('x');
  if (cross == std::string_view::npos || !ParseDim(text.substr(0, cross), &shape.hidden) ||
      !ParseDim(text.substr(cross + 1), &shape.width)) {
    return absl::InvalidArgumentError(
        absl::StrCat("shape: expected flash-next, flashlet or HxW with multiples of ", kDimMultiple,
                     " up to ", kDimMax, ", such as 2560x640, found '", ToAbsl(text), "'"));
  }
  return shape;
}

}  // namespace hearth
