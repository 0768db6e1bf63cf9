// Memory of the exchange; the kernels are in await.cu and publish.cu.
#include "gpu_kernels/ops/exchange/window_exchange.h"

#include <utility>

#include "gpu_kernels/ops/exchange/card_state.h"
#include "runtime/base/status.h"

namespace hearth {

absl::StatusOr<std::unique_ptr<WindowExchange>> WindowExchange::Create(GpuId gpu,
                                                                       const ExchangeShape& shape,
                                                                       uint64_t wait_ns_max,
                                                                       Clock& clock) {
  HEARTH_ASSIGN_OR_RETURN(const ExchangeLayout layout, LayOutExchange(shape));
  HEARTH_ASSIGN_OR_RETURN(PinnedBuffer mapped, PinnedBuffer::Create(gpu, layout.bytes));
  const CardLayout card = LayOutCard(layout.entries_max(), layout.table_count());
  HEARTH_ASSIGN_OR_RETURN(DeviceBuffer memory, DeviceBuffer::Create(gpu, card.bytes));
  HEARTH_ASSIGN_OR_RETURN(const UniqueStream stream, UniqueStream::Create(gpu));
  HEARTH_RETURN_IF_ERROR(FillBytes(memory, std::byte{0}, stream.view()));
  HEARTH_RETURN_IF_ERROR(stream.Synchronize());
  return std::unique_ptr<WindowExchange>(
      new WindowExchange(layout, std::move(mapped), std::move(memory), wait_ns_max, clock));
}

WindowExchange::WindowExchange(const ExchangeLayout& layout, PinnedBuffer mapped, DeviceBuffer card,
                               uint64_t wait_ns_max, Clock& clock)
    : mapped_(std::move(mapped)),
      card_(std::move(card)),
      host_(layout, mapped_.data(), clock),
      wait_ns_max_(wait_ns_max) {}

CardState* WindowExchange::state() const { return reinterpret_cast<CardState*>(card_.data()); }

CardList WindowExchange::ListAt(uint64_t items_offset_bytes, uint64_t entries_offset_bytes,
                                ListCounts* counts) const {
  return {.items = reinterpret_cast<ExpertFfnItem*>(card_.data() + items_offset_bytes),
          .entries = reinterpret_cast<ExpertFfnEntry*>(card_.data() + entries_offset_bytes),
          .item_count = &counts->items,
          .entry_count = &counts->entries};
}

CardList WindowExchange::hits() const {
  const CardLayout card = LayOutCard(layout().entries_max(), layout().table_count());
  return ListAt(card.hit_items_offset_bytes, card.hit_entries_offset_bytes, &state()->hits);
}

CardList WindowExchange::late() const {
  const CardLayout card = LayOutCard(layout().entries_max(), layout().table_count());
  return ListAt(card.late_items_offset_bytes, card.late_entries_offset_bytes, &state()->late);
}

uint64_t* WindowExchange::table() const {
  const CardLayout card = LayOutCard(layout().entries_max(), layout().table_count());
  return reinterpret_cast<uint64_t*>(card_.data() + card.table_offset_bytes);
}

uint8_t* WindowExchange::on_card() const {
  return reinterpret_cast<uint8_t*>(
      card_.data() +
      LayOutCard(layout().entries_max(), layout().table_count()).on_card_offset_bytes);
}

const float* WindowExchange::host_output(LayerId layer) const {
  return reinterpret_cast<const float*>(
      mapped_.device_data() + layout().SetOffsetBytes(layer.value) + layout().output_offset_bytes);
}

OutputWait WindowExchange::output_wait(LayerId layer) const {
  const ExchangeLayout& l = layout();
  std::byte* const mapped = mapped_.device_data();
  const auto words_at = [mapped](uint64_t offset_bytes) {
    return reinterpret_cast<uint64_t*>(mapped + offset_bytes);
  };
  return {
      .words = {.state = state(),
                .error = words_at(l.error_offset_bytes),
                .stamps = words_at(l.StampsOffsetBytes(0, layer.value)),
                .stamp_stride = static_cast<uint32_t>(l.stamp_window_bytes() / sizeof(uint64_t)),
                .layer = layer.value,
                .wait_ns_max = wait_ns_max_},
      .outputs = words_at(l.LayerOffsetBytes(layer.value) + l.outputs_offset_bytes)};
}

}  // namespace hearth
