// The one owner of an operating-system handle: move-only, closes once.
#pragma once

#include <utility>

namespace hearth {

template <class Traits>
class UniqueHandle {
 public:
  explicit UniqueHandle(typename Traits::Type h = Traits::kInvalid) : h_(h) {}
  UniqueHandle(UniqueHandle&& o) noexcept : h_(std::exchange(o.h_, Traits::kInvalid)) {}
  UniqueHandle& operator=(UniqueHandle&& o) noexcept {
    std::swap(h_, o.h_);
    return *this;
  }
  ~UniqueHandle() {
    if (h_ != Traits::kInvalid) Traits::Close(h_);
  }
  typename Traits::Type get() const { return h_; }
  bool valid() const { return h_ != Traits::kInvalid; }

 private:
  typename Traits::Type h_;
};

struct FdTraits {
  using Type = int;
  static constexpr Type kInvalid = -1;
  static void Close(Type fd);
};
using UniqueFd = UniqueHandle<FdTraits>;

}  // namespace hearth
