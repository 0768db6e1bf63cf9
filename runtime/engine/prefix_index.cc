#include "runtime/engine/prefix_index.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {

std::vector<const PrefixFileSpan*> SpansOf(const PrefixRecord& record) {
  std::vector<const PrefixFileSpan*> spans;
  for (const PrefixRecord* r = &record; r != nullptr; r = r->parent.get()) {
    for (auto s = r->header.spans.rbegin(); s != r->header.spans.rend(); ++s) spans.push_back(&*s);
  }
  std::reverse(spans.begin(), spans.end());
  return spans;
}

bool HasCutsOf(const PrefixRecord& record, std::span<const uint32_t> cuts) {
  size_t at = 0;
  for (const PrefixFileSpan* span : SpansOf(record)) {
    if (cuts.size() - at < span->cuts.size()) return false;
    if (!std::equal(span->cuts.begin(), span->cuts.end(),
                    cuts.begin() + static_cast<ptrdiff_t>(at))) {
      return false;
    }
    at += span->cuts.size();
  }
  return true;
}

absl::Status PrefixIndex::Add(PrefixFileHeader header) {
  auto record = std::make_shared<PrefixRecord>();
  if (header.parent_number != 0) {
    const auto parent = files_.find(header.parent_number);
    const PrefixRecord* const r = parent == files_.end() ? nullptr : parent->second.record.get();
    if (r == nullptr || r->header.seal != header.parent_seal || r->header.salt != header.salt ||
        r->token_count() != header.token_begin() ||
        r->header.spans.back().range.draft_end != header.spans.front().range.draft_begin) {
      return absl::FailedPreconditionError(absl::StrCat(
          "image ", header.number, " goes on from ", header.parent_number, ", which is not there"));
    }
    record->parent = parent->second.record;
  } else if (header.token_begin() != 0 || header.spans.front().range.draft_begin != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("image ", header.number, " lacks its beginning"));
  }
  if (files_.contains(header.number)) {
    return absl::FailedPreconditionError(absl::StrCat("image ", header.number, " is there twice"));
  }
  if (record->parent != nullptr) ++files_[header.parent_number].children;
  record->header = std::move(header);
  std::vector<TokenId> tokens;
  for (const PrefixFileSpan* span : SpansOf(*record)) {
    tokens.insert(tokens.end(), span->tokens.begin(), span->tokens.end());
  }
  const PrefixFileHeader& h = record->header;
  tries_[h.salt].At(tokens).push_back(h.number);
  bytes_ += h.file_bytes;
  next_number_ = std::max(next_number_, h.number + 1);
  files_[h.number] = {.record = record, .bytes = h.file_bytes, .last_use = ++use_count_};
  return absl::OkStatus();
}

void PrefixIndex::AddForeign(uint64_t number, uint64_t file_bytes) {
  HEARTH_CHECK(!files_.contains(number));
  bytes_ += file_bytes;
  next_number_ = std::max(next_number_, number + 1);
  files_[number] = {.record = nullptr, .bytes = file_bytes};
}

PrefixRecordPtr PrefixIndex::Find(const PrefixQuery& query) {
  const auto trie = tries_.find(query.salt);
  if (trie == tries_.end() || query.tokens.empty()) return nullptr;
  PrefixRecordPtr best;
  trie->second.VisitPrefixes(query.tokens.first(query.tokens.size() - 1),
                             [&](uint32_t length, const Numbers& numbers) {
                               for (const uint64_t number : numbers) {
                                 const PrefixRecordPtr& record = files_.at(number).record;
                                 if (query.drafts && record->header.draft_count + 1 != length)
                                   continue;
                                 if (HasCutsOf(*record, query.cuts)) best = record;
                               }
                             });
  return best;
}

PrefixRecordPtr PrefixIndex::At(const PrefixQuery& query, uint32_t draft_end) {
  const auto trie = tries_.find(query.salt);
  if (trie == tries_.end()) return nullptr;
  PrefixRecordPtr found;
  trie->second.VisitPrefixes(query.tokens, [&](uint32_t length, const Numbers& numbers) {
    if (length != query.tokens.size()) return;
    for (const uint64_t number : numbers) {
      const PrefixRecordPtr& record = files_.at(number).record;
      if (record->header.spans.back().range.draft_end != draft_end) continue;
      if (HasCutsOf(*record, query.cuts)) found = record;
    }
  });
  return found;
}

void PrefixIndex::Touch(uint64_t number) {
  const uint64_t use = ++use_count_;
  while (number != 0) {
    const auto file = files_.find(number);
    if (file == files_.end() || file->second.record == nullptr) return;
    file->second.last_use = use;
    number = file->second.record->header.parent_number;
  }
}

uint64_t PrefixIndex::GoesFirst(uint64_t but_not) const {
  uint64_t first = 0;
  uint64_t least_use = UINT64_MAX;
  for (const auto& [number, file] : files_) {
    if (file.children != 0 || number == but_not || file.last_use >= least_use) continue;
    first = number;
    least_use = file.last_use;
  }
  return first;
}

std::vector<uint64_t> PrefixIndex::Remove(uint64_t number) {
  std::vector<uint64_t> removed;
  if (!files_.contains(number)) return removed;
  // A file's number is above that of the one that it goes on from.
  std::vector<uint64_t> going = {number};
  for (auto it = files_.upper_bound(number); it != files_.end(); ++it) {
    const PrefixRecord* const record = it->second.record.get();
    if (record == nullptr) continue;
    if (std::find(going.begin(), going.end(), record->header.parent_number) != going.end()) {
      going.push_back(it->first);
    }
  }
  for (auto it = going.rbegin(); it != going.rend(); ++it) {
    const File file = files_.at(*it);
    files_.erase(*it);
    bytes_ -= file.bytes;
    removed.push_back(*it);
    if (file.record == nullptr) continue;
    if (const auto parent = files_.find(file.record->header.parent_number);
        parent != files_.end()) {
      --parent->second.children;
    }
    const auto trie = tries_.find(file.record->header.salt);
    trie->second.EraseIf([&](Numbers& numbers) {
      std::erase(numbers, *it);
      return numbers.empty();
    });
    if (trie->second.value_count() == 0) tries_.erase(trie);
  }
  return removed;
}

}  // namespace hearth
