// Prompts that begin as earlier ones did are not read again: images of sequences at prompt cuts,
// found by the longest prefix of tokens. What is reused is, to the last bit, what reading would
// have computed: an image is found only for a prompt that would be cut at the same places up to its
// end.
//
// How a prompt is read with it:
//
//   const PrefixQuery query{.tokens = prompt, .cuts = cuts, .salt = salt, .drafts = drafts_max >
//   0}; if (std::optional<FoundPrefix> found = cache.Find(query)) {
//     RETURN_IF_ERROR(cache.Restore(*found, *sequence));       // of a sequence that read nothing
//   }
//   for each cut after sequence->token_count():
//     RunTrunk, Commit
//     draft passes of positions [draft_count, cut - 1), unless that is none: the row of position
//     cut - 1 needs the token after the cut and is read with the next chunk
//     RETURN_IF_ERROR(cache.Keep(query, *sequence));           // keeps what is worth it
//
// Used by the thread that runs the passes alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "runtime/backend/backend.h"
#include "runtime/backend/sequence_image.h"
#include "runtime/base/ids.h"
#include "runtime/engine/prefix_image.h"
#include "runtime/engine/prefix_query.h"
#include "runtime/engine/prefix_store.h"
#include "runtime/engine/token_trie.h"

namespace hearth {

inline constexpr size_t kPrefixImagesMax = 8192;

struct PrefixCacheOptions {
  uint64_t ram_budget_bytes = 0;  // 0: nothing is kept
  // A cut is kept when this many tokens lie between it and the one that was kept before it; the
  // last cut before a prompt's end always is, the end never: it is no other prompt's cut but by
  // chance.
  uint32_t spacing_tokens = 2048;
  // An image is read from the disk when it has so many tokens more than the best one in memory.
  uint32_t disk_gain_tokens = 256;
};

struct FoundPrefix {
  std::shared_ptr<const PrefixImage> image;
  uint32_t token_count() const { return image->token_count(); }
};

struct PrefixCacheStats {
  uint64_t lookups = 0;
  uint64_t hits = 0;
  uint64_t disk_hits = 0;     // of these, read from the disk
  uint64_t tokens_asked = 0;  // of prompts that were looked up
  uint64_t tokens_reused = 0;
  uint64_t kept = 0;      // images made
  uint64_t declined = 0;  // cuts that were not kept because the budget has no room for their image
  uint64_t evictions = 0;
  uint64_t images = 0;  // at hand
  uint64_t bytes = 0;   // all that is held, images that only requests still hold included
  uint64_t budget_bytes = 0;
};

// What images take, for plans.
struct PrefixImageCost {
  uint64_t fixed_bytes = 0;      // of one image, however many tokens
  uint64_t bytes_per_token = 0;  // once per conversation, rounded up
};
PrefixImageCost PrefixImageCostOf(const SequenceImager& imager, bool drafts);
// The same before anything is loaded; `position_bytes` as for ImageSpanBytes.
PrefixImageCost PlanPrefixImage(const ModelGeometry& geometry, uint64_t position_bytes,
                                bool drafts);

// Which image goes when memory is needed: first those that a long prompt left on its way and nobody
// asked for, then by when they were found or made last. An image that several prompts went on from
// counts as used whenever one below it is. An image that goes gives back its fixed part; its span
// stays while images below it need it.
class PrefixCache {
 public:
  // `imager` and `store` outlive the cache. With a store, images of prompts' last cuts and those
  // that several prompts went on from are written there, and found there when memory has none.
  PrefixCache(SequenceImager& imager, const PrefixCacheOptions& options,
              PrefixStore* store = nullptr);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  // The longest image that the prompt can go on from; at least one of its tokens is left to read.
  std::optional<FoundPrefix> Find(const PrefixQuery& query);
  // Errors are those of SequenceImager::RestoreImage.
  absl::Status Restore(const FoundPrefix& found, Sequence& sequence);
  // Keeps the state of a sequence that has read the prompt up to one of its cuts, unless it is
  // there or not worth its memory. InvalidArgument when the sequence does not stand at a cut;
  // otherwise errors are those of SequenceImager::SaveImage. The sequence is as before in any case.
  absl::Status Keep(const PrefixQuery& query, const Sequence& sequence);

  // Forgets everything; what requests hold lives on until they let go.
  void Clear();
  PrefixCacheStats stats() const;

 private:
  struct Entry {
    std::weak_ptr<const PrefixSpan> span;      // of this cut, while anything needs it
    std::shared_ptr<const PrefixImage> image;  // null: gone
    uint64_t last_use = 0;                     // by a count of uses
    uint32_t finds = 0;                        // up to kSharedFinds
    bool proven = false;                       // was found, or the last cut of a prompt
  };
  using Trie = TokenTrie<Entry>;
  struct Place {  // where an image is to be kept, and what is there
    std::shared_ptr<const PrefixSpan> before;
    std::shared_ptr<const PrefixSpan> span;  // null: none that would do
    uint32_t image_before = 0;               // where the last image before it ends
    bool kept = false;
  };
  struct Victim {
    Entry* entry;
    uint64_t use;
    uint32_t length;
  };

  std::shared_ptr<const PrefixImage> FindInMemory(const PrefixQuery& query);
  std::shared_ptr<const PrefixImage> FindOnDisk(const PrefixQuery& query, uint32_t longer_than);
  bool IsOfThisModel(const PrefixRecord& record) const;
  absl::StatusOr<std::shared_ptr<const PrefixImage>> ReadRecord(const PrefixQuery& query,
                                                                const PrefixRecord& record);
  std::shared_ptr<const PrefixSpan> SpanAtHand(const PrefixQuery& query,
                                               std::span<const PrefixFileSpan* const> spans);
  void NoteFind(const PrefixQuery& query, const std::shared_ptr<const PrefixImage>& image);
  void Insert(const PrefixQuery& query, std::shared_ptr<const PrefixImage> image, bool proven);
  Place PlaceOf(const PrefixQuery& query, uint32_t cut, uint32_t draft_count);
  bool WorthKeeping(const PrefixQuery& query, uint32_t cut, uint32_t image_before) const;
  absl::StatusOr<std::shared_ptr<const PrefixSpan>> SaveSpan(const PrefixQuery& query,
                                                             const Sequence& sequence,
                                                             const Place& place,
                                                             uint32_t draft_count);
  uint64_t HeldBytes() const;
  std::vector<Victim> Victims();
  bool MakeRoom(uint64_t bytes, const Place& place);
  void DropEmptyEntries();

  SequenceImager& imager_;
  const PrefixCacheOptions options_;
  PrefixStore* const store_;  // null: none
  std::shared_ptr<MemoryMeter> meter_;
  std::map<std::string, Trie, std::less<>> tries_;  // by salt
  uint64_t use_count_ = 0;
  PrefixCacheStats stats_;
};

}  // namespace hearth
