// One routed expert: the definition. Contract: cpu_kernels/ops/expert.h; layouts:
// pack/format/expert_layout.h.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "cpu_kernels/scalar/exp.h"
#include "cpu_kernels/scalar/expert_xt.h"
#include "cpu_kernels/scalar/kernels.h"
#include "pack/format/float_codes.h"
#include "runtime/base/load.h"

namespace hearth::scalar {
namespace {

// Row `lane` of band `band` of one projection.
struct WeightRow {
  ExpertFormat format;
  uint32_t cols;
  uint32_t lane;
  const std::byte* band;  // its first byte
  const std::byte* grid;  // kFp8: the fp32 scales of the row, one for each 128 columns
  float multiplier;       // kNvfp4

  static WeightRow Of(const ExpertLayout& layout, const std::byte* blob, Projection p,
                      uint32_t band, uint32_t lane) {
    WeightRow row = {layout.format, layout.cols(p), lane, nullptr, nullptr, 1.0f};
    row.band = blob + layout.projection_offset_bytes(p) + band * layout.band_bytes(p);
    if (layout.format == ExpertFormat::kNvfp4) {
      row.multiplier = Load<float>(blob + layout.scale_offset_bytes(p));
    } else if (layout.format == ExpertFormat::kFp8) {
      const size_t grid_cols = (row.cols + kFp8BlockValues - 1) / kFp8BlockValues;
      const size_t grid_row = (size_t{band} * kBandRows + lane) / kFp8BlockValues;
      row.grid = blob + layout.scale_offset_bytes(p) + grid_row * grid_cols * 4;
    }
    return row;
  }
};

uint8_t Nvfp4Code(const WeightRow& row, size_t k) {
  const size_t in_block = k % kNvfp4BlockValues;
  const size_t line = k / kNvfp4BlockValues * 2 + in_block / 8;
  const auto byte =
      std::to_integer<uint8_t>(row.band[line * 64 + size_t{row.lane} * 4 + in_block % 4]);
  return in_block % 8 < 4 ? byte & 15 : byte >> 4;
}

float Nvfp4Scale(const WeightRow& row, size_t block) {
  const std::byte* scales = row.band + size_t{row.cols} * kBandRows / 2;
  return DecodeE4m3(std::to_integer<uint8_t>(scales[block * kBandRows + row.lane]));
}

// The fp32 weight of the formats other than NVFP4.
float WideWeight(const WeightRow& row, size_t k) {
  const size_t index = k * kBandRows + row.lane;
  switch (row.format) {
    case ExpertFormat::kBf16:
      return DecodeBf16(Load<uint16_t>(row.band + index * 2));
    case ExpertFormat::kF32:
      return Load<float>(row.band + index * 4);
    case ExpertFormat::kFp8:
      return DecodeE4m3(std::to_integer<uint8_t>(row.band[index])) *
             Load<float>(row.grid + k / kFp8BlockValues * 4);
    case ExpertFormat::kNvfp4:
    case ExpertFormat::kXt:
      break;
  }
  return 0;
}

// Sums segment(begin, end) over the segments of [0, cols) in order.
template <class Segment>
float SumSegments(uint32_t cols, const Segment& segment) {
  float total = segment(0, std::min(cols, kSegmentValues));
  for (uint32_t begin = kSegmentValues; begin < cols; begin += kSegmentValues) {
    total += segment(begin, std::min(cols, begin + kSegmentValues));
  }
  return total;
}

float DotNvfp4(const WeightRow& row, const int8_t* q, const float* x_scale) {
  const auto segment = [&](uint32_t begin, uint32_t end) {
    float acc = 0;
    for (size_t first = begin; first < end; first += kNvfp4BlockValues) {
      int32_t dot = 0;
      for (size_t k = first; k < first + kNvfp4BlockValues; ++k) {
        dot += kE2m1Doubled[Nvfp4Code(row, k)] * q[k];
      }
      const float w_scale = Nvfp4Scale(row, first / kNvfp4BlockValues) * 0.5f;
      acc =
          std::fma(x_scale[first / kActivationBlockValues] * w_scale, static_cast<float>(dot), acc);
    }
    return acc;
  };
  return SumSegments(row.cols, segment) * row.multiplier;
}

float DotWide(const WeightRow& row, const float* x) {
  return SumSegments(row.cols, [&](uint32_t begin, uint32_t end) {
    float acc = 0;
    for (size_t k = begin; k < end; ++k) acc = std::fma(WideWeight(row, k), x[k], acc);
    return acc;
  });
}

// Activation row t in the form that the blob's format reads.
float Dot(const WeightRow& row, const QuantizedRows& xq, const float* x, size_t x_stride,
          size_t t) {
  if (row.format != ExpertFormat::kNvfp4) return DotWide(row, x + t * x_stride);
  const size_t blocks = ActivationBlocks(row.cols);
  return DotNvfp4(row, xq.q + t * blocks * kActivationBlockValues, xq.scale + t * blocks);
}

}  // namespace

void ExpertGateUp(const ExpertGateUpArgs& args) {
  if (args.layout->format == ExpertFormat::kXt) return GateUpXt(args);
  for (uint32_t band = args.band_begin; band < args.band_end; ++band) {
    const uint32_t lanes = std::min(kBandRows, args.layout->width - band * kBandRows);
    for (size_t t = 0; t < args.rows; ++t) {
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        const WeightRow gate =
            WeightRow::Of(*args.layout, args.blob, Projection::kGate, band, lane);
        const WeightRow up = WeightRow::Of(*args.layout, args.blob, Projection::kUp, band, lane);
        args.h[t * args.h_stride + size_t{band} * kBandRows + lane] =
            SiluOf(Dot(gate, args.xq, args.x, args.x_stride, t)) *
            Dot(up, args.xq, args.x, args.x_stride, t);
      }
    }
  }
}

void ExpertDown(const ExpertDownArgs& args) {
  if (args.layout->format == ExpertFormat::kXt) return DownXt(args);
  for (uint32_t band = args.band_begin; band < args.band_end; ++band) {
    const uint32_t lanes = std::min(kBandRows, args.layout->hidden - band * kBandRows);
    for (size_t t = 0; t < args.rows; ++t) {
      for (uint32_t lane = 0; lane < lanes; ++lane) {
        const WeightRow down =
            WeightRow::Of(*args.layout, args.blob, Projection::kDown, band, lane);
        args.y[t * args.y_stride + size_t{band} * kBandRows + lane] =
            Dot(down, args.hq, args.h, args.h_stride, t);
      }
    }
  }
}

void DecodeExpert(const DecodeExpertArgs& args) {
  if (args.layout->format == ExpertFormat::kXt) return DecodeXt(args);
  const ExpertLayout f32 = {ExpertFormat::kF32, args.layout->hidden, args.layout->width};
  for (const Projection p : {Projection::kGate, Projection::kUp, Projection::kDown}) {
    const uint32_t cols = args.layout->cols(p);
    for (uint32_t band = 0; band < BandCount(args.layout->rows(p)); ++band) {
      std::byte* out = args.f32_blob + f32.projection_offset_bytes(p) + band * f32.band_bytes(p);
      for (uint32_t lane = 0; lane < kBandRows; ++lane) {
        const WeightRow row = WeightRow::Of(*args.layout, args.blob, p, band, lane);
        const bool padding = band * kBandRows + lane >= args.layout->rows(p);
        const bool nvfp4 = args.layout->format == ExpertFormat::kNvfp4;
        for (size_t k = 0; k < cols; ++k) {
          const float w = padding ? 0.0f
                          : nvfp4 ? DecodeE2m1(Nvfp4Code(row, k)) *
                                        Nvfp4Scale(row, k / kNvfp4BlockValues) * row.multiplier
                                  : WideWeight(row, k);
          std::memcpy(out + (k * kBandRows + lane) * 4, &w, sizeof(w));
        }
      }
    }
  }
}

}  // namespace hearth::scalar
