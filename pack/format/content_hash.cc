#include "pack/format/content_hash.h"

#include <xxhash.h>

#include <new>

#include "runtime/base/check.h"

namespace hearth {
namespace {

std::string ToHex(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

}  // namespace

struct ContentHasher::State {
  State() : xxh(XXH3_createState()) {
    HEARTH_CHECK(xxh != nullptr);
    HEARTH_CHECK(XXH3_128bits_reset(xxh) == XXH_OK);
  }
  ~State() { XXH3_freeState(xxh); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  XXH3_state_t* xxh;
};

ContentHasher::ContentHasher() : state_(std::make_unique<State>()) {}
ContentHasher::ContentHasher(ContentHasher&&) noexcept = default;
ContentHasher& ContentHasher::operator=(ContentHasher&&) noexcept = default;
ContentHasher::~ContentHasher() = default;

void ContentHasher::Update(std::span<const std::byte> data) {
  HEARTH_CHECK(XXH3_128bits_update(state_->xxh, data.data(), data.size()) == XXH_OK);
}

void ContentHasher::Update(std::string_view text) { Update(std::as_bytes(std::span(text))); }

std::string ContentHasher::HexDigest() const { return ToHex(XXH3_128bits_digest(state_->xxh)); }

std::string ContentHashHex(std::string_view text) {
  return ToHex(XXH3_128bits(text.data(), text.size()));
}

}  // namespace hearth
