#include "runtime/backend/pass_input.h"

#include <cstring>

#include "absl/strings/str_cat.h"

#include "pack/format/float_codes.h"
#include "runtime/base/load.h"
#include "runtime/base/status.h"

namespace hearth {

absl::Status CheckNgramTable(const ModelGeometry& geometry, bool has_table) {
  if (geometry.ngram.row_count == 0 || has_table) return absl::OkStatus();
  return absl::InvalidArgumentError("this model needs its n-gram table");
}

absl::Status CheckTokens(const ModelGeometry& geometry, std::span<const TokenId> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || static_cast<uint32_t>(tokens[i]) >= geometry.vocab_count) {
      return absl::InvalidArgumentError(absl::StrCat(
          "token ", i, " is ", tokens[i], ": this model knows 0 to ", geometry.vocab_count - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTrunk(const ModelGeometry& geometry, const PassLimits& limits,
                        std::span<const Segment> segments, Phase phase) {
  uint64_t rows = 0;
  for (const Segment& segment : segments) {
    if (segment.tokens.empty()) return absl::InvalidArgumentError("a segment without tokens");
    HEARTH_RETURN_IF_ERROR(CheckTokens(geometry, segment.tokens));
    rows += segment.tokens.size();
  }
  const uint32_t rows_max =
      phase == Phase::kPrompt ? limits.prompt_rows_max : limits.window_rows_max;
  if (rows == 0 || rows > rows_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("a pass of ", rows, " rows: at most ", rows_max, " here"));
  }
  return absl::OkStatus();
}

absl::Status CheckDraft(const ModelGeometry& geometry, const DraftAsk& ask) {
  if (!ask.has_head) {
    return absl::FailedPreconditionError("this model has no MTP head to draft with");
  }
  HEARTH_RETURN_IF_ERROR(CheckTokens(geometry, ask.tokens));
  const bool chained = ask.source == Backend::DraftSource::kChained;
  const size_t rows = ask.tokens.size();
  if (rows == 0 || rows > ask.rows_max || (chained && rows != 1)) {
    return absl::InvalidArgumentError(absl::StrCat("a draft pass of ", rows, " rows"));
  }
  if (rows > ask.context_tokens_max - ask.base) {
    return absl::ResourceExhaustedError(absl::StrCat("context of ", ask.context_tokens_max,
                                                     " tokens: no room to draft at ", ask.base));
  }
  if (!chained && !ask.has_hidden) {
    return absl::FailedPreconditionError(
        absl::StrCat("drafting needs the trunk's hidden states of positions ", ask.base, " to ",
                     ask.base + rows - 1, ", which the last pass did not leave"));
  }
  return absl::OkStatus();
}

absl::Status CheckDraftKept(bool from_trunk) {
  if (from_trunk) return absl::OkStatus();
  return absl::FailedPreconditionError("only a draft pass from the trunk can be kept");
}

absl::Status CheckPrediction(const ModelGeometry& geometry, bool in_window, LayerId layer) {
  if (in_window && layer.value < geometry.layer_count()) return absl::OkStatus();
  return absl::FailedPreconditionError("only the layers of a window are predicted");
}

float* EmbedTokens(const MatrixView& table, std::span<const TokenId> tokens, float* out) {
  for (const TokenId token : tokens) {
    const size_t first = static_cast<size_t>(token) * table.cols;
    if (table.format == MatrixFormat::kF32) {
      std::memcpy(out, table.data.data() + first * 4, size_t{table.cols} * 4);
    } else {
      const std::byte* row = table.data.data() + first * 2;
      for (uint32_t j = 0; j < table.cols; ++j) {
        out[j] = DecodeBf16(Load<uint16_t>(row + size_t{j} * 2));
      }
    }
    out += table.cols;
  }
  return out;
}

}  // namespace hearth
