// The bytes of every token, by id, in one block.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/ids.h"

namespace hearth {

class TokenTable {
 public:
  void Reserve(uint32_t token_count, uint64_t bytes) {
    begin_.reserve(token_count + 1);
    bytes_.reserve(bytes);
  }
  // The next id's bytes.
  void Append(std::string_view token) {
    bytes_.insert(bytes_.end(), token.begin(), token.end());
    begin_.push_back(bytes_.size());
  }
  uint32_t token_count() const { return static_cast<uint32_t>(begin_.size() - 1); }
  // Valid while the table lives, also after it moved.
  std::string_view operator[](TokenId id) const {
    HEARTH_DCHECK(id >= 0 && static_cast<uint32_t>(id) < token_count());
    const uint64_t begin = begin_[static_cast<uint32_t>(id)];
    return {bytes_.data() + begin, begin_[static_cast<uint32_t>(id) + 1] - begin};
  }

 private:
  std::vector<char> bytes_;
  std::vector<uint64_t> begin_{0};  // token_count + 1 offsets into bytes_
};

}  // namespace hearth
