#include "pack/quant/xt_feedback.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace hearth {
namespace {

constexpr uint32_t kBlock = kXtBlockCols;
using BlockMatrix = std::array<std::array<double, kBlock>, kBlock>;

// The inverse of a symmetric positive definite matrix, through its Cholesky factor; false when it
// is not one.
bool Invert(const BlockMatrix& a, BlockMatrix& inverse) {
  BlockMatrix c{};
  for (uint32_t i = 0; i < kBlock; ++i) {
    for (uint32_t j = 0; j <= i; ++j) {
      double sum = a[i][j];
      for (uint32_t k = 0; k < j; ++k) sum -= c[i][k] * c[j][k];
      if (i == j) {
        if (!(sum > 0)) return false;
        c[i][i] = std::sqrt(sum);
      } else {
        c[i][j] = sum / c[j][j];
      }
    }
  }
  for (uint32_t col = 0; col < kBlock; ++col) {
    std::array<double, kBlock> y{};
    for (uint32_t i = 0; i < kBlock; ++i) {
      double sum = i == col ? 1.0 : 0.0;
      for (uint32_t k = 0; k < i; ++k) sum -= c[i][k] * y[k];
      y[i] = sum / c[i][i];
    }
    for (uint32_t i = kBlock; i-- > 0;) {
      double sum = y[i];
      for (uint32_t k = i + 1; k < kBlock; ++k) sum -= c[k][i] * inverse[k][col];
      inverse[i][col] = sum / c[i][i];
    }
  }
  return true;
}

}  // namespace

absl::StatusOr<XtFeedback> XtFeedback::Create(std::span<const float> moment, uint32_t cols,
                                              double damping) {
  HEARTH_CHECK(cols % kBlock == 0 && moment.size() == size_t{cols} * cols);
  double trace = 0;
  for (uint32_t i = 0; i < cols; ++i) trace += moment[size_t{i} * cols + i];
  if (!std::isfinite(trace) || trace <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("second moment of ", cols, " columns: trace ", trace, ", expected above 0"));
  }
  const double mean = trace / cols;
  // Scaled to a mean diagonal of one, so that factors of any input are alike.
  std::vector<double> a(moment.size());
  for (size_t i = 0; i < a.size(); ++i) a[i] = moment[i] / mean;
  for (uint32_t i = 0; i < cols; ++i) a[size_t{i} * cols + i] += damping;

  XtFeedback feedback(cols);
  feedback.damped_.assign(a.begin(), a.end());
  BlockMatrix diagonal;
  BlockMatrix inverse;
  for (uint32_t begin = 0; begin < cols; begin += kBlock) {
    for (uint32_t i = 0; i < kBlock; ++i) {
      const double* row = a.data() + size_t{begin + i} * cols + begin;
      std::copy_n(row, kBlock, diagonal[i].begin());
    }
    if (!Invert(diagonal, inverse)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "second moment: not positive definite at column ", begin, " with damping ", damping));
    }
    const uint32_t below = begin + kBlock;
    std::vector<double> factor(size_t{cols - below} * kBlock);  // L_jk
    for (uint32_t r = below; r < cols; ++r) {
      const double* source = a.data() + size_t{r} * cols + begin;
      double* to = factor.data() + size_t{r - below} * kBlock;
      for (uint32_t k = 0; k < kBlock; ++k) {
        for (uint32_t i = 0; i < kBlock; ++i) to[i] += source[k] * inverse[k][i];
      }
    }
    // The rest of the lower triangle without this block: A_ij -= L_ik A_jk^T. The columns of block
    // k are brought into rows first, so that the inner loop runs along memory.
    std::vector<double> columns(size_t{kBlock} * (cols - below));
    for (uint32_t r = below; r < cols; ++r) {
      for (uint32_t k = 0; k < kBlock; ++k) {
        columns[size_t{k} * (cols - below) + (r - below)] = a[size_t{r} * cols + begin + k];
      }
    }
    for (uint32_t r = below; r < cols; ++r) {
      double* row = a.data() + size_t{r} * cols + below;
      // Whole diagonal blocks, because Invert() reads them whole.
      const uint32_t count = std::min(cols, (r / kBlock + 1) * kBlock) - below;
      for (uint32_t k = 0; k < kBlock; ++k) {
        const double l = factor[size_t{r - below} * kBlock + k];
        const double* column = columns.data() + size_t{k} * (cols - below);
        for (uint32_t i = 0; i < count; ++i) row[i] -= l * column[i];
      }
    }
    feedback.factors_.insert(feedback.factors_.end(), factor.begin(), factor.end());
  }
  return feedback;
}

double XtFeedback::Loss(std::span<const float> error) const {
  HEARTH_CHECK(error.size() == cols_);
  double loss = 0;
  for (uint32_t i = 0; i < cols_; ++i) {
    double sum = 0;
    for (uint32_t j = 0; j < cols_; ++j) sum += double{damped_[size_t{i} * cols_ + j]} * error[j];
    loss += sum * error[i];
  }
  return loss;
}

void AddSecondMomentRows(std::span<const float> rows, uint32_t cols, uint32_t begin, uint32_t end,
                         std::span<float> moment) {
  HEARTH_CHECK(rows.size() % cols == 0 && moment.size() == size_t{cols} * cols && end <= cols);
  for (size_t first = 0; first < rows.size(); first += cols) {
    const float* const x = rows.data() + first;
    for (uint32_t i = begin; i < end; ++i) {
      float* const to = moment.data() + size_t{i} * cols;
      const float factor = x[i];
      for (uint32_t j = 0; j <= i; ++j) to[j] += factor * x[j];
    }
  }
}

void MirrorLower(std::span<float> moment, uint32_t cols) {
  for (uint32_t i = 0; i < cols; ++i) {
    for (uint32_t j = 0; j < i; ++j) moment[size_t{j} * cols + i] = moment[size_t{i} * cols + j];
  }
}

}  // namespace hearth
