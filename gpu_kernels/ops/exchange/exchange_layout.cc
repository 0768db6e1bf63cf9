#include "gpu_kernels/ops/exchange/exchange_layout.h"

#include "absl/strings/str_cat.h"

#include "cpu_kernels/ops/activation.h"
#include "gpu_kernels/ops/card_claims.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint64_t kSectionBytes = 128;  // a line of the card's caches, two of the host's

// Hands out sections one after the other.
class Sections {
 public:
  uint64_t Take(uint64_t bytes) {
    const uint64_t at = end_bytes_;
    end_bytes_ = (end_bytes_ + bytes + kSectionBytes - 1) / kSectionBytes * kSectionBytes;
    return at;
  }
  uint64_t bytes() const { return end_bytes_; }

 private:
  uint64_t end_bytes_ = 0;
};

absl::Status CheckShape(const ExchangeShape& s) {
  if (s.layer_count < 1 || s.layer_count > kExchangeLayersMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange of ", s.layer_count, " layers: 1 to ", kExchangeLayersMax));
  }
  if (s.rows_max < 1 || s.rows_max > kExchangeRowsMax || s.ranks < 1 ||
      s.ranks > kExchangeEntriesMax / s.rows_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange of ", s.rows_max, " rows with ", s.ranks, " ranks: 1 to ",
                     kExchangeRowsMax, " rows, at most ", kExchangeEntriesMax, " entries"));
  }
  if (s.expert_count > kExchangeExpertsMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "exchange of ", s.expert_count, " experts in a layer: at most ", kExchangeExpertsMax));
  }
  if (s.hidden < 32 || s.hidden % 32 != 0 || s.hidden > (1u << 16)) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange of rows of ", s.hidden, " values: a multiple of 32, at most 65536"));
  }
  return absl::OkStatus();
}

void LayOutLayer(ExchangeLayout& l) {
  const uint64_t entries = l.entries_max();
  l.list_words = static_cast<uint32_t>(1 + 3 * entries);
  Sections sections;
  l.routes_offset_bytes = sections.Take(entries * 8);
  l.weights_offset_bytes = sections.Take(entries * 8);
  l.ahead_offset_bytes = sections.Take(entries * 8);
  l.arrived_offset_bytes = sections.Take(kPublishBlocks * 8);
  l.hits_offset_bytes = sections.Take(uint64_t{l.list_words} * 8);
  l.late_offset_bytes = sections.Take(uint64_t{l.list_words} * 8);
  l.outputs_offset_bytes = sections.Take(8);
  l.layer_stride_bytes = sections.bytes();
}

void LayOutSet(ExchangeLayout& l) {
  const ExchangeShape& s = l.shape;
  const uint64_t rows = s.rows_max;
  const uint64_t blocks = ActivationBlocks(s.hidden);
  Sections sections;
  l.q_offset_bytes = sections.Take(s.forms.quantized ? rows * blocks * 32 : 0);
  l.scale_offset_bytes = sections.Take(s.forms.quantized ? rows * blocks * 4 : 0);
  l.sum16_offset_bytes = sections.Take(s.forms.quantized ? rows * blocks * 8 : 0);
  l.rotated_q_offset_bytes = sections.Take(s.forms.rotated ? rows * s.hidden : 0);
  l.rotated_scale_offset_bytes = sections.Take(s.forms.rotated ? rows * 4 : 0);
  l.rotated_sum_offset_bytes = sections.Take(s.forms.rotated ? rows * 4 : 0);
  l.x_offset_bytes = sections.Take(s.forms.fp32 ? rows * s.hidden * 4 : 0);
  l.output_offset_bytes = sections.Take(rows * s.ranks * s.hidden * 4);
  l.set_stride_bytes = sections.bytes();
}

}  // namespace

absl::StatusOr<ExchangeLayout> LayOutExchange(const ExchangeShape& shape) {
  HEARTH_RETURN_IF_ERROR(CheckShape(shape));
  ExchangeLayout layout;
  layout.shape = shape;
  LayOutLayer(layout);
  LayOutSet(layout);
  Sections sections;
  layout.window_offset_bytes = sections.Take(8);
  layout.error_offset_bytes = sections.Take(8);
  layout.end_offset_bytes = sections.Take(8);
  layout.layers_offset_bytes = sections.Take(shape.layer_count * layout.layer_stride_bytes);
  layout.sets_offset_bytes = sections.Take(2 * layout.set_stride_bytes);
  const uint64_t table_count = layout.table_count();
  layout.rule_offset_bytes = sections.Take(table_count == 0 ? 0 : sizeof(StreamRule));
  layout.changes_offset_bytes =
      sections.Take(table_count == 0 ? 0 : kTableChangesMax * sizeof(TableChange));
  layout.table_offset_bytes = sections.Take(table_count * sizeof(uint64_t));
  layout.stamps_offset_bytes = sections.Take(kStampWindows * layout.stamp_window_bytes());
  layout.bytes = sections.bytes();
  return layout;
}

}  // namespace hearth
