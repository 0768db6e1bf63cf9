// A model of a sequence for tests of the prefix cache: its state is a hash of everything that was
// read and how it was cut, its keys and values are a hash for each position.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "runtime/backend/backend.h"
#include "runtime/backend/sequence_image.h"
#include "runtime/base/prng.h"

namespace hearth {

class FakeSequence final : public Sequence {
 public:
  uint32_t token_count() const override { return static_cast<uint32_t>(tokens.size()); }
  uint32_t draft_count() const override { return static_cast<uint32_t>(draft_values.size()); }
  uint32_t context_tokens_max() const override { return context; }

  // One pass; every value depends on the width of it.
  void Read(std::span<const TokenId> row_tokens) {
    const uint64_t before = SplitMix64(state ^ row_tokens.size());
    for (const TokenId token : row_tokens) {
      values.push_back(SplitMix64(before + static_cast<uint64_t>(token) + (values.size() << 20)));
      state = SplitMix64(state + values.back());
      tokens.push_back(token);
    }
    state ^= before;
  }
  // The MTP layer up to `count` rows; row p pairs with the token at p + 1.
  void Draft(std::span<const TokenId> prompt, uint32_t count) {
    for (uint32_t p = draft_count(); p < count; ++p) {
      draft_values.push_back(SplitMix64(values[p] + static_cast<uint64_t>(prompt[p + 1])));
    }
  }
  bool operator==(const FakeSequence& other) const {
    return tokens == other.tokens && values == other.values && state == other.state;
  }

  uint32_t context = 1 << 20;
  std::vector<TokenId> tokens;
  std::vector<uint64_t> values;
  std::vector<uint64_t> draft_values;
  uint64_t state = 1;
};

class FakeImager final : public SequenceImager {
 public:
  explicit FakeImager(uint64_t fixed_bytes = 64) : fixed_bytes_(fixed_bytes) {}

  uint64_t fixed_bytes() const override { return fixed_bytes_; }
  uint64_t span_bytes(const SpanRange& range) const override {
    return 8 * uint64_t{range.end - range.begin + range.draft_end - range.draft_begin};
  }
  uint32_t ImageDraftCount(const Sequence& sequence) const override {
    return ImageDraftCountOf(SourceOf(sequence));
  }
  absl::Status SaveImage(const Sequence& sequence, const SpanRange& range,
                         std::span<std::byte> fixed, std::span<std::byte> span) override {
    if (!save_status.ok()) return save_status;
    const auto& s = static_cast<const FakeSequence&>(sequence);
    if (auto status = CheckSave(*this, SourceOf(s), range, fixed.size(), span.size()); !status.ok())
      return status;
    if (!fixed.empty()) std::memcpy(fixed.data(), &s.state, sizeof(s.state));
    if (span.empty()) return absl::OkStatus();
    const size_t count = range.end - range.begin;
    const size_t drafts = range.draft_end - range.draft_begin;
    if (count != 0) std::memcpy(span.data(), s.values.data() + range.begin, 8 * count);
    if (drafts != 0) {
      std::memcpy(span.data() + 8 * count, s.draft_values.data() + range.draft_begin, 8 * drafts);
    }
    return absl::OkStatus();
  }
  absl::Status RestoreImage(const ImageView& image, Sequence& sequence) override {
    auto& s = static_cast<FakeSequence&>(sequence);
    if (auto status = CheckRestore(*this, SourceOf(s), image); !status.ok()) return status;
    s.tokens.assign(image.tokens.begin(), image.tokens.end());
    s.values.resize(image.tokens.size());
    std::vector<uint64_t> drafts(image.tokens.size());
    for (const SpanView& span : image.spans) {
      const SpanRange& r = span.range;
      std::memcpy(s.values.data() + r.begin, span.bytes.data(), 8 * (r.end - r.begin));
      std::memcpy(drafts.data() + r.draft_begin, span.bytes.data() + 8 * (r.end - r.begin),
                  8 * (r.draft_end - r.draft_begin));
    }
    s.draft_values.assign(drafts.begin(), drafts.begin() + image.draft_count);
    std::memcpy(&s.state, image.fixed.data(), sizeof(s.state));
    ++restores;
    return absl::OkStatus();
  }

  absl::Status save_status;
  int restores = 0;

 private:
  static ImageSource SourceOf(const Sequence& s) {
    return {.token_count = s.token_count(),
            .draft_count = s.draft_count(),
            .context_tokens_max = s.context_tokens_max()};
  }
  uint64_t fixed_bytes_;
};

}  // namespace hearth
