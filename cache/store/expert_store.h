// The RAM tier: hands out the bytes of experts under leases. One interface whatever fills it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/statusor.h"

#include "pack/format/expert_layout.h"
#include "runtime/base/ids.h"

namespace hearth {

class ExpertStore;

// Keeps one expert's blob in place; letting it go out of scope is the only way to give it back.
class ExpertLease {
 public:
  ExpertLease() = default;
  ExpertLease(ExpertLease&& other) noexcept
      : store_(std::exchange(other.store_, nullptr)),
        ticket_(other.ticket_),
        bytes_(other.bytes_) {}
  ExpertLease& operator=(ExpertLease&& other) noexcept {
    std::swap(store_, other.store_);
    std::swap(ticket_, other.ticket_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ExpertLease();

  std::span<const std::byte> bytes() const { return bytes_; }  // valid while the lease lives

 private:
  friend class ExpertStore;
  ExpertLease(ExpertStore* store, uint64_t ticket, std::span<const std::byte> bytes)
      : store_(store), ticket_(ticket), bytes_(bytes) {}
  ExpertStore* store_ = nullptr;
  uint64_t ticket_ = 0;
  std::span<const std::byte> bytes_;
};

// Thread-safe. Outlives its leases.
class ExpertStore {
 public:
  virtual ~ExpertStore() = default;
  virtual uint32_t layer_count() const = 0;
  virtual uint32_t expert_count() const = 0;  // per layer
  virtual const ExpertLayout& layout(LayerId layer) const = 0;
  // The memory node, counted from 0, that is closest to the blob of `key`.
  virtual uint32_t NodeOf(ExpertKey) const { return 0; }
  // The blob of `key`, layout(key.layer).blob_bytes() long, 64-byte aligned.
  virtual absl::StatusOr<ExpertLease> Acquire(ExpertKey key) = 0;

 protected:
  ExpertLease MakeLease(uint64_t ticket, std::span<const std::byte> bytes) {
    return ExpertLease(this, ticket, bytes);
  }

 private:
  friend class ExpertLease;
  virtual void Release(uint64_t ticket) = 0;
};

inline ExpertLease::~ExpertLease() {
  if (store_ != nullptr) store_->Release(ticket_);
}

}  // namespace hearth
