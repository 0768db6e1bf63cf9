// The largest logits of rows are those that a sort of the whole row puts first, ties by the lower
// token; what cannot be said exactly is not said.
#include "gpu_kernels/ops/sampling/top_logits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/prng.h"
#include "tests/gpu_kernels/device_copies.h"
#include "tests/gpu_kernels/gpu_fixture.h"

namespace hearth {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr uint32_t kRowsMax = 9;

// About normal, so that few are large.
float Logit(Prng* prng) {
  double sum = -3;
  for (int i = 0; i < 6; ++i) sum += prng->Uniform();
  return static_cast<float>(4 * sum);
}

struct Row {
  std::vector<TopLogit> top;
  bool exact = false;
};

std::vector<TopLogit> Sorted(std::span<const float> logits, uint32_t count) {
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [&](TokenId a, TokenId b) {
    const auto at = [&](TokenId t) { return logits[static_cast<size_t>(t)]; };
    return at(a) != at(b) ? at(a) > at(b) : a < b;
  });
  std::vector<TopLogit> top;
  for (uint32_t i = 0; i < count; ++i) {
    top.push_back({.logit = logits[static_cast<size_t>(ids[i])], .token = ids[i]});
  }
  return top;
}

class TopLogits : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    absl::StatusOr<DeviceBuffer> workspace =
        DeviceBuffer::Create(gpu().id, TopLogitsWorkspaceBytes(kRowsMax));
    ASSERT_TRUE(workspace.ok()) << workspace.status();
    workspace_.emplace(*std::move(workspace));
    ASSERT_TRUE(FillBytes(*workspace_, std::byte{0}, stream().view()).ok());
  }

  absl::StatusOr<std::vector<Row>> Run(const std::vector<float>& logits, uint32_t rows,
                                       uint32_t count) {
    const auto vocab = static_cast<uint32_t>(logits.size() / rows);
    std::vector<TopLogit> top(size_t{rows} * count, {.logit = -1, .token = -1});
    std::vector<uint32_t> exact(rows, 7);
    HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer from, DeviceCopy(logits, stream()));
    HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer to, DeviceCopy(top, stream()));
    HEARTH_ASSIGN_OR_RETURN(const DeviceBuffer flags, DeviceCopy(exact, stream()));
    HEARTH_RETURN_IF_ERROR(LaunchTopLogits({.logits = reinterpret_cast<const float*>(from.data()),
                                            .rows = rows,
                                            .vocab_count = vocab,
                                            .count = count,
                                            .top = reinterpret_cast<TopLogit*>(to.data()),
                                            .exact = reinterpret_cast<uint32_t*>(flags.data()),
                                            .workspace = workspace_->data()},
                                           stream().view()));
    HEARTH_RETURN_IF_ERROR(ReadBack(to, &top, stream()));
    HEARTH_RETURN_IF_ERROR(ReadBack(flags, &exact, stream()));
    std::vector<Row> result(rows);
    for (uint32_t r = 0; r < rows; ++r) {
      result[r].top.assign(top.begin() + r * count, top.begin() + (r + 1) * count);
      result[r].exact = exact[r] == 1;
    }
    return result;
  }

  // Whether all rows are exact and as a sort has them.
  void Expect(const std::vector<float>& logits, uint32_t rows, uint32_t count) {
    const absl::StatusOr<std::vector<Row>> got = Run(logits, rows, count);
    ASSERT_TRUE(got.ok()) << got.status();
    const size_t vocab = logits.size() / rows;
    for (uint32_t r = 0; r < rows; ++r) {
      EXPECT_TRUE((*got)[r].exact) << "row " << r << " of " << rows << ", " << count;
      ASSERT_EQ((*got)[r].top, Sorted(std::span(logits).subspan(r * vocab, vocab), count))
          << "row " << r << " of " << rows << ", " << count << " of " << vocab;
    }
  }

 private:
  std::optional<DeviceBuffer> workspace_;
};

TEST_F(TopLogits, AreThoseOfASort) {
  Prng prng(1);
  for (const uint32_t vocab : {1u, 31u, 512u, 4097u, 248'320u}) {
    for (const uint32_t rows : {1u, 4u, 9u, 2u}) {
      std::vector<float> logits(size_t{rows} * vocab);
      for (float& x : logits) x = Logit(&prng);
      for (const uint32_t count : {1u, 2u, 20u, 64u, 256u}) {
        if (count > vocab) continue;
        Expect(logits, rows, count);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_F(TopLogits, EqualOnesByTheLowerToken) {
  Prng prng(2);
  std::vector<float> logits(3 * 5000);
  // Few values, zeros of both signs, and no more at the top than are sorted.
  for (float& x : logits) x = static_cast<float>(prng.Below(40)) * 0.25f - 9.75f;
  for (size_t i = 0; i < logits.size(); i += 7) logits[i] = i % 2 == 0 ? 0.0f : -0.0f;
  for (const uint32_t count : {1u, 3u, 200u, 256u}) Expect(logits, 3, count);
  std::vector<float> same(2 * 4000, -2.5f);
  for (const uint32_t count : {1u, 40u}) Expect(same, 2, count);
}

TEST_F(TopLogits, InfinitelySmallOnesComeLast) {
  std::vector<float> logits(600, -kInf);
  logits[77] = -3e38f;
  logits[500] = 1e-42f;
  for (const uint32_t count : {1u, 2u, 5u}) Expect(logits, 1, count);
}

TEST_F(TopLogits, WhatIsNotExactIsSaidForItsRowAloneAndForgotten) {
  Prng prng(3);
  constexpr uint32_t kVocab = 20'000;
  std::vector<float> good(3 * kVocab);
  for (float& x : good) x = Logit(&prng);
  for (const uint32_t count : {1u, 50u}) {
    for (const float bad : {kInf, std::nanf(""), -kInf, 5.0f}) {
      std::vector<float> logits = good;
      if (std::isnan(bad) || bad == kInf) {
        logits[kVocab + 12'345] = bad;
      } else {  // nothing above -inf; more equal ones than are sorted
        std::fill_n(logits.begin() + kVocab, kVocab, bad);
      }
      const absl::StatusOr<std::vector<Row>> got = Run(logits, 3, count);
      ASSERT_TRUE(got.ok()) << got.status();
      EXPECT_TRUE((*got)[0].exact && (*got)[2].exact);
      EXPECT_EQ((*got)[1].exact, bad == 5.0f && count == 1) << bad << " " << count;
      Expect(good, 3, count);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(TopLogits, RefusesWhatItHasNoRoomFor) {
  const std::vector<float> logits(600);
  EXPECT_FALSE(Run(logits, 1, 257).ok());
  EXPECT_FALSE(Run(std::vector<float>(8), 1, 9).ok());
  EXPECT_FALSE(LaunchTopLogits({.rows = 1, .vocab_count = 5, .count = 1}, stream().view()).ok());
}

}  // namespace
}  // namespace hearth
