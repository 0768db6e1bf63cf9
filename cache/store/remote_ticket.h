// What a lease of RemoteStore is, packed into the ticket that it carries.
#pragma once

#include <cstdint>

namespace hearth {

struct RemoteTicket {
  bool is_private = false;  // a block read in process; else a hazard word
  uint32_t epoch = 0;       // of the link, below 2^31
  uint32_t index = 0;       // of the block or the word

  uint64_t value() const {
    return uint64_t{is_private ? 1u : 0u} << 63 | uint64_t{epoch} << 32 | index;
  }
  static RemoteTicket FromValue(uint64_t value) {
    return {.is_private = value >> 63 != 0,
            .epoch = static_cast<uint32_t>(value >> 32) & 0x7FFFFFFF,
            .index = static_cast<uint32_t>(value)};
  }
};

}  // namespace hearth
