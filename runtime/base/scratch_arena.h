// Buffers carved once from one mapping, so that what uses them allocates nothing later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/base/file.h"
#include "runtime/base/units.h"

namespace hearth {

// First reserves spans (sizes only), then Allocate() maps the sum and points every span into it.
class ScratchArena {
 public:
  template <class T>
  void Reserve(std::span<T>& span, size_t count) {
    wanted_.push_back(
        {.bytes = count * sizeof(T),
         .place =
             [](void* target, std::byte* p, size_t n) {
               *static_cast<std::span<T>*>(target) = {reinterpret_cast<T*>(p), n / sizeof(T)};
             },
         .target = &span});
  }

  // What Allocate() would map.
  uint64_t reserved_bytes() const {
    uint64_t total = 0;
    for (const Wanted& w : wanted_) total += AlignUp(w.bytes, kAlignBytes);
    return total;
  }

  absl::Status Allocate() {
    absl::StatusOr<AnonymousMapping> mapping = AnonymousMapping::Create(reserved_bytes());
    if (!mapping.ok()) return mapping.status();
    mapping_ = *std::move(mapping);
    std::byte* p = mapping_.data().data();
    for (const Wanted& w : wanted_) {
      w.place(w.target, p, w.bytes);
      p += AlignUp(w.bytes, kAlignBytes);
    }
    wanted_.clear();
    return absl::OkStatus();
  }

  uint64_t bytes() const { return mapping_.data().size(); }

 private:
  static constexpr uint64_t kAlignBytes = 64;
  struct Wanted {
    size_t bytes;
    void (*place)(void* target, std::byte* p, size_t bytes);
    void* target;
  };
  std::vector<Wanted> wanted_;
  AnonymousMapping mapping_{*AnonymousMapping::Create(0)};
};

}  // namespace hearth
