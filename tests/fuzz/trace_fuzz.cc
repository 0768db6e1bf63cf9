// Any bytes as a trace, and any bytes with a checksum that is right: refused with a Status, or the
// trace's own bytes read back as the same trace.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "cache/policy/route_trace.h"
#include "cache/policy/trace_windows.h"
#include "runtime/base/check.h"
#include "runtime/base/crc32c.h"

namespace {

void TryBytes(std::span<const std::byte> bytes) {
  const auto trace = hearth::RouteTrace::Parse(bytes, "fuzz.trace");
  if (!trace.ok()) return;
  const std::vector<std::byte> written = trace->Serialise();
  HEARTH_CHECK(std::ranges::equal(bytes, written));
  uint64_t tokens = 0;
  for (const uint32_t count : hearth::CutWindows(*trace, 4).token_counts) tokens += count;
  HEARTH_CHECK(tokens == trace->token_count());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  TryBytes(input);
  std::vector<std::byte> sealed(input.begin(), input.end());
  if (sealed.size() < sizeof(uint32_t)) return 0;
  const auto body = std::span(sealed).first(sealed.size() - sizeof(uint32_t));
  const uint32_t crc = hearth::Crc32c(body);
  std::memcpy(sealed.data() + body.size(), &crc, sizeof(crc));
  TryBytes(sealed);
  return 0;
}
