// pack/quant/xt_trellis.h: the same symbols from every instruction set, decoded streams that are
// what the encoder says, and errors near the rate-distortion limit. Names the steps of
// xt_trellis_step.cc, xt_trellis_avx2.cc and xt_trellis_avx512.cc.
#include "pack/quant/xt_trellis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "pack/format/xt_layout.h"
#include "pack/format/xt_matrix.h"
#include "pack/quant/xt_encoder.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

float Normal(Prng& random) {
  const double radius = std::sqrt(-2.0 * std::log(1.0 - random.Uniform()));
  return static_cast<float>(radius * std::cos(2.0 * std::numbers::pi * random.Uniform()));
}

std::vector<float> Gaussian(uint32_t count, float deviation, uint32_t seed) {
  Prng random(seed);
  std::vector<float> values(count);
  for (float& v : values) v = deviation * Normal(random);
  return values;
}

struct Encoded {
  std::vector<uint8_t> symbols;
  std::vector<float> levels;
  XtStreamResult result;
};

Encoded Encode(XtStreamEncoder& encoder, const std::vector<float>& targets) {
  Encoded e{.symbols = std::vector<uint8_t>(targets.size()),
            .levels = std::vector<float>(targets.size())};
  e.result = encoder.Encode(targets, e.symbols, e.levels);
  return e;
}

// Levels by the format's own definition, from the bytes of a matrix of one lane's stream.
std::vector<float> DecodeBytes(uint32_t bits, const std::vector<uint8_t>& symbols) {
  const auto bands = static_cast<uint32_t>(symbols.size() / kXtStepsPerChunk);
  const XtShape shape = {.rows = bands * kBandRows, .cols = kXtBlockCols, .bits = bits};
  constexpr uint32_t kLane = 37;
  std::vector<std::byte> matrix(shape.bytes(), std::byte{0xA5});
  StoreXtStream(bits, symbols, matrix.data() + kLane);
  std::vector<float> levels;
  XtLevels chunk;
  for (uint32_t band = 0; band < bands; ++band) {
    DecodeXtChunk(shape, matrix.data(), 0, band, &chunk);
    for (const auto& step : chunk) levels.push_back(step[kLane]);
  }
  return levels;
}

class XtTrellisOfBits : public testing::TestWithParam<uint32_t> {
 protected:
  const XtCode& code_ = XtCodeOf(GetParam());
  const XtTrellis trellis_{code_};
};
INSTANTIATE_TEST_SUITE_P(Bits, XtTrellisOfBits, testing::Values(2u, 3u, 4u));

TEST_P(XtTrellisOfBits, TheWindowIsTheCodesOwn) {
  if (code_.uses_oldest()) GTEST_SKIP() << "the window is longer than 16 bits";
  EXPECT_EQ(trellis_.state_bits.size() + code_.bits, 16u);
  EXPECT_EQ(trellis_.state_count(), 1u << (16 - code_.bits));
}

TEST_P(XtTrellisOfBits, PredecessorsAndSuccessorsAreInverse) {
  for (uint32_t state = 0; state < trellis_.state_count(); state += 61) {
    const uint32_t symbol = state & (trellis_.branch_count() - 1);
    for (uint32_t d = 0; d < trellis_.branch_count(); ++d) {
      EXPECT_EQ(trellis_.Successor(trellis_.Predecessor(state >> code_.bits, d), symbol), state);
    }
  }
}

TEST_P(XtTrellisOfBits, DecodedBytesAreTheLevelsAndTheErrorThatTheEncoderClaims) {
  for (const uint32_t steps : {8u, 16u, 24u, 40u, 120u, 320u}) {
    XtStreamEncoder encoder(trellis_, steps, BestXtIsa());
    const std::vector<float> targets = Gaussian(steps, code_.level_deviation, steps);
    const Encoded e = Encode(encoder, targets);
    EXPECT_EQ(DecodeBytes(code_.bits, e.symbols), e.levels) << steps;
    uint64_t units = 0;
    for (uint32_t t = 0; t < steps; ++t) units += XtErrorUnits(trellis_, targets[t], e.levels[t]);
    EXPECT_EQ(e.result.error_units, units) << steps;
  }
}

TEST_P(XtTrellisOfBits, AnySymbolsDecodeAsTheFormatSays) {
  Prng random(5);
  for (const uint32_t steps : {8u, 16u, 320u}) {
    std::vector<uint8_t> symbols(steps);
    for (uint8_t& c : symbols) {
      c = static_cast<uint8_t>(random.Below(trellis_.branch_count()));
    }
    std::vector<float> levels(steps);
    trellis_.Levels(symbols, levels);
    EXPECT_EQ(DecodeBytes(code_.bits, symbols), levels) << steps;
  }
}

TEST_P(XtTrellisOfBits, EveryInstructionSetChoosesTheSameSymbols) {
  std::vector<std::vector<float>> cases;
  for (const uint32_t steps : {8u, 24u, 48u}) {
    cases.push_back(Gaussian(steps, code_.level_deviation, steps + 100));
  }
  std::vector<float> outliers = Gaussian(32, code_.level_deviation, 9);
  outliers[3] = 1e6f;
  outliers[17] = -400.0f;
  cases.push_back(outliers);
  cases.push_back(std::vector<float>(16, 0.0f));
  cases.push_back(std::vector<float>(16, 1e30f));
  for (const std::vector<float>& targets : cases) {
    const auto steps = static_cast<uint32_t>(targets.size());
    XtStreamEncoder scalar(trellis_, steps, XtIsa::kScalar);
    const Encoded expected = Encode(scalar, targets);
    EXPECT_EQ(DecodeBytes(code_.bits, expected.symbols), expected.levels);
    for (const XtIsa isa : {XtIsa::kAvx2, XtIsa::kAvx512}) {
      if (!XtIsaRuns(isa)) continue;
      XtStreamEncoder encoder(trellis_, steps, isa);
      const Encoded e = Encode(encoder, targets);
      EXPECT_EQ(e.symbols, expected.symbols) << "isa " << static_cast<int>(isa);
    }
  }
}

// Mean squared error of unit Gaussians in streams of `steps`, relative to the samples' power.
double ErrorOf(const XtTrellis& trellis, uint32_t steps, uint32_t samples) {
  XtStreamEncoder encoder(trellis, steps, BestXtIsa());
  const std::vector<float> all = Gaussian(samples / steps * steps, 1.0f, 1);
  const float deviation = trellis.code.level_deviation;
  double error = 0, power = 0;
  std::vector<float> targets(steps);
  for (size_t first = 0; first < all.size(); first += steps) {
    for (uint32_t t = 0; t < steps; ++t) {
      targets[t] = all[first + t] * deviation;
      power += double{all[first + t]} * all[first + t];
    }
    error += Encode(encoder, targets).result.squared_error;
  }
  return error / (deviation * deviation) / power;
}

TEST_P(XtTrellisOfBits, UnitGaussiansAreEncodedNearTheLimit) {
  constexpr std::array<double, 5> kBound = {0, 0, 0.0690, 0.0179, 0.0048};
  constexpr std::array<double, 5> kLloydMax = {0, 0, 0.1175, 0.03454, 0.009497};
  const double error = ErrorOf(trellis_, 320, 40960);
  RecordProperty("mean_squared_error", std::to_string(error));
  EXPECT_LT(error, kBound[code_.bits]);
  EXPECT_LT(error, 0.65 * kLloydMax[code_.bits]);
  EXPECT_GT(error, std::pow(4.0, -double{static_cast<double>(code_.bits)}));
}

TEST_P(XtTrellisOfBits, ShortCirclesCostLittle) {
  const double whole = ErrorOf(trellis_, 320, 10240);
  EXPECT_LT(ErrorOf(trellis_, 128, 10240), 1.06 * whole);
  EXPECT_LT(ErrorOf(trellis_, 64, 5120), 1.15 * whole);
}

}  // namespace
}  // namespace hearth
