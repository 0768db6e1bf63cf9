// The memory in which the host and a card meet within a window: what lies where in it, and how its
// words are written. Pure arithmetic, the same for both sides.
//
// A word is 8 bytes, written and read in one access: its upper half is the sequence number of the
// window (the tag), its lower half the payload. Sequence numbers rise from window to window, so
// that a word of an earlier window never passes for one of this. Each word is therefore its own
// proof of arrival: short things (routes, lists) are words throughout, and nobody waits for a fence
// or reads a flag first and the data after it, which would cost a second trip over the link.
// Long things (the rows u, outputs of experts) are plain data; a word follows them that is written
// with release and read with acquire semantics, system-wide.
//
// Who finds the hits (experts in VRAM) of a layer: the host, in a list that the card waits for; or,
// with expert_count != 0, the card itself, which then keeps a table of the experts in its slots and
// waits for nothing. The host changes the table between windows only, so that both know it, and
// both know as well which of the missed experts the card reads over the link (card_claims.h).
//
// One layer, in order of time; arrows show who writes:
//   card -> host  routes   two words for each (row, rank): the expert, the bits of its weight
//   card -> host  rows     u quantised, rotated and in fp32; then a word for each block of
//                          threads that copied a share of it; not if the card takes all entries
//                          by itself
//   host -> card  hits     a list of items (experts in VRAM) and entries (their rows); not if the
//                          card finds them itself
//   host -> card  late     a second list, of experts whose upload has ended; only if hits said so,
//                          or if the card found an entry that is no hit
//   host -> card  outputs  a word: the other entries' outputs are in host memory; under the same
//                          condition
//   card -> host  ahead    a word for each (row, rank): an expert that the next layer may choose; a
//                          hint that nobody waits for
// And once, when all of the window's work is done: a word from the card.
// Rows and outputs lie in two sets, by the layer's parity. They are in use while the card waits for
// the host within a layer, and the next layer's routes come after that.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth {

inline constexpr uint32_t kExchangeRowsMax = 16;
inline constexpr uint32_t kExchangeEntriesMax = 512;  // rows * ranks: what an item's word can name
inline constexpr uint32_t kExchangeLayersMax = 256;
inline constexpr uint32_t kExchangeExpertsMax = 4096;  // of a layer
inline constexpr uint32_t kPublishBlocks = 8;       // blocks of threads that copy rows to the host
inline constexpr uint32_t kExchangeStamps = 8;      // of one layer, see ExchangeStamp
inline constexpr uint32_t kStampWindows = 4;        // windows whose stamps are kept
inline constexpr uint32_t kTableChangesMax = 1024;  // at the begin of one window; more: all of it

// Which forms of u are published for the CPU's experts.
struct ExchangeForms {
  bool quantized = false;  // QuantizedRows: NVFP4
  bool rotated = false;    // XtRows: XT
  bool fp32 = false;       // all other formats
};

struct ExchangeShape {
  uint32_t layer_count = 0;  // with the MTP layer
  uint32_t rows_max = 0;     // of a window, 1 to kExchangeRowsMax
  uint32_t ranks = 0;        // rows_max * ranks <= kExchangeEntriesMax
  uint32_t hidden = 0;       // a multiple of 32
  ExchangeForms forms;
  uint32_t expert_count = 0;  // of each layer, for the card's table; 0: the host finds the hits
};

// One entry of the card's table. `index`: layer * expert_count + expert.
struct TableChange {
  uint64_t entry = 0;  // see card_claims.h
  uint32_t index = 0;
  uint32_t unused = 0;
};
static_assert(sizeof(TableChange) == 16);

// Points of a layer's time on the card, ns of its global timer.
enum class ExchangeStamp : uint8_t {
  kPublishBegin,
  kPublishEnd,
  kHitsBegin,  // the card is ready for the list
  kHitsEnd,    // the list is in its memory
  kLateBegin,
  kLateEnd,
  kOutputsBegin,
  kOutputsEnd
};
// The same of a window: after its first launch and before its last.
enum class WindowStamp : uint8_t { kBegin, kEnd };

// What the card waits for, as an error names it.
enum class ExchangeStage : uint8_t { kNone, kHits, kLate, kOutputs };

// Offsets in bytes from the start of the memory. Sections begin at multiples of 128.
struct ExchangeLayout {
  ExchangeShape shape;
  // Once: host writes the window's word (payload: number of changes to the table), card the first
  // wait that failed.
  uint64_t window_offset_bytes = 0;
  uint64_t error_offset_bytes = 0;
  uint64_t end_offset_bytes = 0;  // card: the window is done
  // For each layer at layers + layer * layer_stride:
  uint64_t layers_offset_bytes = 0;
  uint64_t layer_stride_bytes = 0;
  uint64_t routes_offset_bytes = 0;   // within the layer: (rows_max * ranks) words
  uint64_t weights_offset_bytes = 0;  // as many
  uint64_t ahead_offset_bytes = 0;    // as many
  uint64_t arrived_offset_bytes = 0;  // (kPublishBlocks) words
  uint64_t hits_offset_bytes = 0;     // (list_words) words
  uint64_t late_offset_bytes = 0;
  uint64_t outputs_offset_bytes = 0;  // one word
  uint32_t list_words = 0;            // header, two for each item, one for each entry
  // For each of the two sets, at sets + parity * set_stride:
  uint64_t sets_offset_bytes = 0;
  uint64_t set_stride_bytes = 0;
  uint64_t q_offset_bytes = 0;  // within the set: QuantizedRows of rows_max rows
  uint64_t scale_offset_bytes = 0;
  uint64_t sum16_offset_bytes = 0;
  uint64_t rotated_q_offset_bytes = 0;  // XtRows
  uint64_t rotated_scale_offset_bytes = 0;
  uint64_t rotated_sum_offset_bytes = 0;
  uint64_t x_offset_bytes = 0;       // (rows_max, hidden) fp32
  uint64_t output_offset_bytes = 0;  // (rows_max * ranks, hidden) fp32, unweighted
  // The window's StreamRule, TableChange (kTableChangesMax), then all the table's entries,
  // (layer_count, expert_count)
  uint64_t rule_offset_bytes = 0;
  uint64_t changes_offset_bytes = 0;
  uint64_t table_offset_bytes = 0;
  // (kStampWindows, layer_count + 1, kExchangeStamps) uint64; the last row is the window's own
  uint64_t stamps_offset_bytes = 0;
  uint64_t bytes = 0;  // of it all

  uint32_t entries_max() const { return shape.rows_max * shape.ranks; }
  uint32_t table_count() const { return shape.layer_count * shape.expert_count; }
  uint64_t LayerOffsetBytes(uint32_t layer) const {
    return layers_offset_bytes + layer * layer_stride_bytes;
  }
  uint64_t SetOffsetBytes(uint32_t layer) const {
    return sets_offset_bytes + (layer % 2) * set_stride_bytes;
  }
  uint64_t StampsOffsetBytes(uint32_t sequence, uint32_t layer) const {
    return stamps_offset_bytes + uint64_t{sequence % kStampWindows} * stamp_window_bytes() +
           uint64_t{layer} * kExchangeStamps * 8;
  }
  uint64_t WindowStampsOffsetBytes(uint32_t sequence) const {
    return StampsOffsetBytes(sequence, shape.layer_count);
  }
  uint64_t stamp_window_bytes() const {
    return (uint64_t{shape.layer_count} + 1) * kExchangeStamps * 8;
  }
};

// InvalidArgument names the bound that `shape` breaks.
absl::StatusOr<ExchangeLayout> LayOutExchange(const ExchangeShape& shape);

}  // namespace hearth
