#include "cache/store/blob_check.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"

namespace hearth {

absl::Status CheckBlob(const ExpertFile& file, ExpertKey key, std::span<const std::byte> bytes) {
  const uint64_t blob_bytes = file.layout(key.layer).blob_bytes();
  const uint32_t found = Crc32c(bytes.first(blob_bytes));
  const uint32_t expected = file.crc32c(key);
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat(
      "checksum of its %d bytes is %08x, expected %08x; `hearth pack verify` lists all damage",
      blob_bytes, found, expected));
}

absl::Status ExpertError(const ExpertFile& file, ExpertKey key, const absl::Status& status) {
  return Annotate(status, absl::StrCat(file.file().path(), ": layer ", key.layer.value, " expert ",
                                       key.expert.value, " at ", file.offset_bytes(key)));
}

}  // namespace hearth
