// See api_keys.h. SHA-256 and the comparison are OpenSSL's.
#include "runtime/serve/http/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint64_t kKeyFileBytesMax = 1 << 20;
constexpr std::string_view kScheme = "sha256$";

using Salt = std::array<uint8_t, 16>;
using Hash = std::array<uint8_t, 32>;

Hash HashOf(const Salt& salt, std::string_view key) {
  std::array<uint8_t, 16 + ApiKeys::kKeyBytesMax> input{};
  HEARTH_CHECK(key.size() <= ApiKeys::kKeyBytesMax);
  std::copy(salt.begin(), salt.end(), input.begin());
  std::copy(key.begin(), key.end(), input.begin() + 16);
  Hash hash{};
  unsigned int length = 0;
  HEARTH_CHECK(
      EVP_Digest(input.data(), 16 + key.size(), hash.data(), &length, EVP_sha256(), nullptr) == 1);
  OPENSSL_cleanse(input.data(), input.size());
  return hash;
}

std::string Hex(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const uint8_t byte : bytes) {
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
  return out;
}

template <size_t kBytes>
bool FromHex(std::string_view text, std::array<uint8_t, kBytes>& into) {
  if (text.size() != 2 * kBytes) return false;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
  };
  for (size_t i = 0; i < kBytes; ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    into[i] = static_cast<uint8_t>(high * 16 + low);
  }
  return true;
}

bool IsKeyName(std::string_view name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

absl::Status LineError(uint64_t line, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("line ", line, ": ", ToAbsl(what),
                   "; expected name:sha256$SALT$HASH as 'hearth serve --make-key NAME' prints it"));
}

}  // namespace

absl::StatusOr<ApiKeys> ApiKeys::Parse(std::string_view text) {
  ApiKeys made;
  for (uint64_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    const size_t colon = line.find(':');
    Key key{.name = std::string(line.substr(0, colon)), .salt = {}, .hash = {}};
    if (colon == std::string_view::npos || !IsKeyName(key.name))
      return LineError(number, "no name of 1 to 64 of a-z A-Z 0-9 . _ -");
    line.remove_prefix(colon + 1);
    if (line.substr(0, kScheme.size()) != kScheme)
      return LineError(number, "the key is not hashed with sha256");
    line.remove_prefix(kScheme.size());
    if (line.size() != 32 + 1 + 64 || line[32] != '$' || !FromHex(line.substr(0, 32), key.salt) ||
        !FromHex(line.substr(33), key.hash))
      return LineError(number, "salt and hash are not 32 and 64 lower-case hex digits");
    for (const Key& other : made.keys_) {
      if (other.name == key.name) return LineError(number, "the name is already used above");
    }
    if (made.keys_.size() == kKeyCountMax)
      return LineError(number, absl::StrCat("more than ", kKeyCountMax, " keys"));
    made.keys_.push_back(std::move(key));
  }
  if (made.keys_.empty())
    return absl::InvalidArgumentError(
        "no key in it; make one with 'hearth serve --make-key NAME' and add the line it prints");
  return made;
}

absl::StatusOr<ApiKeys> ApiKeys::Load(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("key file ", path));
  if ((info.st_mode & 022) != 0)
    return absl::FailedPreconditionError(absl::StrCat(
        "key file ", path, ": others may write it and so let themselves in; chmod go-w it"));
  absl::StatusOr<std::string> text = ReadFile(path, kKeyFileBytesMax);
  if (!text.ok()) return text.status();
  absl::StatusOr<ApiKeys> keys = Parse(*text);
  if (!keys.ok()) return Annotate(keys.status(), absl::StrCat("key file ", path));
  return keys;
}

std::optional<std::string_view> ApiKeys::Find(std::string_view presented) const {
  if (presented.size() > kKeyBytesMax) return std::nullopt;
  const Key* found = nullptr;
  for (const Key& key : keys_) {
    const Hash hash = HashOf(key.salt, presented);
    if (CRYPTO_memcmp(hash.data(), key.hash.data(), hash.size()) == 0) found = &key;
  }
  if (found == nullptr) return std::nullopt;
  return found->name;
}

absl::StatusOr<MadeApiKey> MakeApiKey(std::string_view name,
                                      std::span<const uint8_t, kApiKeyRandomBytes> random) {
  if (!IsKeyName(name))
    return absl::InvalidArgumentError("a key's name is 1 to 64 of a-z A-Z 0-9 . _ -");
  MadeApiKey made{.key = absl::StrCat("hearth-", Hex(random.first<32>())), .line = {}};
  Salt salt{};
  std::copy_n(random.begin() + 32, salt.size(), salt.begin());
  made.line =
      absl::StrCat(ToAbsl(name), ":", ToAbsl(kScheme), Hex(salt), "$", Hex(HashOf(salt, made.key)));
  return made;
}

absl::Status FillFromSystemRandom(std::span<uint8_t> into) {
  while (!into.empty()) {
    const ssize_t got = getrandom(into.data(), into.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "getrandom");
    into = into.subspan(static_cast<size_t>(got));
  }
  return absl::OkStatus();
}

}  // namespace hearth
