// PCRE2 with UTF, Unicode properties and JIT behind Splitter.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "runtime/model/tokenizer/splitter.h"

#include <cstdint>
#include <memory>
#include <string>

#include <pcre2.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/model/tokenizer/split_dialect.h"

namespace hearth {
namespace {

// Backtracking steps of one match, and interpreter memory. The known patterns need a handful per
// match whatever the text; a pattern that reaches these on some text only loses pieces there.
constexpr uint32_t kMatchStepsMax = 1u << 20;
constexpr uint32_t kHeapKibMax = 64 * 1024;

struct MatchDataDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string PcreMessage(int error) {
  PCRE2_UCHAR8 buffer[128] = {};
  pcre2_get_error_message_8(error, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

void Splitter::CodeDeleter::operator()(pcre2_real_code_8* code) const { pcre2_code_free(code); }

void Splitter::ContextDeleter::operator()(pcre2_real_match_context_8* context) const {
  pcre2_match_context_free(context);
}

absl::StatusOr<Splitter> Splitter::Create(std::string_view pattern) {
  HEARTH_ASSIGN_OR_RETURN(const std::string translated, TranslateSplitPattern(pattern));
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  Splitter splitter;
  splitter.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR8>(translated.data()),
                                     translated.size(), PCRE2_UTF | PCRE2_UCP, &error,
                                     &error_offset, nullptr));
  if (splitter.code_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a valid pattern, found: ", PcreMessage(error)));
  }
  uint32_t matches_empty = 0;
  pcre2_pattern_info(splitter.code_.get(), PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return absl::UnimplementedError(
        "expected a pattern that matches at least one character, found one that can match none");
  }
  // Without JIT (a hardened kernel may refuse it) the interpreter gives the same matches.
  (void)pcre2_jit_compile(splitter.code_.get(), PCRE2_JIT_COMPLETE);
  splitter.context_.reset(pcre2_match_context_create(nullptr));
  if (splitter.context_ == nullptr) return absl::ResourceExhaustedError("no memory for PCRE2");
  pcre2_set_match_limit(splitter.context_.get(), kMatchStepsMax);
  pcre2_set_heap_limit(splitter.context_.get(), kHeapKibMax);
  return splitter;
}

void Splitter::Split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const std::unique_ptr<pcre2_match_data, MatchDataDeleter> match(
      pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  const auto subject = reinterpret_cast<PCRE2_SPTR8>(text.data());
  size_t done = 0;  // pieces cover [0, done)
  while (match != nullptr && done < text.size()) {
    int result = pcre2_match(code_.get(), subject, text.size(), done, PCRE2_NO_UTF_CHECK,
                             match.get(), context_.get());
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      result = pcre2_match(code_.get(), subject, text.size(), done,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match.get(), context_.get());
    }
    if (result < 0) break;  // no further match, or a limit
    const PCRE2_SIZE* const bounds = pcre2_get_ovector_pointer(match.get());
    HEARTH_CHECK(bounds[0] >= done && bounds[1] > bounds[0]);
    if (bounds[0] > done) pieces.push_back(text.substr(done, bounds[0] - done));
    pieces.push_back(text.substr(bounds[0], bounds[1] - bounds[0]));
    done = bounds[1];
  }
  if (done < text.size()) pieces.push_back(text.substr(done));
}

}  // namespace hearth
