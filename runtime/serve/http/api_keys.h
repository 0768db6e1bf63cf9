// API keys, hashed at rest: a file with one key per line, and the question whether a presented key
// is one of them, which takes the same time whatever is presented.
//
//   # comment
//   name:sha256$<salt, 32 hex digits>$<SHA-256 of the salt's 16 bytes and the key, 64 hex digits>
//
// Keys are made by MakeApiKey (256 random bits), so one round of a plain hash is enough; keys that
// people think up have no place here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace hearth {

// Immutable: any number of threads may ask at once.
class ApiKeys {
 public:
  static constexpr uint32_t kKeyCountMax = 1024;
  static constexpr uint32_t kKeyBytesMax = 256;  // of a presented key

  // The text of a key file. InvalidArgument names the line and what is accepted, never its content.
  // No key at all is an error: a server that lets nobody in is a mistake.
  static absl::StatusOr<ApiKeys> Parse(std::string_view text);
  // Parse with the path in front of messages. A file that others may write (mode & 022) is
  // FailedPrecondition: it decides who gets in.
  static absl::StatusOr<ApiKeys> Load(const std::string& path);

  // The name of the key that `presented` is. Compares with every key, each in constant time.
  std::optional<std::string_view> Find(std::string_view presented) const;
  size_t count() const { return keys_.size(); }

 private:
  struct Key {
    std::string name;
    std::array<uint8_t, 16> salt;
    std::array<uint8_t, 32> hash;
  };
  std::vector<Key> keys_;
};

struct MadeApiKey {
  std::string key;   // "hearth-" and 64 hex digits: shown once, stored nowhere
  std::string line;  // for the key file, without a line end
};
inline constexpr size_t kApiKeyRandomBytes = 48;  // 32 for the key, 16 for the salt
// `name`: 1 to 64 of a-z A-Z 0-9 . _ -; InvalidArgument otherwise.
absl::StatusOr<MadeApiKey> MakeApiKey(std::string_view name,
                                      std::span<const uint8_t, kApiKeyRandomBytes> random);
// getrandom(2): what MakeApiKey is to be given outside tests.
absl::Status FillFromSystemRandom(std::span<uint8_t> into);

}  // namespace hearth
