#include "runtime/serve/telemetry/telemetry_snapshot.h"

#include <span>

namespace hearth {
namespace {

LedgerCounts SumOf(std::span<const LedgerCounts> layers) {
  LedgerCounts sum;
  for (const LedgerCounts& layer : layers) sum += layer;
  return sum;
}

}  // namespace

const char* ChannelName(Channel channel) {
  switch (channel) {
    case Channel::kCard:
      return "card";
    case Channel::kLink:
      return "link";
    case Channel::kDram:
      return "dram";
    case Channel::kDrive:
      return "drive";
  }
  return "card";
}

LedgerCounts EngineCounts::total() const { return SumOf(layers); }
LedgerCounts RecentCounts::total() const { return SumOf(layers); }

uint64_t ChannelBytes(const EngineCounts& counts, Channel channel, bool has_card) {
  const LedgerCounts total = counts.total();
  const uint64_t vram = total.of(Service::kVram).bytes;
  const uint64_t pcie = total.of(Service::kPcie).bytes;
  const uint64_t host = total.of(Service::kCpu).bytes + total.of(Service::kSsd).bytes;
  switch (channel) {
    case Channel::kCard:
      return has_card ? vram + pcie + counts.dense_bytes : 0;
    case Channel::kLink:
      return has_card ? pcie + counts.slots.swap_bytes : 0;
    case Channel::kDram:
      return has_card ? host + pcie : host + pcie + vram + counts.dense_bytes;
    case Channel::kDrive:
      return counts.store.read_bytes;
  }
  return 0;
}

}  // namespace hearth
