// Any bytes as manifest.json, and any bytes as the fields of one whose length and hash are right:
// refused with a Status, or the manifest's own text reads back as the same manifest.
#include <cstdint>
#include <string>
#include <string_view>

#include "pack/format/manifest.h"
#include "runtime/base/check.h"
#include "tests/support/sealed_manifest.h"

namespace {

void TryText(std::string_view text) {
  const auto manifest = hearth::Manifest::FromJson(text, "fuzz.json");
  if (!manifest.ok()) return;
  HEARTH_CHECK(manifest->geometry.Validate().ok());
  const std::string written = manifest->ToJson();
  const auto again = hearth::Manifest::FromJson(written, "fuzz.json");
  HEARTH_CHECK(again.ok());
  HEARTH_CHECK(again->ToJson() == written);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  TryText(input);
  TryText(hearth::SealManifest(input));
  return 0;
}
