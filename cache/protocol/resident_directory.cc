#include "cache/protocol/resident_directory.h"

#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr uint64_t kDirectoryMagic = 0x3152494448545248;  // "HRTHDIR1" as bytes in order

struct DirectoryHeader {
  uint64_t magic;
  uint32_t layer_count;
  uint32_t expert_count;
  uint64_t reserved[6];  // zero
};
static_assert(sizeof(DirectoryHeader) == kSharedHeaderBytes);
static_assert(std::has_unique_object_representations_v<DirectoryHeader>);
static_assert(std::atomic<uint64_t>::is_always_lock_free && sizeof(std::atomic<uint64_t>) == 8);

}  // namespace

uint64_t ResidentDirectory::BytesFor(Shape shape) {
  return kSharedHeaderBytes + uint64_t{shape.layer_count} * shape.expert_count * sizeof(uint64_t);
}

ResidentDirectory ResidentDirectory::Format(std::span<std::byte> memory, Shape shape) {
  HEARTH_CHECK(memory.size() == BytesFor(shape));
  const DirectoryHeader header{kDirectoryMagic, shape.layer_count, shape.expert_count, {}};
  std::memcpy(memory.data(), &header, sizeof(header));
  return ResidentDirectory(memory, shape);
}

absl::StatusOr<ResidentDirectory> ResidentDirectory::Attach(std::span<std::byte> memory,
                                                            Shape shape) {
  DirectoryHeader header{};
  if (memory.size() == BytesFor(shape)) std::memcpy(&header, memory.data(), sizeof(header));
  if (header.magic != kDirectoryMagic || header.layer_count != shape.layer_count ||
      header.expert_count != shape.expert_count) {
    return absl::FailedPreconditionError(
        absl::StrCat("directory of residents: ", memory.size(), " bytes for ", header.layer_count,
                     " layers of ", header.expert_count, " experts, expected ", BytesFor(shape),
                     " bytes for ", shape.layer_count, " of ", shape.expert_count));
  }
  return ResidentDirectory(memory, shape);
}

std::atomic<uint64_t>& ResidentDirectory::Word(ExpertKey key) const {
  HEARTH_DCHECK(key.layer.value < shape_.layer_count && key.expert.value < shape_.expert_count);
  const uint64_t index = uint64_t{key.layer.value} * shape_.expert_count + key.expert.value;
  std::byte* at = memory_.data() + kSharedHeaderBytes + index * sizeof(uint64_t);
  return *reinterpret_cast<std::atomic<uint64_t>*>(at);
}

}  // namespace hearth
