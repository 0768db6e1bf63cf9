// Reading and writing the bytes of messages: little-endian, in order, every read checked.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace hearth {

static_assert(std::endian::native == std::endian::little);

class WireWriter {
 public:
  explicit WireWriter(std::vector<std::byte>& out) : out_(out) {}

  template <class T>
  void Put(T value) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    const size_t at = out_.size();
    out_.resize(at + sizeof(T));
    std::memcpy(&out_[at], &value, sizeof(T));
  }
  // A text of at most 65,535 bytes: its length as u16, then the bytes. A longer one is cut.
  void PutText(std::string_view text) {
    text = text.substr(0, UINT16_MAX);
    Put(static_cast<uint16_t>(text.size()));
    const auto bytes = std::as_bytes(std::span(text));
    out_.insert(out_.end(), bytes.begin(), bytes.end());
  }

 private:
  std::vector<std::byte>& out_;
};

// Once a read does not fit, every later one yields zero: ask ok() or complete() at the end.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
  T Get() {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    T value{};
    if (!Has(sizeof(T))) return value;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  std::string GetText(size_t bytes_max) {
    const size_t length = Get<uint16_t>();
    if (length > bytes_max) ok_ = false;
    if (!Has(length)) return {};
    std::string text(reinterpret_cast<const char*>(bytes_.data()), length);
    bytes_ = bytes_.subspan(length);
    return text;
  }
  size_t left_bytes() const { return bytes_.size(); }
  bool ok() const { return ok_; }
  bool complete() const { return ok_ && bytes_.empty(); }

 private:
  bool Has(size_t bytes) {
    ok_ = ok_ && bytes_.size() >= bytes;
    return ok_;
  }
  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace hearth
