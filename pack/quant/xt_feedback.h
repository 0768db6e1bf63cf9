// Error feedback for the XT encoder: how the error of a block of columns moves the targets of the
// blocks before it, so that the output error on typical inputs is least, not the weight error.
//
// With the second moment H = E[x x^T] of the rotated inputs, damped, and H = L D L^T in blocks of
// 32 columns (L unit lower triangular by block), a row's output error is e H e^T = sum over blocks
// k of |e_k + sum over j > k of e_j L_jk|^2 in the metric D_k. So blocks are encoded from last to
// first, block k towards w_k + sum over j > k of e_j L_jk, where e_j = w_j - decoded.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "pack/format/xt_layout.h"

namespace hearth {

class XtFeedback {
 public:
  // `moment` (cols, cols) is symmetric, in the rotated space, of any scale; `cols` is a multiple of
  // 32. `damping` times its mean diagonal is added to its diagonal. InvalidArgument when it has
  // values that are not finite or is all zero.
  static absl::StatusOr<XtFeedback> Create(std::span<const float> moment, uint32_t cols,
                                           double damping);

  uint32_t cols() const { return cols_; }
  // L of the columns after block k, towards its 32: (cols - 32 * (k + 1), 32).
  std::span<const float> OfBlock(uint32_t block) const {
    const size_t rows_before = size_t{block} * (cols_ - kXtBlockCols / 2 * (block + 1));
    return All().subspan(rows_before * kXtBlockCols,
                         size_t{cols_ - kXtBlockCols * (block + 1)} * kXtBlockCols);
  }
  // Those of the blocks 0, 1, ... one after the other.
  std::span<const float> All() const { return factors_; }
  // e H e^T for one row of errors: the damped H as given to Create.
  double Loss(std::span<const float> error) const;

 private:
  explicit XtFeedback(uint32_t cols) : cols_(cols) {}
  uint32_t cols_ = 0;
  std::vector<float> factors_;
  std::vector<float> damped_;
};

// The second moment of rows (row_count, cols) added to `moment` (cols, cols), lower triangle only:
// its rows [begin, end).
void AddSecondMomentRows(std::span<const float> rows, uint32_t cols, uint32_t begin, uint32_t end,
                         std::span<float> moment);
// Copies the lower triangle to the upper.
void MirrorLower(std::span<float> moment, uint32_t cols);

}  // namespace hearth
