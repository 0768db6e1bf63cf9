// From logits to weights: exp((logit - largest) / temperature) in plain multiplications and
// additions, so that a sample is the same on every processor. Header only, for vector code.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace hearth {

// Below this, exp would leave the normal numbers: such weights are zero.
inline constexpr double kExponentMin = -708.0;

// exp(x) for kExponentMin < x <= 0 in plain multiplications and additions, at most 2 ulp off, so
// that a sample is the same on every processor. Some value or NaN for smaller x, -inf included. No
// branches, so that loops over it can be vectorised.
inline double ExpOfNonPositive(double x) {
  constexpr double kLog2E = 0x1.71547652b82fep0;
  constexpr double kLn2High = 0x1.62e42feep-1;  // 33 bits, so that n * kLn2High is exact
  constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
  constexpr double kRounder = 0x1.8p52;  // leaves the rounded integer in the low mantissa bits
  const double shifted = x * kLog2E + kRounder;
  const double n = shifted - kRounder;
  const double r = (x - n * kLn2High) - n * kLn2Low;  // |r| <= ln(2) / 2
  // Taylor to r^13 / 13!; the next term is below 5e-18.
  double sum = 1.0 / 6227020800.0;
  sum = sum * r + 1.0 / 479001600.0;
  sum = sum * r + 1.0 / 39916800.0;
  sum = sum * r + 1.0 / 3628800.0;
  sum = sum * r + 1.0 / 362880.0;
  sum = sum * r + 1.0 / 40320.0;
  sum = sum * r + 1.0 / 5040.0;
  sum = sum * r + 1.0 / 720.0;
  sum = sum * r + 1.0 / 120.0;
  sum = sum * r + 1.0 / 24.0;
  sum = sum * r + 1.0 / 6.0;
  sum = sum * r + 0.5;
  sum = sum * r + 1.0;
  sum = sum * r + 1.0;
  return sum * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
}

// The step from logits to weights; temperature > 0.
class Weighing {
 public:
  Weighing(float largest, float temperature) : largest_(largest), temperature_(temperature) {}

  double Weight(float logit) const {
    return Finish(Exponent(logit), ExpOfNonPositive(Exponent(logit)));
  }

  // visit(id, weight) for every token by rising id; the weights have the bits that Weight gives.
  template <class Visit>
  void ForEach(std::span<const float> logits, Visit visit) const {
    Block weights;
    size_t begin = 0;
    for (; begin + weights.size() <= logits.size(); begin += weights.size()) {
      WeighBlock(logits.subspan(begin), weights);
      for (size_t i = 0; i < weights.size(); ++i) visit(begin + i, weights[i]);
    }
    for (; begin < logits.size(); ++begin) visit(begin, Weight(logits[begin]));
  }

 private:
  using Block = std::array<double, 64>;

  // A function of its own with nothing but arithmetic in its loop: compilers make vector code of
  // it.
  [[gnu::noinline]] void WeighBlock(std::span<const float> logits, Block& weights) const {
    const Weighing self = *this;  // what the stores below cannot alias
    Block exponents;
    for (size_t i = 0; i < weights.size(); ++i) {
      exponents[i] = self.Exponent(logits[i]);
      weights[i] = ExpOfNonPositive(exponents[i]);
    }
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = Finish(exponents[i], weights[i]);
  }

  double Exponent(float logit) const { return (double{logit} - largest_) / temperature_; }
  static double Finish(double exponent, double weight) {
    return exponent > kExponentMin ? weight : 0;
  }
  double largest_;
  double temperature_;
};

}  // namespace hearth
