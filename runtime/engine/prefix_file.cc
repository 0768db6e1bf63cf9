#include "runtime/engine/prefix_file.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "absl/strings/str_cat.h"

#include "runtime/base/load.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr std::string_view kMagic = "HEARTHPX";
constexpr uint32_t kVersion = 1;
constexpr size_t kSaltOffsetBytes = 104;
constexpr size_t kSpanHeadBytes = 32;
constexpr size_t kSealBytes = 8;

class HeaderWriter {
 public:
  template <class T>
  void Put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    text_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  template <class T>
  void PutAll(const std::vector<T>& values) {
    text_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
  void PutText(std::string_view text) { text_.append(text); }
  void PadTo(uint64_t multiple) { text_.resize(AlignUp(text_.size(), multiple), '\0'); }
  std::string& text() { return text_; }

 private:
  std::string text_;
};

// Stays at the end once something is missing; ok() tells.
class HeaderReader {
 public:
  explicit HeaderReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <class T>
  T Get() {
    const std::span<const std::byte> from = Take(sizeof(T));
    return from.empty() ? T{} : Load<T>(from.data());
  }
  template <class T>
  std::vector<T> GetAll(uint64_t count) {
    const std::span<const std::byte> from = Take(count * sizeof(T));
    std::vector<T> values(from.size() / sizeof(T));
    if (!from.empty()) std::memcpy(values.data(), from.data(), from.size());
    return values;
  }
  std::string GetText(uint64_t bytes) {
    const std::span<const std::byte> from = Take(bytes);
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }
  void Align(uint64_t multiple) { (void)Take(AlignUp(at_, multiple) - at_); }
  bool ok() const { return ok_; }

 private:
  std::span<const std::byte> Take(uint64_t bytes) {
    if (bytes > bytes_.size() - at_) {
      ok_ = false;
      at_ = bytes_.size();
      return {};
    }
    at_ += bytes;
    return bytes_.subspan(at_ - bytes, bytes);
  }
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

std::span<const std::byte> BytesOf(std::string_view text) { return std::as_bytes(std::span(text)); }

uint64_t HeaderBytes(const PrefixFileHeader& h) {
  uint64_t bytes = kSaltOffsetBytes + AlignUp(h.salt.size(), 8) + kSealBytes;
  for (const PrefixFileSpan& s : h.spans) {
    bytes += kSpanHeadBytes + AlignUp((s.tokens.size() + s.cuts.size()) * 4, 8);
  }
  return AlignUp(bytes, kPrefixFileAlignBytes);
}

// Parts follow the header in order; returns the file's length.
uint64_t PlaceParts(PrefixFileHeader& h, uint64_t header_bytes) {
  uint64_t at = header_bytes;
  const auto place = [&at](PrefixPart& part) {
    part.offset_bytes = at;
    at += AlignUp(part.bytes, kPrefixFileAlignBytes);
  };
  place(h.fixed);
  for (PrefixFileSpan& s : h.spans) place(s.part);
  return at;
}

absl::Status Damaged(const std::string& path, std::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": not an intact image: ", ToAbsl(what)));
}

bool SpanIsSound(const PrefixFileSpan& s) {
  uint32_t last = s.range.begin;
  for (const uint32_t cut : s.cuts) {
    if (cut <= last) return false;
    last = cut;
  }
  return !s.tokens.empty() && !s.cuts.empty() && last == s.range.end &&
         s.range.draft_begin <= s.range.draft_end && s.range.draft_end < s.range.end;
}

// Everything behind the first 40 bytes and before the seal.
absl::StatusOr<PrefixFileHeader> Decode(std::span<const std::byte> bytes, const std::string& path) {
  HeaderReader reader(bytes.first(bytes.size() - kSealBytes));
  PrefixFileHeader h;
  (void)reader.GetText(16);  // magic, version, header bytes
  h.file_bytes = reader.Get<uint64_t>();
  h.binding = reader.Get<PrefixBinding>();
  h.number = reader.Get<uint64_t>();
  h.parent_number = reader.Get<uint64_t>();
  h.parent_seal = reader.Get<uint64_t>();
  uint64_t token_at = reader.Get<uint32_t>();
  uint32_t draft_at = reader.Get<uint32_t>();
  h.draft_count = reader.Get<uint32_t>();
  const auto span_count = reader.Get<uint32_t>();
  const auto salt_bytes = reader.Get<uint32_t>();
  (void)reader.Get<uint32_t>();
  h.fixed.bytes = reader.Get<uint64_t>();
  h.fixed.xxh3 = reader.Get<uint64_t>();
  h.salt = reader.GetText(salt_bytes);
  reader.Align(8);
  for (uint32_t i = 0; i < span_count && reader.ok(); ++i) {
    PrefixFileSpan s;
    const auto token_count = reader.Get<uint32_t>();
    const auto cut_count = reader.Get<uint32_t>();
    s.range = {.begin = static_cast<uint32_t>(token_at),
               .end = static_cast<uint32_t>(token_at + token_count),
               .draft_begin = draft_at,
               .draft_end = reader.Get<uint32_t>()};
    (void)reader.Get<uint32_t>();
    s.part.bytes = reader.Get<uint64_t>();
    s.part.xxh3 = reader.Get<uint64_t>();
    s.tokens = reader.GetAll<TokenId>(token_count);
    s.cuts = reader.GetAll<uint32_t>(cut_count);
    reader.Align(8);
    token_at += token_count;
    draft_at = s.range.draft_end;
    if (reader.ok() && (token_at > UINT32_MAX || !SpanIsSound(s))) {
      return Damaged(path, "a span that cannot be");
    }
    h.spans.push_back(std::move(s));
  }
  if (!reader.ok() || h.spans.empty()) return Damaged(path, "its header is cut");
  if (h.draft_count != 0 && h.draft_count + 1 != h.token_end()) {
    return Damaged(path, "its rows of the MTP layer do not fit its tokens");
  }
  return h;
}

}  // namespace

PrefixBinding HashPrefixBinding(std::string_view text) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(text.data(), text.size()));
  PrefixBinding binding;
  static_assert(sizeof(canonical) == sizeof(binding));
  std::memcpy(binding.data(), &canonical, sizeof(binding));
  return binding;
}

uint64_t PrefixPartHash(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string EncodePrefixHeader(PrefixFileHeader& h) {
  const uint64_t header_bytes = HeaderBytes(h);
  h.file_bytes = PlaceParts(h, header_bytes);
  HeaderWriter writer;
  writer.PutText(kMagic);
  writer.Put(kVersion);
  writer.Put(static_cast<uint32_t>(header_bytes));
  writer.Put(h.file_bytes);
  writer.Put(h.binding);
  writer.Put(h.number);
  writer.Put(h.parent_number);
  writer.Put(h.parent_seal);
  writer.Put(h.token_begin());
  writer.Put(h.spans.front().range.draft_begin);
  writer.Put(h.draft_count);
  writer.Put(static_cast<uint32_t>(h.spans.size()));
  writer.Put(static_cast<uint32_t>(h.salt.size()));
  writer.Put(uint32_t{0});
  writer.Put(h.fixed.bytes);
  writer.Put(h.fixed.xxh3);
  writer.PutText(h.salt);
  writer.PadTo(8);
  for (const PrefixFileSpan& s : h.spans) {
    writer.Put(static_cast<uint32_t>(s.tokens.size()));
    writer.Put(static_cast<uint32_t>(s.cuts.size()));
    writer.Put(s.range.draft_end);
    writer.Put(uint32_t{0});
    writer.Put(s.part.bytes);
    writer.Put(s.part.xxh3);
    writer.PutAll(s.tokens);
    writer.PutAll(s.cuts);
    writer.PadTo(8);
  }
  std::string& text = writer.text();
  text.resize(header_bytes - kSealBytes, '\0');
  h.seal = PrefixPartHash(BytesOf(text));
  writer.Put(h.seal);
  return std::move(text);
}

absl::StatusOr<PrefixFileHeader> ReadPrefixHeader(const RandomAccessFile& file) {
  const std::string& path = file.path();
  if (file.bytes() < kPrefixFileAlignBytes) return Damaged(path, "it is too short");
  std::vector<std::byte> bytes(kPrefixFileAlignBytes);
  HEARTH_RETURN_IF_ERROR(file.ReadAt(0, bytes));
  if (!std::ranges::equal(std::span(bytes).first(kMagic.size()), BytesOf(kMagic))) {
    return Damaged(path, "it begins as none");
  }
  const auto version = Load<uint32_t>(bytes.data() + 8);
  if (version != kVersion) {
    return Damaged(path, absl::StrCat("version ", version, ", expected ", kVersion));
  }
  const uint64_t header_bytes = Load<uint32_t>(bytes.data() + 12);
  if (header_bytes % kPrefixFileAlignBytes != 0 || header_bytes == 0 ||
      header_bytes > kPrefixHeaderBytesMax || header_bytes > file.bytes()) {
    return Damaged(path, absl::StrCat("a header of ", header_bytes, " bytes"));
  }
  bytes.resize(header_bytes);
  HEARTH_RETURN_IF_ERROR(file.ReadAt(0, bytes));
  const auto seal = Load<uint64_t>(bytes.data() + header_bytes - kSealBytes);
  if (PrefixPartHash(std::span(bytes).first(header_bytes - kSealBytes)) != seal) {
    return Damaged(path, "its header's hash is another");
  }
  HEARTH_ASSIGN_OR_RETURN(PrefixFileHeader header, Decode(bytes, path));
  header.seal = seal;
  const uint64_t told_bytes = header.file_bytes;
  if (PlaceParts(header, header_bytes) != told_bytes || told_bytes != file.bytes()) {
    return Damaged(path, absl::StrCat(file.bytes(), " bytes, expected ", told_bytes));
  }
  return header;
}

}  // namespace hearth
