#include "runtime/engine/prefix_binding.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

std::string Hex(const XXH128_hash_t& hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  return absl::BytesToHexString(
      {reinterpret_cast<const char*>(canonical.digest), sizeof(canonical.digest)});
}

}  // namespace

absl::StatusOr<std::string> HashProgram(const std::string& path) {
  HEARTH_ASSIGN_OR_RETURN(const RandomAccessFile file, RandomAccessFile::Open(path));
  std::vector<std::byte> piece(std::min<uint64_t>(file.bytes(), 1_MiB));
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  for (uint64_t at = 0; at < file.bytes(); at += piece.size()) {
    const auto part = std::span(piece).first(std::min<uint64_t>(piece.size(), file.bytes() - at));
    HEARTH_RETURN_IF_ERROR(file.ReadAt(at, part));
    XXH3_128bits_update(&state, part.data(), part.size());
  }
  return Hex(XXH3_128bits_digest(&state));
}

std::string PrefixBindingText(const Manifest& manifest, const RunnerOptions& options,
                              std::string_view isa, std::string_view program_hash) {
  const std::string json = manifest.ToJson();
  std::string text = absl::StrCat(
      "pack ", Hex(XXH3_128bits(json.data(), json.size())), "\nprogram ", ToAbsl(program_hash),
      "\narithmetic ", options.arithmetic == Arithmetic::kFast ? "fast" : "reference",
      "\nprompt rows ", options.limits.prompt_rows_max, "\nwindow rows ",
      options.limits.window_rows_max, "\ncpu ", ToAbsl(isa), "\n");
  if (options.gpu) {
    absl::StrAppend(&text, "card ", options.gpu->name, " ", options.gpu->sm, " ",
                    options.gpu->limits.multiprocessor_count, "\nkv ",
                    options.kv_format == KvFormat::kBf16 ? "bf16" : "int8", "\n");
  }
  return text;
}

}  // namespace hearth
