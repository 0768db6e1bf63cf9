// The routed experts of the generated checkpoint in each encoding.
#include <cmath>

#include <gtest/gtest.h>

#include "tests/support/tiny_checkpoint.h"
#include "tests/support/tiny_codecs.h"

namespace hearth {
namespace {

const char* ProjectionName(Projection p) {
  return p == Projection::kGate ? "gate_proj" : (p == Projection::kUp ? "up_proj" : "down_proj");
}

std::string Key(LayerId layer, ExpertId expert, Projection p) {
  return "expert." + std::to_string(layer.value) + "." + std::to_string(expert.value) + "." +
         ProjectionName(p);
}

std::vector<double> Multiply(const std::vector<double>& matrix, std::span<const double> x) {
  std::vector<double> y(matrix.size() / x.size());
  for (size_t r = 0; r < y.size(); ++r) {
    for (size_t c = 0; c < x.size(); ++c) y[r] += matrix[r * x.size() + c] * x[c];
  }
  return y;
}

}  // namespace

std::vector<double> ExpertTruth::Evaluate(std::span<const double> x) const {
  std::vector<double> inner = Multiply(gate, x);
  const std::vector<double> linear = Multiply(up, x);
  for (size_t i = 0; i < inner.size(); ++i) {
    inner[i] = inner[i] / (1 + std::exp(-inner[i])) * linear[i];
  }
  return Multiply(down, inner);
}

std::string TinyCheckpoint::ExpertPrefix(LayerId layer) const {
  if (layer.value == options_.layer_count) return "mtp.layers.0.mlp.experts.";
  return prefix() + "layers." + std::to_string(layer.value) + ".mlp.experts.";
}

void TinyCheckpoint::AddExperts(LayerId layer, TinyExperts kind) {
  switch (kind) {
    case TinyExperts::kBf16Packed:
      return AddPackedExperts(layer, false);
    case TinyExperts::kF32Packed:
      return AddPackedExperts(layer, true);
    case TinyExperts::kBf16Separate:
      return AddSeparateBf16(layer);
    case TinyExperts::kFp8:
      return AddFp8Experts(layer, false);
    case TinyExperts::kFp8F32Scales:
      return AddFp8Experts(layer, true);
    case TinyExperts::kModelOptNvfp4:
    case TinyExperts::kCompressedTensorsNvfp4:
    case TinyExperts::kModelOptNvfp4Csf:
      for (uint32_t e = 0; e < options_.expert_count; ++e) {
        for (const Projection p : kProjections) {
          AddNvfp4Tensors(layer, ExpertId(e), p, nvfp4(layer, ExpertId(e), p));
        }
      }
  }
}

void TinyCheckpoint::AddPackedExperts(LayerId layer, bool f32) {
  const uint64_t hidden = options_.hidden, width = options_.width, count = options_.expert_count;
  std::vector<uint16_t> bf16[2];
  std::vector<float> values[2];
  for (uint32_t e = 0; e < count; ++e) {
    for (const Projection p : kProjections) {
      Prng prng = TinyStream(options_.seed, Key(layer, ExpertId(e), p));
      const size_t part = p == Projection::kDown ? 1 : 0;
      const double spread = std::sqrt(3.0 / static_cast<double>(part == 1 ? width : hidden));
      std::vector<double>& truth = MutableExpert(layer, ExpertId(e)).matrix(p);
      for (uint64_t i = 0; i < hidden * width; ++i) {
        const double value = spread * TinySigned(prng);
        bf16[part].push_back(TinyToBf16(value));
        values[part].push_back(static_cast<float>(value));
        truth.push_back(f32 ? values[part].back() : TinyBf16(bf16[part].back()));
      }
    }
  }
  const std::vector<uint64_t> shapes[2] = {{count, 2 * width, hidden}, {count, hidden, width}};
  const char* names[2] = {"gate_up_proj", "down_proj"};
  for (size_t part = 0; part < 2; ++part) {
    const std::string name = ExpertPrefix(layer) + names[part];
    tensors.push_back(f32 ? F32Fixture(name, shapes[part], values[part])
                          : Bf16Fixture(name, shapes[part], bf16[part]));
  }
}

void TinyCheckpoint::AddSeparateBf16(LayerId layer) {
  const uint64_t hidden = options_.hidden, width = options_.width;
  for (uint32_t e = 0; e < options_.expert_count; ++e) {
    for (const Projection p : kProjections) {
      Prng prng = TinyStream(options_.seed, Key(layer, ExpertId(e), p));
      const uint64_t rows = p == Projection::kDown ? hidden : width;
      const double spread =
          std::sqrt(3.0 * static_cast<double>(rows) / static_cast<double>(hidden * width));
      std::vector<uint16_t> codes;
      std::vector<double>& truth = MutableExpert(layer, ExpertId(e)).matrix(p);
      for (uint64_t i = 0; i < hidden * width; ++i) {
        codes.push_back(TinyToBf16(spread * TinySigned(prng)));
        truth.push_back(TinyBf16(codes.back()));
      }
      tensors.push_back(
          Bf16Fixture(ExpertPrefix(layer) + std::to_string(e) + "." + ProjectionName(p) + ".weight",
                      {rows, hidden * width / rows}, codes));
    }
  }
}

void TinyCheckpoint::AddFp8Experts(LayerId layer, bool f32_scales) {
  const uint64_t hidden = options_.hidden, width = options_.width;
  for (uint32_t e = 0; e < options_.expert_count; ++e) {
    for (const Projection p : kProjections) {
      Prng prng = TinyStream(options_.seed, Key(layer, ExpertId(e), p));
      const uint64_t rows = p == Projection::kDown ? hidden : width;
      const uint64_t cols = hidden * width / rows;
      const uint64_t block_rows = (rows + 127) / 128, block_cols = (cols + 127) / 128;
      std::vector<uint16_t> bf16;
      std::vector<float> f32;
      for (uint64_t b = 0; b < block_rows * block_cols; ++b) {
        const double scale = 0.06 + 0.06 * prng.Uniform();
        bf16.push_back(TinyToBf16(scale));
        f32.push_back(static_cast<float>(scale));
      }
      std::vector<uint8_t> codes;
      std::vector<double>& truth = MutableExpert(layer, ExpertId(e)).matrix(p);
      for (uint64_t i = 0; i < rows * cols; ++i) {
        const uint64_t block = i / cols / 128 * block_cols + i % cols / 128;
        codes.push_back(static_cast<uint8_t>((prng.Below(2) << 7) | (0x28 + prng.Below(32))));
        truth.push_back(TinyE4m3(codes.back()) *
                        (f32_scales ? double{f32[block]} : TinyBf16(bf16[block])));
      }
      const std::string name =
          ExpertPrefix(layer) + std::to_string(e) + "." + ProjectionName(p) + ".weight";
      const std::vector<uint64_t> blocks = {block_rows, block_cols};
      tensors.push_back(BytesFixture(name, "F8_E4M3", {rows, cols}, codes));
      tensors.push_back(f32_scales ? F32Fixture(name + "_scale_inv", blocks, f32)
                                   : Bf16Fixture(name + "_scale_inv", blocks, bf16));
    }
  }
}

TinyNvfp4 TinyCheckpoint::nvfp4(LayerId layer, ExpertId expert, Projection p) const {
  Prng prng = TinyStream(options_.seed, Key(layer, expert, p));
  TinyNvfp4 matrix;
  const size_t count = size_t{options_.hidden} * options_.width;
  for (size_t i = 0; i < count; ++i) matrix.codes.push_back(static_cast<uint8_t>(prng.Below(16)));
  constexpr uint8_t kRare[] = {0x00, 0x01, 0x08, 0x7E};
  for (size_t i = 0; i < count / 16; ++i) {
    const bool rare = prng.Below(64) == 0;
    matrix.scales.push_back(rare ? kRare[prng.Below(4)]
                                 : static_cast<uint8_t>(0x60 + prng.Below(19)));
  }
  matrix.divisor = static_cast<float>(1024 + prng.Below(3072));
  return matrix;
}

void TinyCheckpoint::AddNvfp4Tensors(LayerId layer, ExpertId expert, Projection p,
                                     const TinyNvfp4& matrix) {
  const uint32_t rows = p == Projection::kDown ? options_.hidden : options_.width;
  const auto cols = static_cast<uint32_t>(matrix.codes.size() / rows);
  const std::vector<float> divisor = {matrix.divisor};
  const std::vector<float> multiplier = {1.0f / matrix.divisor};
  std::vector<uint8_t> packed;
  std::vector<double>& truth = MutableExpert(layer, expert).matrix(p);
  truth.clear();
  for (size_t i = 0; i < matrix.codes.size(); ++i) {
    if (i % 2 == 0) {
      packed.push_back(matrix.codes[i]);
    } else {
      packed.back() |= static_cast<uint8_t>(matrix.codes[i] << 4);
    }
    truth.push_back(TinyE2m1(matrix.codes[i]) * TinyE4m3(matrix.scales[i / 16]) *
                    double{multiplier[0]});
  }
  const std::string name =
      ExpertPrefix(layer) + std::to_string(expert.value) + "." + ProjectionName(p) + ".";
  const bool foreign = options_.experts == TinyExperts::kCompressedTensorsNvfp4;
  std::vector<FixtureTensor> made;
  made.push_back(
      BytesFixture(name + (foreign ? "weight_packed" : "weight"), "U8", {rows, cols / 2}, packed));
  if (options_.experts == TinyExperts::kModelOptNvfp4Csf) {
    const TinyCsf csf = EncodeTinyCsf(matrix.scales, rows, cols / 16);
    made.push_back(BytesFixture(name + "weight_scale.nvfp4_csf_fixed", "U8",
                                {rows / 16, 16 * (1 + cols / 32)}, csf.fixed));
    made.push_back(U32Fixture(name + "weight_scale.nvfp4_csf_exceptions", csf.exceptions));
  } else {
    made.push_back(
        BytesFixture(name + "weight_scale", "F8_E4M3", {rows, cols / 16}, matrix.scales));
  }
  if (foreign) {
    made.push_back(F32Fixture(name + "weight_global_scale", {1}, divisor));
    made.push_back(F32Fixture(name + "input_global_scale", {1}, divisor));
  } else {
    made.push_back(F32Fixture(name + "weight_scale_2", {}, multiplier));
    made.push_back(F32Fixture(name + "input_scale", {}, multiplier));
  }
  for (FixtureTensor& t : made) {
    if (Has(t.name)) {
      Find(t.name) = std::move(t);
    } else {
      tensors.push_back(std::move(t));
    }
  }
}

void TinyCheckpoint::SetNvfp4(LayerId layer, ExpertId expert, Projection p,
                              const TinyNvfp4& matrix) {
  AddNvfp4Tensors(layer, expert, p, matrix);
}

}  // namespace hearth
