// XXH3-128 over a stream of bytes: how a pack names whole files. The text form is 32 lower-case hex
// digits, high half first (the canonical form, as `xxhsum -H128` prints it).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace hearth {

class ContentHasher {
 public:
  ContentHasher();
  ContentHasher(ContentHasher&&) noexcept;
  ContentHasher& operator=(ContentHasher&&) noexcept;
  ~ContentHasher();

  void Update(std::span<const std::byte> data);
  void Update(std::string_view text);
  std::string HexDigest() const;  // of everything so far; more may follow

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string ContentHashHex(std::string_view text);

}  // namespace hearth
