#include "runtime/backend/cuda/host_lookups.h"

#include <algorithm>
#include <mutex>

#include "runtime/backend/pass_input.h"
#include "runtime/model/ngram_hash.h"

namespace hearth {
namespace {

// What a worker takes at a time, and fewer than which are not worth waking one.
constexpr uint32_t kTokensAtOnce = 16;
constexpr uint32_t kNgramRowsAtOnce = 256;

}  // namespace

uint64_t* HashNgrams(const NgramGeometry& n, std::span<const TokenId> tokens, uint32_t base,
                     uint64_t* rows) {
  if (n.row_count == 0) return rows;
  for (size_t position = base; position < tokens.size(); ++position) {
    NgramRows(n, tokens, position, {rows, n.head_count()});
    rows += n.head_count();
  }
  return rows;
}

void EmbedPrompt(const MatrixView& table, std::span<const TokenId> tokens, WorkerTeam* team,
                 float* out) {
  if (team == nullptr || tokens.size() <= kTokensAtOnce) {
    (void)EmbedTokens(table, tokens, out);
    return;
  }
  team->ForRanges(static_cast<uint32_t>(tokens.size()), kTokensAtOnce,
                  [&](uint32_t, uint32_t begin, uint32_t end) {
                    (void)EmbedTokens(table, tokens.subspan(begin, end - begin),
                                      out + size_t{begin} * table.cols);
                  });
}

absl::Status ReadNgramRows(const NgramFile& file, std::span<const uint64_t> rows, WorkerTeam* team,
                           std::span<float> out) {
  if (team == nullptr || rows.size() <= kNgramRowsAtOnce) return file.ReadRows(rows, out);
  std::mutex mutex;
  absl::Status first;  // of the lowest rows that could not be read
  uint32_t first_begin = UINT32_MAX;
  team->ForRanges(static_cast<uint32_t>(rows.size()), kNgramRowsAtOnce,
                  [&](uint32_t, uint32_t begin, uint32_t end) {
                    const size_t dim = file.row_dim();
                    const absl::Status status =
                        file.ReadRows(rows.subspan(begin, end - begin),
                                      out.subspan(begin * dim, (end - begin) * dim));
                    if (status.ok()) return;
                    const std::lock_guard lock(mutex);
                    if (begin < first_begin) {
                      first = status;
                      first_begin = begin;
                    }
                  });
  return first;
}

std::array<RingPiece, 2> RingPieces(uint64_t position, uint64_t rows, uint64_t ring_rows) {
  const uint64_t at = position % ring_rows;
  const uint64_t first = std::min(rows, ring_rows - at);
  return {{{.row = 0, .ring_row = at, .rows = first},
           {.row = first, .ring_row = 0, .rows = rows - first}}};
}

}  // namespace hearth
