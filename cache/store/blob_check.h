// The checksum of an expert's bytes against the pack's directory, and what to say of it.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/status.h"

#include "pack/reader/pack.h"
#include "runtime/base/ids.h"

namespace hearth {

// `bytes` begin with the blob of `key`. DataLoss with both checksums and the remedy.
absl::Status CheckBlob(const ExpertFile& file, ExpertKey key, std::span<const std::byte> bytes);

// The error of one expert's bytes: with path, layer, expert and offset in front.
absl::Status ExpertError(const ExpertFile& file, ExpertKey key, const absl::Status& status);

}  // namespace hearth
