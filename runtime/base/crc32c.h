// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78), as every checksum inside a pack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace hearth {

// Extends `crc` (0 to start) over `data`. Uses the SSE4.2 instruction where the processor has it.
uint32_t Crc32c(std::span<const std::byte> data, uint32_t crc = 0);

}  // namespace hearth
