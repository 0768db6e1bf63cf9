// What lies in a directory of images: which files there are, which go on from which, how to find
// them by a prompt, and which go first when there is no room. Bookkeeping only: no file is touched.
// Thread-compatible.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "runtime/engine/prefix_file.h"
#include "runtime/engine/prefix_query.h"
#include "runtime/engine/token_trie.h"

namespace hearth {

// A file that is there; immutable.
struct PrefixRecord {
  PrefixFileHeader header;
  std::shared_ptr<const PrefixRecord> parent;  // null: starts at position 0
  uint32_t token_count() const { return header.token_end(); }
};
using PrefixRecordPtr = std::shared_ptr<const PrefixRecord>;

// From the first record to this one, all their spans.
std::vector<const PrefixFileSpan*> SpansOf(const PrefixRecord& record);
// Whether a prompt that is cut at `cuts` is cut as the record's was.
bool HasCutsOf(const PrefixRecord& record, std::span<const uint32_t> cuts);

class PrefixIndex {
 public:
  // FailedPrecondition when the file that it goes on from is not here as it was then.
  absl::Status Add(PrefixFileHeader header);
  // Of another binding: takes room and is of no use.
  void AddForeign(uint64_t number, uint64_t file_bytes);

  // The record of the longest prefix that the prompt can go on from; null: none.
  PrefixRecordPtr Find(const PrefixQuery& query);
  // The record that ends exactly with the query's tokens, after such rows of the MTP layer, cut as
  // they are; null: none.
  PrefixRecordPtr At(const PrefixQuery& query, uint32_t draft_end);
  // It was used now, and so were those that it goes on from.
  void Touch(uint64_t number);

  // The number that goes first: foreign ones, then the least recently used one that no other goes
  // on from, but not `but_not`; 0: none.
  uint64_t GoesFirst(uint64_t but_not) const;
  // Forgets a file, and all that go on from it; their numbers.
  std::vector<uint64_t> Remove(uint64_t number);

  uint64_t bytes() const { return bytes_; }
  size_t count() const { return files_.size(); }
  // Above every number there ever was here.
  uint64_t next_number() const { return next_number_; }

 private:
  struct File {
    PrefixRecordPtr record;  // null: foreign
    uint64_t bytes = 0;
    uint64_t last_use = 0;
    uint32_t children = 0;
  };
  using Numbers = std::vector<uint64_t>;  // files of the same tokens, differently cut or drafted

  std::map<uint64_t, File> files_;
  std::map<std::string, TokenTrie<Numbers>, std::less<>> tries_;  // by salt
  uint64_t bytes_ = 0;
  uint64_t use_count_ = 0;
  uint64_t next_number_ = 1;
};

}  // namespace hearth
