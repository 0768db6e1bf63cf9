// The GPU's XT encoder: its tables name the levels that the CPU's trellis has, and its bytes are
// the CPU encoder's.
#include "gpu_kernels/ops/xt_encode.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "pack/quant/xt_encoder.h"
#include "pack/quant/xt_feedback.h"
#include "pack/quant/xt_trellis.h"
#include "runtime/base/prng.h"
#include "tests/gpu_kernels/gpu_fixture.h"

namespace hearth {
namespace {

std::vector<float> Gaussians(size_t count, float deviation, uint64_t seed) {
  Prng prng(seed);
  std::vector<float> values(count);
  for (float& v : values) {
    const double radius = std::sqrt(-2 * std::log(1 - prng.Uniform()));
    v = static_cast<float>(radius * std::cos(6.283185307179586 * prng.Uniform())) * deviation;
  }
  return values;
}

TEST(XtGpuTables, NameTheLevelOfEveryStepOfTheTrellis) {
  for (const uint32_t bits : {2u, 3u, 4u}) {
    const XtTrellis trellis(XtCodeOf(bits));
    const absl::StatusOr<XtGpuTables> tables = MakeXtGpuTables(XtCodeOf(bits));
    ASSERT_TRUE(tables.ok()) << tables.status();
    const uint32_t rows = trellis.state_count() / 16;
    Prng prng(bits);
    for (int trial = 0; trial < 20000; ++trial) {
      const auto phase = static_cast<uint32_t>(prng.Next() % trellis.code.phase_count);
      const auto group = static_cast<uint32_t>(prng.Next() % trellis.group_count());
      const auto symbol = static_cast<uint32_t>(prng.Next() % trellis.branch_count());
      const auto dropped = static_cast<uint32_t>(prng.Next() % trellis.branch_count());
      const uint32_t before = trellis.Predecessor(group, dropped);
      const uint32_t after = group << bits | symbol;
      ASSERT_EQ(trellis.Successor(before, symbol), after);
      const XtTrellis::Phase& p = trellis.phases[phase];
      const uint8_t hash = p.hash_of_symbol[symbol] ^ p.hash_of_state[0][before & 255] ^
                           p.hash_of_state[1][before >> 8];
      const uint8_t mapped = tables->row_hash[phase * rows + after / 16] ^
                             tables->lane_hash[phase][after % 16] ^
                             tables->dropped_hash[phase][dropped];
      ASSERT_EQ(tables->level[phase * 256 + mapped], p.level[hash]);
    }
  }
}

TEST(XtGpuTables, NeighbouringRowsHaveHashesThatDifferInTheirLowBits) {
  for (const uint32_t bits : {2u, 3u, 4u}) {
    const absl::StatusOr<XtGpuTables> tables = MakeXtGpuTables(XtCodeOf(bits));
    ASSERT_TRUE(tables.ok()) << tables.status();
    const size_t rows = tables->row_hash.size() / tables->phase_count;
    for (uint32_t phase = 0; phase < tables->phase_count; ++phase) {
      for (uint32_t i = 0; i < 8; ++i) {
        EXPECT_EQ(tables->row_hash[phase * rows + i] & 7, i) << bits << " bits, phase " << phase;
      }
    }
  }
}

TEST(XtGpuTables, RefuseAWindowThatNoKernelIsMadeFor) {
  XtCode code = XtCodeOf(2);
  code.oldest[0][0] = 1;
  EXPECT_EQ(MakeXtGpuTables(code).status().code(), absl::StatusCode::kInvalidArgument);
}

// What pack/quant/xt_encoder.cc does with targets that are rotated and scaled already.
std::vector<std::byte> EncodeOnCpu(const XtShape& shape, std::span<const float> weights,
                                   const XtFeedback* feedback, std::vector<float>& errors) {
  const XtTrellis trellis(XtCodeOf(shape.bits));
  XtStreamEncoder encoder(trellis, kXtGpuStepsMax, BestXtIsa());
  std::vector<std::byte> codes(shape.code_bytes());
  errors.assign(weights.size(), 0.0f);
  for (uint32_t block = shape.block_count(); block-- > 0;) {
    const uint32_t after = (block + 1) * kXtBlockCols;
    for (uint32_t g = 0; g < shape.group_count(); ++g) {
      const uint32_t begin = shape.group_begin(g);
      const uint32_t steps = (shape.group_begin(g + 1) - begin) * kXtStepsPerChunk;
      for (uint32_t lane = 0; lane < kXtLaneCount; ++lane) {
        std::vector<float> targets(steps), levels(steps);
        std::vector<uint8_t> symbols(steps);
        const auto place = [&](uint32_t t) {
          const uint32_t row = (begin + t / 8) * 16 + lane / 4;
          const uint32_t col = block * kXtBlockCols + 4 * (t % 8) + lane % 4;
          return row < shape.rows ? size_t{row} * shape.cols + col : SIZE_MAX;
        };
        for (uint32_t t = 0; t < steps; ++t) {
          if (place(t) == SIZE_MAX) continue;
          targets[t] = weights[place(t)];
          if (feedback == nullptr) continue;
          const std::span<const float> factor = feedback->OfBlock(block);
          const size_t row_at = place(t) / shape.cols * shape.cols;
          for (uint32_t c = after; c < shape.cols; ++c) {
            targets[t] += errors[row_at + c] *
                          factor[size_t{c - after} * kXtBlockCols + place(t) % kXtBlockCols];
          }
        }
        (void)encoder.Encode(targets, symbols, levels);
        StoreXtStream(shape.bits, symbols,
                      codes.data() + shape.chunk_offset_bytes(block, begin) + lane);
        for (uint32_t t = 0; t < steps; ++t) {
          if (place(t) != SIZE_MAX) errors[place(t)] = weights[place(t)] - levels[t];
        }
      }
    }
  }
  return codes;
}

class XtGpuEncoderTest : public OnGpu, public testing::WithParamInterface<uint32_t> {};

TEST_P(XtGpuEncoderTest, WritesTheBytesOfTheCpuEncoder) {
  // 41 bands make two groups, the last row is padding, two matrices share one feedback.
  const XtShape shape = {.rows = 41 * 16 - 1, .cols = 64, .bits = GetParam()};
  const float deviation = XtCodeOf(shape.bits).level_deviation;
  std::vector<float> moment(size_t{shape.cols} * shape.cols);
  for (uint32_t i = 0; i < shape.cols; ++i) {
    for (uint32_t j = 0; j < shape.cols; ++j) {
      moment[size_t{i} * shape.cols + j] =
          static_cast<float>(std::pow(0.9, std::abs(static_cast<int>(i) - static_cast<int>(j))));
    }
  }
  const absl::StatusOr<XtFeedback> feedback = XtFeedback::Create(moment, shape.cols, 0.01);
  ASSERT_TRUE(feedback.ok()) << feedback.status();
  std::vector<float> factors;
  for (uint32_t k = 0; k < shape.block_count(); ++k) {
    const std::span<const float> of_block = feedback->OfBlock(k);
    factors.insert(factors.end(), of_block.begin(), of_block.end());
  }
  const size_t values = size_t{shape.rows} * shape.cols;
  const std::vector<float> first = Gaussians(values, deviation, 1);
  const std::vector<float> second = Gaussians(values, deviation * 3, 2);  // beyond the code's range
  const std::vector<float> third = Gaussians(values, deviation, 3);
  struct Case {
    const std::vector<float>& weights;
    bool feedback;
  };
  const Case cases[] = {{first, true}, {second, true}, {third, false}};
  std::vector<std::vector<std::byte>> codes(3, std::vector<std::byte>(shape.code_bytes()));
  std::vector<std::vector<float>> row_errors(3, std::vector<float>(shape.rows));
  std::vector<XtGpuEncoder::Job> jobs;
  for (size_t m = 0; m < 3; ++m) {
    jobs.push_back(
        {.targets = cases[m].weights,
         .feedback = cases[m].feedback ? std::span<const float>(factors) : std::span<const float>(),
         .codes = codes[m],
         .row_errors = row_errors[m]});
  }
  auto encoder = XtGpuEncoder::Create(gpu(), shape, 3);
  ASSERT_TRUE(encoder.ok()) << encoder.status();
  const absl::Status status = (*encoder)->Encode(jobs);
  ASSERT_TRUE(status.ok()) << status;
  for (size_t m = 0; m < 3; ++m) {
    std::vector<float> errors;
    const std::vector<std::byte> expected =
        EncodeOnCpu(shape, cases[m].weights, cases[m].feedback ? &*feedback : nullptr, errors);
    EXPECT_TRUE(codes[m] == expected) << "matrix " << m;
    for (uint32_t r = 0; r < shape.rows; ++r) {
      double sum = 0;
      for (uint32_t c = 0; c < shape.cols; ++c) {
        sum += double{errors[size_t{r} * shape.cols + c]} * errors[size_t{r} * shape.cols + c];
      }
      ASSERT_NEAR(row_errors[m][r], sum, 1e-4 * sum) << "matrix " << m << ", row " << r;
    }
  }
}

TEST_P(XtGpuEncoderTest, RefusesStreamsThatAreTooShort) {
  const auto encoder = XtGpuEncoder::Create(gpu(), {.rows = 64, .cols = 64, .bits = GetParam()}, 1);
  EXPECT_EQ(encoder.status().code(), absl::StatusCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Bits, XtGpuEncoderTest, testing::Values(2u, 3u, 4u));

}  // namespace
}  // namespace hearth
