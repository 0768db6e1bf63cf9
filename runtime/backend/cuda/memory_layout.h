// Arrays carved out of one allocation whose address is not known yet: first everything is reserved,
// then the sum is allocated, then every pointer is set. Device memory as well as pinned memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/units.h"

namespace hearth {

// Targets of Reserve() stay where they are until Place().
class MemoryLayout {
 public:
  static constexpr uint64_t kAlignBytes = 256;  // of every array

  template <class T>
  void Reserve(T*& pointer, uint64_t count) {
    if (count == 0) return;
    items_.push_back(
        {.target = &pointer, .offset_bytes = bytes_, .place = [](void* target, std::byte* address) {
           *static_cast<T**>(target) = reinterpret_cast<T*>(address);
         }});
    bytes_ += AlignUp(count * sizeof(T), kAlignBytes);
  }

  uint64_t bytes() const { return bytes_; }

  // `base`: bytes() bytes, aligned to kAlignBytes.
  void Place(std::byte* base) {
    for (const Item& item : items_) item.place(item.target, base + item.offset_bytes);
    items_.clear();
  }

 private:
  struct Item {
    void* target;
    uint64_t offset_bytes;
    void (*place)(void* target, std::byte* address);
  };
  std::vector<Item> items_;
  uint64_t bytes_ = 0;
};

}  // namespace hearth
