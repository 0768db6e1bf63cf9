// Weights that are fitted as samples come.
#include "cache/policy/least_squares.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "runtime/base/prng.h"

namespace hearth {
namespace {

using Fit = LeastSquares<2>;

void AddLine(Fit& fit, Prng& prng, double a, double b, int count) {
  for (int i = 0; i < count; ++i) {
    const double x = prng.Uniform();
    const double y = prng.Uniform();
    fit.Add({x, y}, a * x + b * y);
  }
}

TEST(LeastSquaresTest, FindsTheWeightsOfALine) {
  Fit fit({.guess = {1, 1}, .pull = 1e-9});
  Prng prng(1);
  AddLine(fit, prng, 3, -2, 100);
  fit.Solve();
  EXPECT_NEAR(fit.weights()[0], 3, 1e-6);
  EXPECT_NEAR(fit.weights()[1], -2, 1e-6);
}

TEST(LeastSquaresTest, BeginsAtItsGuessAndIsPulledTowardsIt) {
  Fit fit({.guess = {5, 7}, .pull = 1e6});
  fit.Solve();
  EXPECT_DOUBLE_EQ(fit.weights()[0], 5);
  Prng prng(1);
  AddLine(fit, prng, 0, 0, 100);
  fit.Solve();
  EXPECT_NEAR(fit.weights()[1], 7, 1e-3);
}

TEST(LeastSquaresTest, ForgetsWhatItSawBefore) {
  Fit fit({.pull = 1e-9, .keep = 0.9});
  Prng prng(2);
  AddLine(fit, prng, 1, 1, 500);
  AddLine(fit, prng, 4, 2, 500);
  fit.Solve();
  EXPECT_NEAR(fit.weights()[0], 4, 1e-6);
  EXPECT_NEAR(fit.weights()[1], 2, 1e-6);
}

TEST(LeastSquaresTest, ASampleThatIsNoNumberLeavesTheWeights) {
  Fit fit({.guess = {5, 7}, .pull = 1});
  fit.Add({std::numeric_limits<double>::quiet_NaN(), 1}, 1);
  fit.Solve();
  EXPECT_DOUBLE_EQ(fit.weights()[0], 5);
}

}  // namespace
}  // namespace hearth
