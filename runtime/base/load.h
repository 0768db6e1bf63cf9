// Values out of raw bytes at any alignment, little-endian as everything of ours.
#pragma once

#include <bit>
#include <cstddef>
#include <cstring>
#include <type_traits>

namespace hearth {

static_assert(std::endian::native == std::endian::little);

template <class T>
T Load(const std::byte* p) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, p, sizeof(value));
  return value;
}

}  // namespace hearth
