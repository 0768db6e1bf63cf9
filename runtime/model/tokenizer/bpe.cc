// Two methods with one result: short pieces rescan an array for the lowest rank, long ones keep a
// heap of candidate merges over a linked list.
#include "runtime/model/tokenizer/bpe.h"

#include <algorithm>
#include <functional>

#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
constexpr uint32_t kNoSymbol = UINT32_MAX;
constexpr uint32_t kScanSymbolsMax = 48;       // words and most runs of ideographs
constexpr uint32_t kChunkBytesMax = 1u << 30;  // positions are 32 bits; longer pieces are cut

uint64_t PairKey(TokenId left, TokenId right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

// Stands for itself in the byte alphabet, so that a piece with these bytes is spelt like the token.
bool IsPrintableAscii(std::string_view token) {
  return std::all_of(token.begin(), token.end(), [](char c) { return c >= '!' && c <= '~'; });
}

uint64_t HeapEntry(uint32_t rank, uint32_t position) { return uint64_t{rank} << 32 | position; }

}  // namespace

BpeModel::BpeModel(const TokenizerDescription& description)
    : is_added_(description.tokens.token_count(), false) {
  const TokenTable& tokens = description.tokens;
  for (const AddedToken& added : description.added_tokens) {
    is_added_[static_cast<uint32_t>(added.id)] = true;
  }
  byte_tokens_.fill(-1);
  for (uint32_t i = 0; i < tokens.token_count(); ++i) {
    const TokenId id = static_cast<TokenId>(i);
    const std::string_view token = tokens[id];
    if (!description.in_model[i] || token.size() != 1) continue;
    byte_tokens_[static_cast<uint8_t>(token[0])] = id;
  }
  merges_.reserve(description.merges.size());
  for (uint32_t rank = 0; rank < description.merges.size(); ++rank) {
    const BpeMerge& merge = description.merges[rank];
    merges_[PairKey(merge.left, merge.right)] = {rank,
                                                 merge.merged};  // of equal pairs the last counts
  }
  Scratch scratch;
  std::vector<TokenId> ids;
  whole_pieces_.reserve(tokens.token_count());
  for (uint32_t i = 0; i < tokens.token_count(); ++i) {
    const TokenId id = static_cast<TokenId>(i);
    if (!description.in_model[i]) continue;
    if (is_added_[i]) {
      if (description.ignore_merges && IsPrintableAscii(tokens[id])) {
        whole_added_pieces_.emplace(tokens[id], id);
      }
      continue;
    }
    ids.clear();
    if (!description.ignore_merges) {
      EncodeChunk(tokens[id], MergeInto::kOrdinaryToken, scratch, ids);
      if (ids.size() != 1 || ids[0] != id) continue;
      ids.clear();
      EncodeChunk(tokens[id], MergeInto::kAnyToken, scratch, ids);
      if (ids.size() != 1 || ids[0] != id) continue;
    }
    whole_pieces_.emplace(tokens[id], id);
  }
}

void BpeModel::EncodePiece(std::string_view piece, MergeInto into, Scratch& scratch,
                           std::vector<TokenId>& ids) const {
  if (const auto whole = whole_pieces_.find(piece); whole != whole_pieces_.end()) {
    ids.push_back(whole->second);
    return;
  }
  if (into == MergeInto::kAnyToken && !whole_added_pieces_.empty()) {
    if (const auto whole = whole_added_pieces_.find(piece); whole != whole_added_pieces_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  for (; piece.size() > kChunkBytesMax; piece.remove_prefix(kChunkBytesMax)) {
    EncodeChunk(piece.substr(0, kChunkBytesMax), into, scratch, ids);
  }
  EncodeChunk(piece, into, scratch, ids);
}

void BpeModel::EncodeChunk(std::string_view chunk, MergeInto into, Scratch& scratch,
                           std::vector<TokenId>& ids) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  symbols.resize(chunk.size());
  for (uint32_t i = 0; i < chunk.size(); ++i) {
    symbols[i].id = byte_tokens_[static_cast<uint8_t>(chunk[i])];
  }
  for (uint32_t i = 0; i + 1 < chunk.size(); ++i) {
    const Merge merge = MergeOf(symbols[i].id, symbols[i + 1].id, into);
    symbols[i].rank = merge.rank;
    symbols[i].merged = merge.merged;
  }
  if (!symbols.empty()) symbols.back().rank = kNoRank;
  if (symbols.size() <= kScanSymbolsMax) {
    MergeByScan(into, symbols);
    for (const Symbol& symbol : symbols) ids.push_back(symbol.id);
    return;
  }
  MergeByHeap(into, scratch);
  for (uint32_t at = 0; at != kNoSymbol; at = symbols[at].next) ids.push_back(symbols[at].id);
}

BpeModel::Merge BpeModel::MergeOf(TokenId left, TokenId right, MergeInto into) const {
  const auto found = merges_.find(PairKey(left, right));
  if (found == merges_.end()) return {kNoRank, -1};
  if (into == MergeInto::kOrdinaryToken && is_added_[static_cast<uint32_t>(found->second.merged)]) {
    return {kNoRank, -1};
  }
  return found->second;
}

void BpeModel::MergeByScan(MergeInto into, std::vector<Symbol>& symbols) const {
  const auto set_merge = [&](size_t i) {
    Symbol& symbol = symbols[i];
    const Merge merge =
        i + 1 < symbols.size() ? MergeOf(symbol.id, symbols[i + 1].id, into) : Merge{kNoRank, -1};
    symbol.rank = merge.rank;
    symbol.merged = merge.merged;
  };
  while (symbols.size() > 1) {
    size_t best = 0;
    for (size_t i = 1; i < symbols.size(); ++i) {
      if (symbols[i].rank < symbols[best].rank) best = i;
    }
    if (symbols[best].rank == kNoRank) return;
    symbols[best].id = symbols[best].merged;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    set_merge(best);
    if (best > 0) set_merge(best - 1);
  }
}

void BpeModel::MergeByHeap(MergeInto into, Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<uint64_t>& heap = scratch.heap;
  heap.clear();
  const uint32_t count = static_cast<uint32_t>(symbols.size());
  for (uint32_t i = 0; i < count; ++i) {
    symbols[i].previous = i == 0 ? kNoSymbol : i - 1;
    symbols[i].next = i + 1 == count ? kNoSymbol : i + 1;
    if (symbols[i].rank != kNoRank) heap.push_back(HeapEntry(symbols[i].rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto set_merge = [&](uint32_t at) {
    Symbol& symbol = symbols[at];
    symbol.rank = kNoRank;
    if (symbol.next == kNoSymbol) return;
    const Merge merge = MergeOf(symbol.id, symbols[symbol.next].id, into);
    symbol.rank = merge.rank;
    symbol.merged = merge.merged;
    if (merge.rank == kNoRank) return;
    heap.push_back(HeapEntry(merge.rank, at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t entry = heap.back();
    heap.pop_back();
    const uint32_t at = static_cast<uint32_t>(entry);
    Symbol& symbol = symbols[at];
    // A symbol that was merged away has no rank, one that grew has another: old entries fall
    // through.
    if (symbol.rank != static_cast<uint32_t>(entry >> 32)) continue;
    Symbol& right = symbols[symbol.next];
    symbol.id = symbol.merged;
    symbol.next = right.next;
    right.rank = kNoRank;
    if (symbol.next != kNoSymbol) symbols[symbol.next].previous = at;
    set_merge(at);
    if (symbol.previous != kNoSymbol) set_merge(symbol.previous);
  }
}

}  // namespace hearth
