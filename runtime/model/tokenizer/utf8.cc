// UTF-8 stepping by the table of well-formed byte sequences (Unicode 15.0, table 3-7).
#include "runtime/model/tokenizer/utf8.h"

#include <cstring>

namespace hearth {
namespace {

// What a lead byte asks for: the whole length and the range of the second byte.
struct Lead {
  uint32_t length_bytes;  // 0: no character begins with this byte
  uint8_t second_min;
  uint8_t second_max;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};  // continuation bytes and overlong forms
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};  // below A0: overlong
  if (byte == 0xED) return {3, 0x80, 0x9F};  // above 9F: surrogates
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};  // below 90: overlong
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};  // above 8F: beyond U+10FFFF
  return {0, 0, 0};
}

// The length of the ASCII run at the front of `bytes`.
size_t AsciiRun(std::string_view bytes) {
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, sizeof(word));
    if ((word & 0x8080808080808080ull) != 0) break;
  }
  while (i < bytes.size() && static_cast<uint8_t>(bytes[i]) < 0x80) ++i;
  return i;
}

}  // namespace

Utf8Step NextUtf8(std::string_view bytes) {
  const Lead lead = LeadOf(static_cast<uint8_t>(bytes[0]));
  if (lead.length_bytes == 0) return {Utf8Step::Kind::kBroken, 1};
  for (uint32_t i = 1; i < lead.length_bytes; ++i) {
    if (i >= bytes.size()) return {Utf8Step::Kind::kIncomplete, i};
    const uint8_t byte = static_cast<uint8_t>(bytes[i]);
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (byte < low || byte > high) return {Utf8Step::Kind::kBroken, i};
  }
  return {Utf8Step::Kind::kCharacter, lead.length_bytes};
}

char32_t CodePointAt(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<uint8_t>(text[i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return lead;
  if (lead < 0xE0) return (lead & 0x1F) << 6 | (byte(1) & 0x3F);
  if (lead < 0xF0) return (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
  return (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
}

void AppendUtf8(char32_t code_point, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return put(code_point);
  if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
  }
  put(0x80 | (code_point & 0x3F));
}

bool IsValidUtf8(std::string_view bytes) {
  while (true) {
    bytes.remove_prefix(AsciiRun(bytes));
    if (bytes.empty()) return true;
    const Utf8Step step = NextUtf8(bytes);
    if (step.kind != Utf8Step::Kind::kCharacter) return false;
    bytes.remove_prefix(step.length_bytes);
  }
}

void AppendReplacingBroken(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    size_t good_bytes = AsciiRun(bytes);
    Utf8Step step{Utf8Step::Kind::kCharacter, 0};
    while (good_bytes < bytes.size()) {
      step = NextUtf8(bytes.substr(good_bytes));
      if (step.kind != Utf8Step::Kind::kCharacter) break;
      good_bytes += step.length_bytes;
    }
    out.append(bytes.substr(0, good_bytes));
    bytes.remove_prefix(good_bytes);
    if (bytes.empty()) return;
    out.append(kReplacementCharacter);
    bytes.remove_prefix(step.length_bytes);
  }
}

}  // namespace hearth
