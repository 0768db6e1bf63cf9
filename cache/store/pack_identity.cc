#include "cache/store/pack_identity.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <span>
#include <vector>

#include "pack/format/content_hash.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"

namespace hearth {

absl::StatusOr<PackIdentity> PackIdentityOf(const Manifest& manifest, const ExpertFile& experts) {
  struct stat info;
  if (::fstat(experts.file().fd(), &info) != 0) return ErrnoStatus(errno, experts.file().path());
  std::vector<uint64_t> words;
  for (uint32_t l = 0; l < experts.layer_count(); ++l) {
    const ExpertLayout& layout = experts.layout(LayerId(l));
    words.push_back(static_cast<uint64_t>(layout.format));
    words.push_back(layout.blob_bytes());
    words.push_back(experts.offset_bytes({LayerId(l), ExpertId(0)}));
    for (uint32_t e = 0; e < experts.expert_count(); ++e) {
      words.push_back(experts.crc32c({LayerId(l), ExpertId(e)}));
    }
  }
  return PackIdentity{
      .path = experts.file().path(),
      .file_bytes = experts.file().bytes(),
      .modified_ns = int64_t{info.st_mtim.tv_sec} * 1'000'000'000 + info.st_mtim.tv_nsec,
      .manifest_hash = ContentHashHex(manifest.ToJson()),
      .directory_crc32c = Crc32c(std::as_bytes(std::span(words))),
      .layer_count = experts.layer_count(),
      .expert_count = experts.expert_count()};
}

}  // namespace hearth
