#include "cache/store/ram_blocks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/store/block_layout.h"
#include "cache/store/block_tier.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kBlockAlignBytes = 4_KiB;
constexpr uint32_t kBlobRequestsMax = 4;
constexpr uint32_t kBlobsInFlightMax = 64;

absl::Status CheckOptions(const ExpertFile& file, std::span<std::byte> memory,
                          const ReaderTraits& traits, const RamBlocksOptions& options) {
  const std::string& path = file.file().path();
  if (reinterpret_cast<uintptr_t>(memory.data()) % kBlockAlignBytes != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": memory for experts must begin on ", kBlockAlignBytes, " bytes"));
  }
  if (traits.align_bytes == 0 || kBlockAlignBytes % traits.align_bytes != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": reads past the page cache must be aligned to ", traits.align_bytes,
        " bytes here, experts are aligned to ", kBlockAlignBytes, "; read through it instead"));
  }
  if (options.blob_requests < 1 || options.blob_requests > kBlobRequestsMax) {
    return absl::InvalidArgumentError(absl::StrCat("blob_requests ", options.blob_requests,
                                                   ": 1 to ", kBlobRequestsMax, " expected"));
  }
  if (options.blobs_in_flight_max < 1 || options.blobs_in_flight_max > kBlobsInFlightMax) {
    return absl::InvalidArgumentError(absl::StrCat("blobs_in_flight_max ",
                                                   options.blobs_in_flight_max, ": 1 to ",
                                                   kBlobsInFlightMax, " expected"));
  }
  if (options.read_timeout_ns <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("read_timeout_ns ", options.read_timeout_ns, ": more than 0 expected"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<RamBlocks>> RamBlocks::Create(
    const ExpertFile& file, std::span<std::byte> memory, std::unique_ptr<Reader> reader,
    Clock& clock, const RamBlocksOptions& options, HeldElsewhere held_elsewhere) {
  HEARTH_RETURN_IF_ERROR(CheckOptions(file, memory, reader->traits(), options));
  BlockTier::Parts parts{
      .memory = memory, .reader = std::move(reader), .held_elsewhere = std::move(held_elsewhere)};
  HEARTH_ASSIGN_OR_RETURN(parts.layout, LayOutBlocks(file, memory.size()));
  for (const BlockClass& cls : parts.layout.classes) {
    PoolShape shape{.layer_count = file.layer_count(),
                    .expert_count = file.expert_count(),
                    .layers = cls.layers,
                    .slot_count = BlockTier::SlotsOf(cls, cls.block_count, options.landing_count)};
    HEARTH_ASSIGN_OR_RETURN(auto policy, CreatePolicy(options.policy, shape));
    parts.policies.push_back(std::move(policy));
    parts.shapes.push_back(std::move(shape));
  }
  return std::make_unique<BlockTier>(file, clock, options, std::move(parts));
}

}  // namespace hearth
