#include "runtime/model/sampling/reasoning_budget.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"

namespace hearth {
namespace {

void Set(std::span<uint64_t> mask, TokenId token) {
  mask[static_cast<uint32_t>(token) / 64] |= uint64_t{1} << (token % 64);
}
void Clear(std::span<uint64_t> mask, TokenId token) {
  mask[static_cast<uint32_t>(token) / 64] &= ~(uint64_t{1} << (token % 64));
}

absl::Status CheckToken(TokenId token, uint32_t vocab_count, const char* what) {
  if (token >= 0 && static_cast<uint32_t>(token) < vocab_count) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the ", what, " token of a reasoning part is ",
                                                 token, ", expected 0 to ", vocab_count, " - 1"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReasoningBudget>> ReasoningBudget::Create(
    ReasoningBudgetOptions options, std::shared_ptr<TokenConstraint> inner) {
  const uint32_t vocab = options.vocab_count;
  if (absl::Status s = CheckToken(options.end_token, vocab, "end"); !s.ok()) return s;
  if (options.start_token) {
    if (absl::Status s = CheckToken(*options.start_token, vocab, "start"); !s.ok()) return s;
  }
  for (const TokenId token : options.forbidden_inside) {
    if (absl::Status s = CheckToken(token, vocab, "forbidden"); !s.ok()) return s;
    if (token == options.end_token) {
      return absl::InvalidArgumentError("the end token of a reasoning part is forbidden in it");
    }
  }
  return std::unique_ptr<ReasoningBudget>(
      new ReasoningBudget(std::move(options), std::move(inner)));
}

ReasoningBudget::ReasoningBudget(ReasoningBudgetOptions options,
                                 std::shared_ptr<TokenConstraint> inner)
    : options_(std::move(options)), inner_(std::move(inner)) {
  const uint32_t vocab = options_.vocab_count, words = (vocab + 63) / 64;
  only_end_.resize(words);
  Set(only_end_, options_.end_token);
  start_mask_.resize(words);
  if (!options_.forbidden_inside.empty()) {
    inside_mask_.assign(words, ~uint64_t{0});
    if (vocab % 64 != 0) inside_mask_.back() = (uint64_t{1} << vocab % 64) - 1;
    for (const TokenId token : options_.forbidden_inside) Clear(inside_mask_, token);
  }
  PopTo(0);
}

bool ReasoningBudget::inside() const { return reasoning_begin_ && !answer_begin_; }

std::span<const uint64_t> ReasoningBudget::Allowed() {
  if (inside()) {
    const bool spent = options_.tokens_max && count_ - *reasoning_begin_ >= *options_.tokens_max;
    return spent ? only_end_ : inside_mask_;
  }
  if (inner_ == nullptr) return {};
  const std::span<const uint64_t> allowed = inner_->Allowed();
  if (allowed.empty() || !may_start()) return allowed;
  HEARTH_CHECK(allowed.size() == start_mask_.size());
  std::copy(allowed.begin(), allowed.end(), start_mask_.begin());
  Set(start_mask_, *options_.start_token);
  return start_mask_;
}

void ReasoningBudget::Push(TokenId token) {
  const bool starts = may_start() && token == *options_.start_token;
  const bool ends = inside() && token == options_.end_token;
  const bool answers = !inside() && !starts;
  ++count_;
  if (starts) reasoning_begin_ = count_;
  if (ends) answer_begin_ = count_;
  if (!answers) return;
  if (!answer_begin_) answer_begin_ = 0;
  if (inner_ != nullptr) inner_->Push(token);
}

void ReasoningBudget::PopTo(uint32_t count) {
  count_ = count;
  const bool starts_inside = options_.starts_inside;
  if (!starts_inside && reasoning_begin_ && count < *reasoning_begin_) reasoning_begin_.reset();
  if (starts_inside) reasoning_begin_ = 0;
  const bool answers = answer_begin_ && count >= std::max(*answer_begin_, 1u);
  if (answer_begin_ && inner_ != nullptr) inner_->PopTo(answers ? count - *answer_begin_ : 0);
  if (!answers) answer_begin_.reset();
}

}  // namespace hearth
