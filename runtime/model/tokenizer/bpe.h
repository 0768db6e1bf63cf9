// Byte-pair merging: turns the bytes of one piece of text into token ids.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"

#include "runtime/base/ids.h"
#include "runtime/model/tokenizer/token_table.h"
#include "runtime/model/tokenizer/tokenizer_json.h"

namespace hearth {

// Which tokens the merges of a piece may make.
enum class MergeInto {
  kAnyToken,
  kOrdinaryToken,  // never an added token, so that text cannot spell a control token
};

// Immutable: any number of threads may encode at once, each with its own Scratch. Keeps views into
// the TokenTable it is made from, which must outlive it (it may move).
class BpeModel {
 public:
  struct Scratch {  // reused between pieces, so that encoding allocates little
    struct Symbol {
      TokenId id;
      uint32_t rank;      // of the merge with the symbol after it
      TokenId merged;     // what that merge makes
      uint32_t previous;  // neighbours in the list of the heap method
      uint32_t next;
    };
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;  // rank << 32 | position
  };

  // The description is complete: every single byte is a token.
  explicit BpeModel(const TokenizerDescription& description);

  // Appends the ids of `piece`: the merge of the lowest rank first, the leftmost of equals.
  // O(n log n) in the piece's bytes.
  void EncodePiece(std::string_view piece, MergeInto into, Scratch& scratch,
                   std::vector<TokenId>& ids) const;

 private:
  struct Merge {
    uint32_t rank;
    TokenId merged;
  };
  using Symbol = Scratch::Symbol;

  void EncodeChunk(std::string_view chunk, MergeInto into, Scratch& scratch,
                   std::vector<TokenId>& ids) const;
  Merge MergeOf(TokenId left, TokenId right, MergeInto into) const;
  void MergeByScan(MergeInto into, std::vector<Symbol>& symbols) const;
  void MergeByHeap(MergeInto into, Scratch& scratch) const;

  std::array<TokenId, 256> byte_tokens_;
  absl::flat_hash_map<uint64_t, Merge> merges_;  // left << 32 | right
  // Pieces whose answer is one token, by their bytes: with ignore_merges every token of the model,
  // without it those that their own bytes merge into. No added tokens.
  absl::flat_hash_map<std::string_view, TokenId> whole_pieces_;
  // With ignore_merges: added tokens that model.vocab names too. Only for MergeInto::kAnyToken.
  absl::flat_hash_map<std::string_view, TokenId> whole_added_pieces_;
  std::vector<bool> is_added_;  // by id
};

}  // namespace hearth
