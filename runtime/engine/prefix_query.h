// A prompt as the prefix cache sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/ids.h"

namespace hearth {

inline constexpr size_t kPrefixSaltBytesMax = 256;

// A prompt and how it is read.
struct PrefixQuery {
  std::span<const TokenId> tokens;
  std::span<const uint32_t> cuts;  // where its passes end, ascending; the last is its end
  std::string_view salt;           // a name space: others' images are never found
  bool drafts = false;             // the MTP layer reads it, too
};

}  // namespace hearth
