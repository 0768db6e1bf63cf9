#include "pack/synth/synthetic_dense.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <string_view>

#include "pack/convert/build_pack.h"
#include "pack/format/float_codes.h"
#include "pack/reader/pack_geometry.h"
#include "pack/synth/random_words.h"
#include "pack/synth/synthetic_texts.h"

namespace hearth {
namespace {

constexpr float kSqrt3 = 1.7320508f;  // half the range of an even distribution of deviation 1

// Which experts are chosen, and how that changes from token to token, follows from a few sizes:
// - Routers are random, with rows whose norms fall with the expert's place in a random order of its
//   layer, norm ~ place^-e. e is such that the first 40% of the places get kHotShare of the traffic
//   of inputs without any direction in common; real ones have some, which adds to it.
// - The delta rule carries what tokens share with those before them. Convolutions with a positive
//   mean smooth its inputs, and give keys and queries, which silu makes positive, a common
//   direction: its state is a moving average. Its rates differ between heads, and its output weighs
//   more than that of anything that knows the present token only.
constexpr float kRouterGain = 3.0f;
constexpr double kHotExperts = 0.4;
constexpr double kHotShare = 0.78;
constexpr float kConvolutionMean = 0.35f;
constexpr float kConvolutionDeviation = 0.2f;
// Factor of the convolutions over values of the delta rule: silu of small numbers is nearly odd, so
// that what the state averages has hardly a constant part. Its norm takes the factor out again.
constexpr float kQuiet = 0.2f;

std::string_view LastPart(std::string_view name) {
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

bool IsOneOf(std::string_view part, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), part) != names.end();
}

// Deviation of a matrix's values times the square root of its columns.
float GainOf(std::string_view part) {
  if (part == "gate") return kRouterGain;
  if (part == "input_mix_weight_down") return 4;  // its output is divided by the stream count
  if (part == "lm_head" || part == "out_proj") return 4;
  if (part == "in_proj_b") return 8;  // write strengths from 0.02 to 0.98
  if (part == "in_proj_a" || part == "value_proj") return 0.5f;
  if (IsOneOf(part, {"block_inject_weight", "shared_expert_gate", "key_proj", "down_proj"})) {
    return 1;
  }
  return 2;
}

// The z that a normal number passes with this probability; 0 from one half on.
double NormalThreshold(double probability) {
  double low = 0;
  double high = 8;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (std::erfc(middle / std::sqrt(2.0)) / 2 > probability ? low : high) = middle;
  }
  return low;
}

// The e above. An expert is chosen when its logit passes a threshold, so with a norm in inverse
// proportion to the z of its chance; places 0.2 and 0.7 stand for the hot and the cold experts.
double RouterExponent(const MoeGeometry& moe) {
  const double chance = static_cast<double>(moe.experts_per_token) / moe.expert_count;
  const double hot = std::max(NormalThreshold(chance * kHotShare / kHotExperts), 0.2);
  const double cold = std::max(NormalThreshold(chance * (1 - kHotShare) / (1 - kHotExperts)), hot);
  return std::log(cold / hot) / std::log(0.7 / 0.2);
}

// Norms of a router's rows, as factors whose mean square is 1.
std::vector<float> RouterNorms(const MoeGeometry& moe, uint64_t stream) {
  const uint32_t count = moe.expert_count;
  const double exponent = RouterExponent(moe);
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 1u);
  Prng prng(stream);
  for (uint32_t i = count; i > 1; --i) std::swap(order[i - 1], order[prng.Below(i)]);
  std::vector<float> norms;
  double squares = 0;
  for (const uint32_t place : order) {
    norms.push_back(static_cast<float>(std::pow(static_cast<double>(place) / count, -exponent)));
    squares += static_cast<double>(norms.back()) * norms.back();
  }
  const auto scale = static_cast<float>(std::sqrt(count / squares));
  for (float& norm : norms) norm *= scale;
  return norms;
}

std::vector<TensorInfo> WithFormats(std::span<const TensorShape> shapes) {
  std::vector<TensorInfo> tensors;
  for (const TensorShape& shape : shapes) {
    const DenseInfo source{.name = shape.name, .rows = shape.rows, .cols = shape.cols};
    const std::string_view part = LastPart(shape.name);
    MatrixFormat format = MatrixFormat::kBf16;
    if (part == "conv1d" || (shape.rows == 1 && part != "shared_expert_gate")) {
      format = MatrixFormat::kF32;
    } else if (Q8TakesTensor(source)) {
      format = MatrixFormat::kQ8;
    }
    tensors.push_back(
        {.name = shape.name, .format = format, .rows = shape.rows, .cols = shape.cols});
  }
  return tensors;
}

// A number with mean 0 and deviation 1 for a word: its top 16 bits, evenly spread.
float EvenFloat(uint64_t word) {
  const auto bits = static_cast<int16_t>(word >> 48);
  return (static_cast<float>(bits) + 0.5f) * (kSqrt3 * 0x1p-15f);
}

}  // namespace

std::vector<TensorInfo> SyntheticDenseTensors(const ModelGeometry& geometry) {
  return WithFormats(ExpectedDenseTensors(geometry));
}

std::vector<TensorInfo> SyntheticMtpTensors(const ModelGeometry& geometry) {
  return WithFormats(ExpectedMtpTensors(geometry));
}

std::vector<SyntheticRange> SyntheticRanges(std::span<const TensorInfo> tensors) {
  std::vector<SyntheticRange> ranges;
  for (uint32_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& t = tensors[i];
    const uint64_t band_bytes = MatrixBytes(t.format, kBandRows, t.cols);
    const auto step = static_cast<uint32_t>(
        std::clamp<uint64_t>(kSyntheticRangeBytes / band_bytes, 1, 1u << 20) * kBandRows);
    for (uint32_t row = 0; row < t.rows; row += step) {
      ranges.push_back({.tensor = i, .row_begin = row, .row_count = std::min(step, t.rows - row)});
    }
  }
  return ranges;
}

SyntheticTensor::SyntheticTensor(const ModelGeometry& geometry, const TensorInfo& info,
                                 uint64_t seed)
    : info_(info), stream_(RandomStream(seed, info.name)) {
  const std::string_view part = LastPart(info.name);
  if (part == "A_log") {
    is_decay_ = true;
  } else if (part == "dt_bias") {
    is_step_ = true;
  } else if (part == "conv1d") {
    center_ = kConvolutionMean;
    deviation_ = kConvolutionDeviation;
    if (!info.name.ends_with("ple.conv1d")) quiet_col_ = 2 * geometry.gdn.key_dim();
  } else if (info.rows == 1 && part != "shared_expert_gate") {
    center_ = part == "norm" ? 1 : 0;  // the others are stored less one
    deviation_ = 0.1f;
  } else if (part == "embed_tokens") {
    deviation_ = 1;
  } else {
    deviation_ = GainOf(part) / std::sqrt(static_cast<float>(info.cols));
  }
  if (part == "gate") {
    row_factors_ = RouterNorms(geometry.moe, ~stream_);
  } else if (part == "lm_head") {
    // The logits of control tokens are zero: far from the best, so a text does not end by chance.
    row_factors_.assign(info.rows, 1.0f);
    for (uint32_t i = 0; i < kControlTokenCount; ++i) {
      const uint32_t row = static_cast<uint32_t>(geometry.ngram.eos_token) + i;
      if (row < info.rows) row_factors_[row] = 0;
    }
  }
}

float SyntheticTensor::RowFactor(uint32_t row) const {
  return row_factors_.empty() ? 1.0f : row_factors_[row];
}

void SyntheticTensor::Fill(const SyntheticRange& range, std::vector<std::byte>& out) const {
  switch (info_.format) {
    case MatrixFormat::kF32:
      return FillFloats(range, out);
    case MatrixFormat::kBf16:
      return FillBf16(range, out);
    case MatrixFormat::kQ8:
      return FillQ8(range, out);
  }
}

void SyntheticTensor::FillFloats(const SyntheticRange& range, std::vector<std::byte>& out) const {
  const uint64_t count = uint64_t{range.row_count} * info_.cols;
  const uint64_t first = stream_ + uint64_t{range.row_begin} * info_.cols;
  out.resize(count * sizeof(float));
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t word = SplitMix64(first + i);
    float value = center_ + deviation_ * EvenFloat(word);
    if (i % info_.cols >= quiet_col_) value *= kQuiet;
    if (is_decay_) value = std::log(1 + 15 * UnitFloat(word));
    if (is_step_) value = std::log(0.001f) + UnitFloat(word) * std::log(100.0f);
    std::memcpy(out.data() + i * sizeof(value), &value, sizeof(value));
  }
}

void SyntheticTensor::FillBf16(const SyntheticRange& range, std::vector<std::byte>& out) const {
  const uint64_t cols = info_.cols;
  out.resize(range.row_count * cols * sizeof(uint16_t));
  const uint64_t words_per_row = (cols + 3) / 4;
  for (uint32_t r = 0; r < range.row_count; ++r) {
    const uint32_t row = range.row_begin + r;
    const uint64_t first = stream_ + row * words_per_row;
    const float scale = deviation_ * RowFactor(row);
    for (uint64_t col = 0; col < cols; col += 4) {
      const uint64_t word = SplitMix64(first + col / 4);
      std::array<uint16_t, 4> codes;
      const uint64_t n = std::min<uint64_t>(4, cols - col);
      for (uint64_t i = 0; i < n; ++i) {
        codes[i] = EncodeBf16(scale * EvenFloat(word << (16 * i)));
      }
      std::memcpy(out.data() + (r * cols + col) * sizeof(uint16_t), codes.data(),
                  n * sizeof(uint16_t));
    }
  }
}

// Values are odd numbers from -63 to 63, so that their mean is zero.
void SyntheticTensor::FillQ8(const SyntheticRange& range, std::vector<std::byte>& out) const {
  constexpr uint64_t kMask = EveryByte(0x7E);
  constexpr uint64_t kBase = EveryByte(0x41);
  constexpr float kRms = 36.95f;  // sqrt((64^2 - 1) / 3)
  const uint64_t band_bytes = Q8BandBytes(info_.cols);
  const uint64_t code_bytes = uint64_t{info_.cols} * kBandRows;
  const uint32_t bands = BandCount(range.row_count);
  out.resize(bands * band_bytes);
  for (uint32_t b = 0; b < bands; ++b) {
    const uint32_t row_begin = range.row_begin + b * kBandRows;
    const std::span<std::byte> band = std::span(out).subspan(b * band_bytes, band_bytes);
    FillRandomWords(stream_, row_begin / kBandRows * band_bytes, band.first(code_bytes),
                    [](uint64_t word) { return (word & kMask) + kBase; });
    const uint32_t rows = std::min(kBandRows, info_.rows - row_begin);
    std::array<uint16_t, kBandRows> scales{};
    for (uint32_t r = 0; r < rows; ++r) {
      scales[r] = EncodeFp16(deviation_ / kRms * RowFactor(row_begin + r));
    }
    for (uint64_t at = code_bytes; at < band_bytes; at += sizeof(scales)) {
      std::memcpy(band.data() + at, scales.data(), sizeof(scales));
    }
    if (rows == kBandRows) continue;
    for (uint64_t line = 0; line < code_bytes; line += 4 * kBandRows) {
      std::fill(band.begin() + static_cast<int64_t>(line + 4 * rows),
                band.begin() + static_cast<int64_t>(line + 4 * kBandRows), std::byte{0x80});
    }
  }
}

}  // namespace hearth
