// Random routed experts in XT for the kernel tests: every byte of codes is valid.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "pack/format/expert_layout.h"
#include "pack/format/float_codes.h"
#include "runtime/base/prng.h"

namespace hearth {

class XtBlob {
 public:
  static XtBlob Random(Prng* prng, uint32_t hidden, uint32_t width, XtBits bits) {
    XtBlob blob;
    blob.layout_ = *ExpertLayout::Create(ExpertFormat::kXt, hidden, width, bits);
    blob.bytes_.resize(blob.layout_.blob_bytes());
    for (const Projection p : kProjections) {
      const uint64_t offset = blob.layout_.projection_offset_bytes(p);
      const XtShape shape = blob.layout_.xt_shape(p);
      for (uint64_t i = 0; i < shape.code_bytes(); ++i) {
        blob.bytes_[offset + i] = static_cast<std::byte>(prng->Below(256));
      }
      for (uint32_t row = 0; row < shape.rows; ++row) {
        // Subnormal ones and zeros among them.
        const auto scale = static_cast<float>(prng->Uniform()) *
                           (row % 7 == 3 ? 1e-6f : (row % 11 == 5 ? 0.0f : 0.1f));
        blob.SetRowScale(p, row, scale);
      }
      blob.SetMultiplier(p, static_cast<float>(prng->Uniform()) * 0.01f);
    }
    return blob;
  }

  void SetRowScale(Projection p, uint32_t row, float scale) {
    const uint16_t code = EncodeFp16(scale);
    std::memcpy(bytes_.data() + layout_.projection_offset_bytes(p) +
                    layout_.xt_shape(p).scale_offset_bytes() + size_t{row} * 2,
                &code, sizeof(code));
  }
  void SetMultiplier(Projection p, float value) {
    std::memcpy(bytes_.data() + layout_.scale_offset_bytes(p), &value, sizeof(value));
  }
  void FillCodes(Projection p, std::byte value) {
    std::memset(bytes_.data() + layout_.projection_offset_bytes(p), std::to_integer<int>(value),
                layout_.xt_shape(p).code_bytes());
  }

  const ExpertLayout& layout() const { return layout_; }
  const std::byte* data() const { return bytes_.data(); }

 private:
  ExpertLayout layout_;
  std::vector<std::byte> bytes_;
};

}  // namespace hearth
