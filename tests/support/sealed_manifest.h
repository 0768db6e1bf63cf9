// Puts any JSON fields between the head and the tail of manifest.json, with the right length and
// hash: what lies behind the manifest's own checksum can be tested. Written from pack/FORMAT.md.
#pragma once

#include <string>
#include <string_view>

#include "pack/format/content_hash.h"

namespace hearth {

// `fields`: what stands between the comma after manifest_bytes and the comma before the hash.
inline std::string SealManifest(std::string_view fields) {
  const std::string head = "{\n  \"format\": \"hearth-pack\",\n  \"manifest_bytes\": ";
  const std::string key = ",\n  \"manifest_xxh3_128\": \"";
  const std::string tail = "\"\n}\n";
  const size_t fixed = head.size() + 1 + fields.size() + key.size() + 32 + tail.size();
  size_t total = fixed;
  while (total != fixed + std::to_string(total).size())
    total = fixed + std::to_string(total).size();
  const std::string body = head + std::to_string(total) + "," + std::string(fields);
  return body + key + ContentHashHex(body) + tail;
}

// The fields of a sealed text, the inverse.
inline std::string_view FieldsOfManifest(std::string_view text) {
  const size_t begin = text.find(',', text.find("manifest_bytes")) + 1;
  const size_t end = text.rfind(",\n  \"manifest_xxh3_128\"");
  return text.substr(begin, end - begin);
}

}  // namespace hearth
