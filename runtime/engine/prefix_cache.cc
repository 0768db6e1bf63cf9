#include "runtime/engine/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr int kDiskTriesMax = 8;      // damaged images that a look-up may meet
constexpr uint32_t kSharedFinds = 2;  // prompts that went on from an image make it a shared one
constexpr uint64_t kProvenUse = uint64_t{1} << 62;  // more than uses are ever counted

// The cuts in (begin, end].
std::span<const uint32_t> CutsWithin(std::span<const uint32_t> cuts, uint32_t begin, uint32_t end) {
  const auto first = std::upper_bound(cuts.begin(), cuts.end(), begin);
  const auto last = std::upper_bound(first, cuts.end(), end);
  return {first, last};
}

bool IsCut(std::span<const uint32_t> cuts, uint32_t position) {
  return std::binary_search(cuts.begin(), cuts.end(), position);
}

constexpr uint32_t kPlanTokens = 1 << 16;  // whole blocks of any model

SpanRange PlanRange(bool drafts) {
  return {.end = kPlanTokens, .draft_end = drafts ? kPlanTokens : 0};
}

PrefixImageCost CostOf(uint64_t fixed_bytes, uint64_t plan_span_bytes) {
  return {.fixed_bytes = MeteredMemory::MeteredBytes(fixed_bytes),
          .bytes_per_token = (plan_span_bytes + kPlanTokens - 1) / kPlanTokens};
}

// Of those before the prompt's end.
bool IsLastCut(const PrefixQuery& query, uint32_t cut) {
  const auto next = std::upper_bound(query.cuts.begin(), query.cuts.end(), cut);
  return next == query.cuts.end() || *next == query.tokens.size();
}

}  // namespace

PrefixImageCost PrefixImageCostOf(const SequenceImager& imager, bool drafts) {
  return CostOf(imager.fixed_bytes(), imager.span_bytes(PlanRange(drafts)));
}

PrefixImageCost PlanPrefixImage(const ModelGeometry& geometry, uint64_t position_bytes,
                                bool drafts) {
  return CostOf(ImageFixedBytes(geometry),
                ImageSpanBytes(geometry, position_bytes, PlanRange(drafts)));
}

PrefixCache::PrefixCache(SequenceImager& imager, const PrefixCacheOptions& options,
                         PrefixStore* store)
    : imager_(imager), options_(options), store_(store), meter_(std::make_shared<MemoryMeter>()) {}

PrefixCache::~PrefixCache() = default;

std::optional<FoundPrefix> PrefixCache::Find(const PrefixQuery& query) {
  ++stats_.lookups;
  stats_.tokens_asked += query.tokens.size();
  std::shared_ptr<const PrefixImage> image = FindInMemory(query);
  if (store_ != nullptr) {
    const uint32_t at_hand = image == nullptr ? 0 : image->token_count();
    std::shared_ptr<const PrefixImage> longer = FindOnDisk(query, at_hand);
    if (longer != nullptr) image = std::move(longer);
  }
  if (image == nullptr) return std::nullopt;
  NoteFind(query, image);
  return FoundPrefix{.image = std::move(image)};
}

std::shared_ptr<const PrefixImage> PrefixCache::FindInMemory(const PrefixQuery& query) {
  std::shared_ptr<const PrefixImage> best;
  const auto trie = tries_.find(query.salt);
  if (trie == tries_.end() || query.tokens.empty()) return best;
  trie->second.VisitPrefixes(
      query.tokens.first(query.tokens.size() - 1), [&](uint32_t length, const Entry& entry) {
        if (entry.image == nullptr || !HasCutsOf(*entry.image->span, query.cuts)) return;
        if (query.drafts && entry.image->draft_count + 1 != length) return;
        best = entry.image;
      });
  return best;
}

void PrefixCache::NoteFind(const PrefixQuery& query,
                           const std::shared_ptr<const PrefixImage>& image) {
  ++stats_.hits;
  stats_.tokens_reused += image->token_count();
  const auto trie = tries_.find(query.salt);
  if (trie == tries_.end()) return;
  trie->second.VisitPrefixes(
      query.tokens.first(image->token_count()), [&](uint32_t /*length*/, Entry& entry) {
        if (entry.image != image) return;
        entry.last_use = ++use_count_;
        entry.proven = true;
        if (entry.finds < kSharedFinds && ++entry.finds == kSharedFinds && store_ != nullptr) {
          store_->Put(image, query.salt);
        }
      });
}

// An image of the disk that reaches further than memory's best, or null. What turns out to be
// unusable is gone from the store then, and the one before it is tried.
std::shared_ptr<const PrefixImage> PrefixCache::FindOnDisk(const PrefixQuery& query,
                                                           uint32_t longer_than) {
  for (int tries = 0; tries < kDiskTriesMax; ++tries) {
    const PrefixRecordPtr record = store_->Find(query);
    if (record == nullptr || record->token_count() < longer_than + options_.disk_gain_tokens) {
      return nullptr;
    }
    if (!IsOfThisModel(*record)) {
      store_->Discard(record->header.number, "it is not of this model");
      continue;
    }
    absl::StatusOr<std::shared_ptr<const PrefixImage>> image = ReadRecord(query, *record);
    if (image.ok()) return *std::move(image);
    if (absl::IsResourceExhausted(image.status())) return nullptr;
  }
  return nullptr;
}

bool PrefixCache::IsOfThisModel(const PrefixRecord& record) const {
  const std::vector<const PrefixFileSpan*> spans = SpansOf(record);
  return record.header.fixed.bytes == imager_.fixed_bytes() &&
         std::all_of(spans.begin(), spans.end(), [this](const PrefixFileSpan* span) {
           return span->part.bytes == imager_.span_bytes(span->range);
         });
}

// What memory has of the record's spans is not read again.
absl::StatusOr<std::shared_ptr<const PrefixImage>> PrefixCache::ReadRecord(
    const PrefixQuery& query, const PrefixRecord& record) {
  const std::vector<const PrefixFileSpan*> spans = SpansOf(record);
  const Place place{.before = SpanAtHand(query, spans)};
  const uint32_t at_hand = place.before == nullptr ? 0 : place.before->range.end;
  uint64_t bytes = MeteredMemory::MeteredBytes(record.header.fixed.bytes) + sizeof(PrefixImage) +
                   query.salt.size() + Trie::InsertBytesMax(record.token_count());
  for (const PrefixFileSpan* span : spans) {
    if (span->range.end <= at_hand) continue;
    bytes += PrefixSpan::MeteredBytes(span->tokens.size(), span->cuts.size(), span->part.bytes);
  }
  if (!MakeRoom(bytes, place)) {
    ++stats_.declined;
    return absl::ResourceExhaustedError("prefix cache: no room for an image");
  }
  HEARTH_ASSIGN_OR_RETURN(std::shared_ptr<const PrefixImage> image,
                          store_->Read(record, place.before, meter_));
  ++stats_.disk_hits;
  Insert(query, image, true);
  return image;
}

// The last span in memory that is one of `spans`, those before it included.
std::shared_ptr<const PrefixSpan> PrefixCache::SpanAtHand(
    const PrefixQuery& query, std::span<const PrefixFileSpan* const> spans) {
  std::shared_ptr<const PrefixSpan> last;
  const auto trie = tries_.find(query.salt);
  if (trie == tries_.end()) return last;
  trie->second.VisitPrefixes(
      query.tokens.first(spans.back()->range.end), [&](uint32_t length, const Entry& entry) {
        std::shared_ptr<const PrefixSpan> span = entry.span.lock();
        if (span == nullptr || !HasCutsOf(*span, query.cuts)) return;
        const auto same = [&](const PrefixFileSpan* s) {
          return s->range.end == length && s->range.draft_end == span->range.draft_end;
        };
        if (std::any_of(spans.begin(), spans.end(), same)) last = std::move(span);
      });
  return last;
}

void PrefixCache::Insert(const PrefixQuery& query, std::shared_ptr<const PrefixImage> image,
                         bool proven) {
  Entry& entry = tries_[std::string(query.salt)].At(query.tokens.first(image->token_count()));
  if (entry.image == nullptr) ++stats_.images;
  entry = {.span = image->span,
           .image = std::move(image),
           .last_use = ++use_count_,
           .finds = entry.finds,
           .proven = proven};
}

absl::Status PrefixCache::Restore(const FoundPrefix& found, Sequence& sequence) {
  std::vector<TokenId> tokens;
  std::vector<SpanView> spans;
  tokens.reserve(found.token_count());
  for (const PrefixSpan* span : ChainOf(*found.image->span)) {
    tokens.insert(tokens.end(), span->tokens.begin(), span->tokens.end());
    spans.push_back({.range = span->range, .bytes = span->memory.data()});
  }
  return imager_.RestoreImage({.tokens = tokens,
                               .draft_count = found.image->draft_count,
                               .fixed = found.image->fixed.data(),
                               .spans = spans},
                              sequence);
}

// What of the prompt up to `cut` is there already.
PrefixCache::Place PrefixCache::PlaceOf(const PrefixQuery& query, uint32_t cut,
                                        uint32_t draft_count) {
  Place place;
  const auto trie = tries_.find(query.salt);
  if (trie == tries_.end()) return place;
  trie->second.VisitPrefixes(query.tokens.first(cut), [&](uint32_t length, Entry& entry) {
    std::shared_ptr<const PrefixSpan> span = entry.span.lock();
    if (span == nullptr || !HasCutsOf(*span, query.cuts)) return;
    if (length < cut) {
      if (entry.image != nullptr) place.image_before = length;
      // Where it lacks rows of the MTP layer, the span after it has those, too.
      place.before = std::move(span);
      return;
    }
    if (draft_count != 0 && span->range.draft_end != draft_count) return;
    place.kept =
        entry.image != nullptr && (draft_count == 0 || entry.image->draft_count == draft_count);
    place.span = std::move(span);
    if (place.kept) entry.last_use = ++use_count_;
  });
  return place;
}

bool PrefixCache::WorthKeeping(const PrefixQuery& query, uint32_t cut,
                               uint32_t image_before) const {
  if (cut == query.tokens.size()) return false;
  return IsLastCut(query, cut) || cut - image_before >= options_.spacing_tokens;
}

absl::Status PrefixCache::Keep(const PrefixQuery& query, const Sequence& sequence) {
  const uint32_t cut = sequence.token_count();
  if (cut > query.tokens.size() || !IsCut(query.cuts, cut) ||
      query.salt.size() > kPrefixSaltBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "prefix cache: a sequence of ", cut, " tokens of a prompt of ", query.tokens.size(),
        " with a salt of ", query.salt.size(),
        " bytes: expected one of the prompt's cuts and at most ", kPrefixSaltBytesMax, " bytes"));
  }
  if (options_.ram_budget_bytes == 0) return absl::OkStatus();
  const uint32_t draft_count = imager_.ImageDraftCount(sequence);
  Place place = PlaceOf(query, cut, draft_count);
  if (place.kept || !WorthKeeping(query, cut, place.image_before)) return absl::OkStatus();
  const uint32_t begin = place.before == nullptr ? 0 : place.before->range.end;
  if (place.before != nullptr && place.before->index + 1 == kPrefixSpansMax) {
    ++stats_.declined;
    return absl::OkStatus();
  }
  uint64_t bytes = MeteredMemory::MeteredBytes(imager_.fixed_bytes()) + sizeof(PrefixImage) +
                   query.salt.size() + Trie::InsertBytesMax(cut);
  if (place.span == nullptr) {
    const uint32_t draft_begin = place.before == nullptr ? 0 : place.before->range.draft_end;
    bytes += PrefixSpan::MeteredBytes(
        cut - begin, CutsWithin(query.cuts, begin, cut).size(),
        imager_.span_bytes({begin, cut, draft_begin, std::max(draft_begin, draft_count)}));
  }
  if (!MakeRoom(bytes, place)) {
    ++stats_.declined;
    return absl::OkStatus();
  }
  if (place.span == nullptr) {
    HEARTH_ASSIGN_OR_RETURN(place.span, SaveSpan(query, sequence, place, draft_count));
  }
  HEARTH_ASSIGN_OR_RETURN(MeteredMemory fixed,
                          MeteredMemory::Create(meter_, imager_.fixed_bytes()));
  HEARTH_RETURN_IF_ERROR(imager_.SaveImage(sequence, {}, fixed.data(), {}));
  const std::shared_ptr<const PrefixImage> image = std::make_shared<PrefixImage>(
      PrefixImage{.span = place.span, .draft_count = draft_count, .fixed = std::move(fixed)});
  const bool last = IsLastCut(query, cut);
  Insert(query, image, last);
  ++stats_.kept;
  if (last && store_ != nullptr) store_->Put(image, query.salt);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const PrefixSpan>> PrefixCache::SaveSpan(const PrefixQuery& query,
                                                                        const Sequence& sequence,
                                                                        const Place& place,
                                                                        uint32_t draft_count) {
  const uint32_t cut = sequence.token_count();
  const SpanRange before = place.before == nullptr ? SpanRange{} : place.before->range;
  const SpanRange range{.begin = before.end,
                        .end = cut,
                        .draft_begin = before.draft_end,
                        .draft_end = std::max(before.draft_end, draft_count)};
  HEARTH_ASSIGN_OR_RETURN(const std::shared_ptr<PrefixSpan> span,
                          MakeSpan({.before = place.before,
                                    .tokens = query.tokens.subspan(range.begin, cut - range.begin),
                                    .cuts = CutsWithin(query.cuts, range.begin, cut),
                                    .draft_end = range.draft_end,
                                    .memory_bytes = imager_.span_bytes(range)},
                                   meter_));
  HEARTH_RETURN_IF_ERROR(imager_.SaveImage(sequence, range, {}, span->memory.data()));
  return span;
}

uint64_t PrefixCache::HeldBytes() const {
  uint64_t bytes = meter_->bytes();
  for (const auto& [salt, trie] : tries_) bytes += salt.size() + trie.bytes();
  return bytes;
}

// All images, those that go first in front.
std::vector<PrefixCache::Victim> PrefixCache::Victims() {
  std::vector<Victim> victims;
  for (auto& [salt, trie] : tries_) {
    trie.VisitFromLeaves([&](uint32_t length, Entry& entry, uint64_t largest_below) {
      const uint64_t own =
          entry.image == nullptr ? 0 : entry.last_use + (entry.proven ? kProvenUse : 0);
      const uint64_t use = entry.finds < kSharedFinds ? own : std::max(own, largest_below);
      if (entry.image != nullptr) victims.push_back({&entry, use, length});
      return own;
    });
  }
  std::sort(victims.begin(), victims.end(), [](const Victim& a, const Victim& b) {
    return a.use != b.use ? a.use < b.use : a.length > b.length;
  });
  return victims;
}

// Drops images until `bytes` more are within the budget; false, and nothing is dropped, when they
// cannot be, beside the spans that they follow. The fixed part of an image that a request still
// holds counts as free: it will be.
bool PrefixCache::MakeRoom(uint64_t bytes, const Place& place) {
  const PrefixSpan* const last = place.span != nullptr ? place.span.get() : place.before.get();
  uint64_t needed_bytes = bytes;
  if (last != nullptr) {
    for (const PrefixSpan* span : ChainOf(*last)) {
      needed_bytes += PrefixSpan::MeteredBytes(span->tokens.size(), span->cuts.size(),
                                               span->memory.data().size()) +
                      Trie::InsertBytesMax(span->tokens.size());
    }
  }
  if (needed_bytes > options_.ram_budget_bytes) return false;
  const uint64_t allowed_bytes = options_.ram_budget_bytes - bytes;
  uint64_t held_bytes = HeldBytes();
  const auto fits = [&] { return held_bytes <= allowed_bytes && stats_.images < kPrefixImagesMax; };
  if (fits()) return true;
  for (const Victim& victim : Victims()) {
    if (fits()) break;
    const uint64_t fixed_bytes =
        MeteredMemory::MeteredBytes(victim.entry->image->fixed.data().size());
    const uint64_t before_bytes = meter_->bytes();
    victim.entry->image.reset();
    const uint64_t freed_bytes = std::max(before_bytes - meter_->bytes(), fixed_bytes);
    held_bytes -= std::min(held_bytes, freed_bytes);
    --stats_.images;
    ++stats_.evictions;
  }
  DropEmptyEntries();
  return true;
}

void PrefixCache::DropEmptyEntries() {
  for (auto& [salt, trie] : tries_) {
    trie.EraseIf([](const Entry& e) { return e.image == nullptr && e.span.expired(); });
  }
  std::erase_if(tries_, [](const auto& item) { return item.second.value_count() == 0; });
}

void PrefixCache::Clear() {
  tries_.clear();
  stats_.images = 0;
}

PrefixCacheStats PrefixCache::stats() const {
  PrefixCacheStats stats = stats_;
  stats.bytes = HeldBytes();
  stats.budget_bytes = options_.ram_budget_bytes;
  return stats;
}

}  // namespace hearth
