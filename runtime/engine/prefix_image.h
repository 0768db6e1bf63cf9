// Images of sequences as the prefix cache holds them: immutable, counted to the byte, and with
// every span of keys and values held once, by whoever needs it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "runtime/backend/sequence_image.h"
#include "runtime/base/file.h"
#include "runtime/base/ids.h"

namespace hearth {

// Bytes that are held. Any number of threads.
class MemoryMeter {
 public:
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  void Add(uint64_t bytes) { bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void Subtract(uint64_t bytes) { bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> bytes_{0};
};

// Bytes that a meter knows of while this lives.
class MeterShare {
 public:
  MeterShare(std::shared_ptr<MemoryMeter> meter, uint64_t bytes)
      : meter_(std::move(meter)), bytes_(bytes) {
    meter_->Add(bytes_);
  }
  MeterShare(MeterShare&& other) noexcept = default;
  MeterShare& operator=(MeterShare&& other) = delete;
  ~MeterShare() {
    if (meter_ != nullptr) meter_->Subtract(bytes_);
  }

 private:
  std::shared_ptr<MemoryMeter> meter_;  // null: moved from
  uint64_t bytes_;
};

// Page-aligned memory that is metered.
class MeteredMemory {
 public:
  // ResourceExhausted when the system has none. 0 bytes are fine.
  static absl::StatusOr<MeteredMemory> Create(const std::shared_ptr<MemoryMeter>& meter,
                                              uint64_t bytes);
  // What Create() adds to the meter: whole pages.
  static uint64_t MeteredBytes(uint64_t bytes);
  std::span<std::byte> data() const { return data_; }

 private:
  MeteredMemory(MeterShare share, AnonymousMapping mapping, uint64_t bytes)
      : share_(std::move(share)),
        mapping_(std::move(mapping)),
        data_(mapping_.data().first(bytes)) {}
  MeterShare share_;
  AnonymousMapping mapping_;
  std::span<std::byte> data_;
};

// Spans of one chain at most: what a conversation may hold, and how deep a release goes.
inline constexpr uint32_t kPrefixSpansMax = 4096;

// The part of an image that grows with its tokens, from the cut before it to its own. The rows of
// the MTP layer begin where those before it end; a conversation that was read without them has
// none.
struct PrefixSpan {
  std::shared_ptr<const PrefixSpan> before;  // null: starts at position 0
  uint32_t index = 0;                        // spans before it
  SpanRange range;
  std::vector<TokenId> tokens;  // those of [range.begin, range.end)
  std::vector<uint32_t>
      cuts;          // where passes ended in (range.begin, range.end]; the last is its end
  MeterShare lists;  // of tokens and cuts
  MeteredMemory memory;

  // What a span of so much takes.
  static uint64_t MeteredBytes(size_t token_count, size_t cut_count, uint64_t memory_bytes);
};

struct PrefixImage {
  std::shared_ptr<const PrefixSpan> span;  // ends where the image does
  uint32_t draft_count = 0;                // 0 or token_count() - 1
  MeteredMemory fixed;
  uint32_t token_count() const { return span->range.end; }
};

// An uninitialised span after `before` (null: from the start), over what `tokens` and `cuts` say.
struct SpanAsk {
  std::shared_ptr<const PrefixSpan> before;
  std::span<const TokenId> tokens;
  std::span<const uint32_t> cuts;
  uint32_t draft_end = 0;
  uint64_t memory_bytes = 0;
};
absl::StatusOr<std::shared_ptr<PrefixSpan>> MakeSpan(SpanAsk ask,
                                                     const std::shared_ptr<MemoryMeter>& meter);

// Whether a prompt that is cut at `cuts` is cut as the span and those before it were. Its tokens
// are known to be theirs.
bool HasCutsOf(const PrefixSpan& span, std::span<const uint32_t> cuts);

// The chain that ends with `span`, first one first.
std::vector<const PrefixSpan*> ChainOf(const PrefixSpan& span);

}  // namespace hearth
