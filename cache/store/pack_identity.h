// What engine and daemon compare before they share experts: that both opened the same bytes.
#pragma once

#include "absl/status/statusor.h"

#include "cache/protocol/messages.h"
#include "pack/reader/pack.h"

namespace hearth {

// Reads no data: the manifest has the hash of every file, and the directory of the experts the
// checksum of each.
absl::StatusOr<PackIdentity> PackIdentityOf(const Manifest& manifest, const ExpertFile& experts);

}  // namespace hearth
