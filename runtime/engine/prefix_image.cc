#include "runtime/engine/prefix_image.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {

uint64_t MeteredMemory::MeteredBytes(uint64_t bytes) {
  constexpr uint64_t kPageBytes = 4_KiB;
  return AlignUp(bytes, kPageBytes);
}

absl::StatusOr<MeteredMemory> MeteredMemory::Create(const std::shared_ptr<MemoryMeter>& meter,
                                                    uint64_t bytes) {
  absl::StatusOr<AnonymousMapping> mapping = AnonymousMapping::Create(bytes);
  if (!mapping.ok()) return Annotate(mapping.status(), "image of a sequence");
  return MeteredMemory(MeterShare(meter, MeteredBytes(bytes)), *std::move(mapping), bytes);
}

uint64_t PrefixSpan::MeteredBytes(size_t token_count, size_t cut_count, uint64_t memory_bytes) {
  return sizeof(PrefixSpan) + token_count * sizeof(TokenId) + cut_count * sizeof(uint32_t) +
         MeteredMemory::MeteredBytes(memory_bytes);
}

absl::StatusOr<std::shared_ptr<PrefixSpan>> MakeSpan(SpanAsk ask,
                                                     const std::shared_ptr<MemoryMeter>& meter) {
  HEARTH_CHECK(!ask.tokens.empty() && !ask.cuts.empty());
  HEARTH_ASSIGN_OR_RETURN(MeteredMemory memory, MeteredMemory::Create(meter, ask.memory_bytes));
  const uint64_t list_bytes = PrefixSpan::MeteredBytes(ask.tokens.size(), ask.cuts.size(), 0);
  const PrefixSpan* const before = ask.before.get();
  SpanRange range{.draft_end = ask.draft_end};
  if (before != nullptr) {
    range.begin = before->range.end;
    range.draft_begin = before->range.draft_end;
  }
  range.end = range.begin + static_cast<uint32_t>(ask.tokens.size());
  HEARTH_CHECK(ask.cuts.back() == range.end && range.draft_begin <= range.draft_end);
  return std::make_shared<PrefixSpan>(PrefixSpan{.before = std::move(ask.before),
                                                 .index = before == nullptr ? 0 : before->index + 1,
                                                 .range = range,
                                                 .tokens = {ask.tokens.begin(), ask.tokens.end()},
                                                 .cuts = {ask.cuts.begin(), ask.cuts.end()},
                                                 .lists = MeterShare(meter, list_bytes),
                                                 .memory = std::move(memory)});
}

bool HasCutsOf(const PrefixSpan& span, std::span<const uint32_t> cuts) {
  auto end = std::upper_bound(cuts.begin(), cuts.end(), span.range.end);
  for (const PrefixSpan* s = &span; s != nullptr; s = s->before.get()) {
    if (static_cast<size_t>(end - cuts.begin()) < s->cuts.size()) return false;
    const auto begin = end - static_cast<ptrdiff_t>(s->cuts.size());
    if (!std::equal(begin, end, s->cuts.begin())) return false;
    end = begin;
  }
  return end == cuts.begin();
}

std::vector<const PrefixSpan*> ChainOf(const PrefixSpan& span) {
  std::vector<const PrefixSpan*> chain(span.index + 1);
  const PrefixSpan* at = &span;
  for (size_t i = chain.size(); i-- > 0; at = at->before.get()) chain[i] = at;
  return chain;
}

}  // namespace hearth
