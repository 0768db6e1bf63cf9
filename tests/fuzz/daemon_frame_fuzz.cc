// Any bytes as a packet of the daemon's protocol: refused with a Status, or written again they are
// the same bytes. Then the same bytes as the payload of each message.
#include <cstdint>
#include <span>
#include <vector>

#include "cache/protocol/messages.h"
#include "runtime/base/check.h"
#include "tests/cache/protocol/sample_messages.h"

namespace {

void TryPacket(std::span<const std::byte> packet) {
  const absl::StatusOr<hearth::Frame> frame = hearth::DecodeFrame(packet);
  if (!frame.ok() || frame->version != hearth::kProtocolVersion) return;
  const absl::StatusOr<std::vector<std::byte>> again = hearth::DecodeAndEncode(*frame);
  if (!again.ok()) return;
  HEARTH_CHECK(again->size() == packet.size());
  for (size_t i = 0; i < packet.size(); ++i) HEARTH_CHECK((*again)[i] == packet[i]);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> input = std::as_bytes(std::span(data, size));
  TryPacket(input);
  for (uint16_t type = 1; type <= 20; ++type) {
    std::vector<std::byte> packet =
        hearth::EncodeEmpty(static_cast<hearth::MessageType>(type), size);
    packet.insert(packet.end(), input.begin(), input.end());
    const auto length = static_cast<uint32_t>(packet.size());
    for (int i = 0; i < 4; ++i) packet[8 + i] = static_cast<std::byte>(length >> (8 * i));
    TryPacket(packet);
  }
  return 0;
}
