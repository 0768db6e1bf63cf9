#include "cache/store/block_layout.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/units.h"

namespace hearth {
namespace {

// Classes without blocks, in the order in which the file's layers bring them up.
BlockLayout FindClasses(const ExpertFile& file) {
  BlockLayout layout;
  for (uint32_t l = 0; l < file.layer_count(); ++l) {
    const uint64_t stride_bytes = file.layout(LayerId(l)).stride_bytes();
    auto it = std::find_if(layout.classes.begin(), layout.classes.end(),
                           [&](const BlockClass& c) { return c.block_bytes == stride_bytes; });
    if (it == layout.classes.end()) {
      layout.classes.push_back({.block_bytes = stride_bytes, .memory_offset_bytes = 0});
      it = layout.classes.end() - 1;
    }
    it->layers.push_back(LayerId(l));
    it->key_count += file.expert_count();
    layout.class_of_layer.push_back(static_cast<uint32_t>(it - layout.classes.begin()));
  }
  return layout;
}

uint32_t BlocksMin(const BlockClass& c) { return std::min(kClassBlocksMin, c.key_count); }

uint64_t LeastBytes(const BlockLayout& layout) {
  uint64_t bytes = 0;
  for (const BlockClass& c : layout.classes) bytes += BlocksMin(c) * c.block_bytes;
  return bytes;
}

uint64_t AllBytes(const BlockLayout& layout) {
  uint64_t bytes = 0;
  for (const BlockClass& c : layout.classes) bytes += c.key_count * c.block_bytes;
  return bytes;
}

// Every class its least; then of what is left each its share; then whole blocks to whoever can
// still take some.
void ShareOut(uint64_t memory_bytes, BlockLayout& layout) {
  const uint64_t all_bytes = AllBytes(layout);
  const uint64_t spare_bytes = memory_bytes - LeastBytes(layout);
  uint64_t left_bytes = spare_bytes;
  for (BlockClass& c : layout.classes) {
    c.block_count = BlocksMin(c);
    const auto share = static_cast<double>(c.key_count * c.block_bytes) / all_bytes;
    const auto share_bytes = std::min(static_cast<uint64_t>(share * spare_bytes), left_bytes);
    const uint64_t blocks =
        std::min<uint64_t>(share_bytes / c.block_bytes, c.key_count - c.block_count);
    c.block_count += static_cast<uint32_t>(blocks);
    left_bytes -= blocks * c.block_bytes;
  }
  for (BlockClass& c : layout.classes) {
    const uint64_t blocks =
        std::min<uint64_t>(left_bytes / c.block_bytes, c.key_count - c.block_count);
    c.block_count += static_cast<uint32_t>(blocks);
    left_bytes -= blocks * c.block_bytes;
  }
}

}  // namespace

uint64_t BlockLayout::bytes() const {
  uint64_t bytes = 0;
  for (const BlockClass& c : classes) bytes += c.block_count * c.block_bytes;
  return bytes;
}

uint64_t LeastBlockBytes(const ExpertFile& file) { return LeastBytes(FindClasses(file)); }

uint64_t AllBlockBytes(const ExpertFile& file) { return AllBytes(FindClasses(file)); }

absl::StatusOr<BlockLayout> LayOutBlocks(const ExpertFile& file, uint64_t memory_bytes) {
  BlockLayout layout = FindClasses(file);
  if (const uint64_t least_bytes = LeastBytes(layout); memory_bytes < least_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        file.file().path(), ": ", FormatBytes(memory_bytes),
        " of RAM for experts is too little: the least that works is ", least_bytes, " bytes (",
        FormatBytes(least_bytes), "), all experts take ", FormatBytes(AllBytes(layout))));
  }
  ShareOut(memory_bytes, layout);
  uint64_t offset_bytes = 0;
  for (BlockClass& c : layout.classes) {
    c.block_begin = layout.block_count;
    c.memory_offset_bytes = offset_bytes;
    layout.block_count += c.block_count;
    offset_bytes += c.block_count * c.block_bytes;
  }
  return layout;
}

}  // namespace hearth
