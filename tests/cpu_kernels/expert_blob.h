// Random routed experts for the kernel tests, made from the layout's description
// (pack/format/expert_layout.h) and from nothing that the kernels share.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "pack/format/expert_layout.h"
#include "pack/format/float_codes.h"
#include "runtime/base/prng.h"

namespace hearth {

// Codes by (projection, row, col) and their blob.
class ExpertBlob {
 public:
  ExpertBlob(ExpertFormat format, uint32_t hidden, uint32_t width)
      : layout_{format, hidden, width, {}}, bytes_(layout_.blob_bytes()) {}

  static ExpertBlob Random(Prng* prng, ExpertFormat format, uint32_t hidden, uint32_t width) {
    ExpertBlob blob(format, hidden, width);
    for (const Projection p : {Projection::kGate, Projection::kUp, Projection::kDown}) {
      const uint32_t rows = blob.layout_.rows(p);
      const uint32_t cols = blob.layout_.cols(p);
      for (uint32_t n = 0; n < rows; ++n) {
        for (uint32_t k = 0; k < cols; ++k) blob.SetCode(p, n, k, RandomCode(prng, format));
      }
      if (format == ExpertFormat::kNvfp4) {
        for (uint32_t n = 0; n < rows; ++n) {
          // Every code from 0, subnormal ones and 448 among them; 0x7F is NaN and no pack holds it.
          for (uint32_t b = 0; b < cols / 16; ++b) {
            blob.SetScaleCode(p, n, b, static_cast<uint8_t>(prng->Below(127)));
          }
        }
        blob.SetTrailer(p, 0, static_cast<float>(prng->Uniform()) * 0.01f);
      } else if (format == ExpertFormat::kFp8) {
        const uint32_t count = ((rows + 127) / 128) * ((cols + 127) / 128);
        for (uint32_t i = 0; i < count; ++i) {
          blob.SetTrailer(p, i, static_cast<float>(prng->Uniform()) * 0.1f);
        }
      }
    }
    return blob;
  }

  // An E2M1, BF16, E4M3 or fp32 code.
  void SetCode(Projection p, uint32_t n, uint32_t k, uint32_t code) {
    std::byte* band = Band(p, n);
    const uint32_t lane = n % 16;
    switch (layout_.format) {
      case ExpertFormat::kNvfp4: {
        std::byte& at = band[k / 16 * 128 + k % 16 / 8 * 64 + lane * 4 + k % 4];
        at = k % 8 < 4 ? (at & std::byte{0xF0}) | static_cast<std::byte>(code)
                       : (at & std::byte{0x0F}) | static_cast<std::byte>(code << 4);
        break;
      }
      case ExpertFormat::kBf16:
        std::memcpy(band + (size_t{k} * 16 + lane) * 2, &code, 2);
        break;
      case ExpertFormat::kFp8:
        std::memcpy(band + (size_t{k} * 16 + lane), &code, 1);
        break;
      case ExpertFormat::kF32:
        std::memcpy(band + (size_t{k} * 16 + lane) * 4, &code, 4);
        break;
      case ExpertFormat::kXt:  // its symbols hang together: xt_blob.h
        break;
    }
  }
  void SetScaleCode(Projection p, uint32_t n, uint32_t sub_block, uint8_t code) {
    Band(p, n)[size_t{layout_.cols(p)} * 8 + sub_block * 16 + n % 16] = std::byte{code};
  }
  void SetTrailer(Projection p, uint32_t index, float value) {
    std::memcpy(bytes_.data() + layout_.scale_offset_bytes(p) + index * 4, &value, 4);
  }

  const ExpertLayout& layout() const { return layout_; }
  const std::byte* data() const { return bytes_.data(); }

 private:
  static uint32_t RandomCode(Prng* prng, ExpertFormat format) {
    const auto value = static_cast<float>(prng->Uniform() * 2 - 1);
    switch (format) {
      case ExpertFormat::kNvfp4:
        return static_cast<uint32_t>(prng->Below(16));
      case ExpertFormat::kBf16:
        return prng->Below(8) == 0 ? 0x8000u : EncodeBf16(value);
      case ExpertFormat::kFp8: {  // NaN is rare, so that most outputs stay numbers
        const auto code = static_cast<uint32_t>(prng->Below(256));
        return (code & 0x7F) == 0x7F && prng->Below(64) != 0 ? 0x01u : code;
      }
      case ExpertFormat::kF32:
        return prng->Below(8) == 0 ? 0x80000000u : std::bit_cast<uint32_t>(value);
      case ExpertFormat::kXt:
        break;
    }
    return 0;
  }
  std::byte* Band(Projection p, uint32_t n) {
    return bytes_.data() + layout_.projection_offset_bytes(p) + n / 16 * layout_.band_bytes(p);
  }

  ExpertLayout layout_;
  std::vector<std::byte> bytes_;
};

}  // namespace hearth
