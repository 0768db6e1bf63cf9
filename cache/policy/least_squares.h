// Least squares that are fitted as samples come and forget slowly, held towards a first guess.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>

namespace hearth {

// Weights w of y ~ sum over k of w[k] x[k] that minimise the squared errors, each sample counting
// `keep` times less with every later one, plus pull x |w - guess|^2. Nothing is allocated.
template <size_t kCount>
class LeastSquares {
 public:
  using Vector = std::array<double, kCount>;
  struct Options {
    Vector guess{};
    double pull = 1;
    double keep = 1;
  };

  explicit LeastSquares(const Options& options) : options_(options), weights_(options.guess) {}

  void Add(const Vector& x, double y) {
    for (size_t i = 0; i < kCount; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        moments_[i][j] = moments_[i][j] * options_.keep + x[i] * x[j];
      }
      products_[i] = products_[i] * options_.keep + x[i] * y;
    }
  }

  // Of the samples so far. Keeps the weights that it had where rounding leaves no solution.
  const Vector& Solve() {
    std::array<Vector, kCount> lower{};  // Cholesky's factor of moments + pull
    Vector z{};
    for (size_t i = 0; i < kCount; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double sum = moments_[i][j] + (i == j ? options_.pull : 0);
        for (size_t k = 0; k < j; ++k) sum -= lower[i][k] * lower[j][k];
        if (i == j && !(sum > 0 && std::isfinite(sum))) return weights_;
        lower[i][j] = i == j ? std::sqrt(sum) : sum / lower[j][j];
      }
      double sum = products_[i] + options_.pull * options_.guess[i];
      for (size_t k = 0; k < i; ++k) sum -= lower[i][k] * z[k];
      z[i] = sum / lower[i][i];
    }
    for (size_t i = kCount; i-- > 0;) {
      double sum = z[i];
      for (size_t k = i + 1; k < kCount; ++k) sum -= lower[k][i] * weights_[k];
      weights_[i] = sum / lower[i][i];
    }
    return weights_;
  }

  const Vector& weights() const { return weights_; }

 private:
  const Options options_;
  std::array<Vector, kCount> moments_{};  // lower triangle
  Vector products_{};
  Vector weights_;
};

}  // namespace hearth
