// The n-gram hash of the full model on published row numbers.
#include "runtime/model/ngram_hash.h"

#include <gtest/gtest.h>

#include <vector>

namespace hearth {
namespace {

NgramGeometry FullModel() {
  NgramGeometry g{
      .layer = 1,
      .ngram_size = 3,
      .heads_per_ngram = 8,
      .row_dim = 160,
      .conv_taps = 4,
      .eos_token = 248044,
      .row_count = 320001536,
      .multipliers = {23703573157769ull, 20109073645365ull, 8052911324071ull},
      .head_rows = {20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
                    20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171},
      .head_offsets = {}};
  uint64_t offset = 0;
  for (const uint64_t rows : g.head_rows) {
    g.head_offsets.push_back(offset);
    offset += rows;
  }
  return g;
}

std::vector<uint64_t> RowsAt(std::span<const TokenId> tokens, size_t position) {
  std::vector<uint64_t> rows(16);
  NgramRows(FullModel(), tokens, position, rows);
  return rows;
}

TEST(NgramHash, EqualsThePublishedRows) {
  const std::vector<TokenId> tokens = {9707, 11, 1879, 248044, 9707};
  EXPECT_EQ(RowsAt(tokens, 0),
            (std::vector<uint64_t>{16410909, 39682429, 55103279, 60931720, 87006904, 116506179,
                                   131512017, 152932897, 169641436, 182022480, 209277433, 237891023,
                                   256841529, 277007269, 290665954, 300984276}));
  EXPECT_EQ(RowsAt(tokens, 1),
            (std::vector<uint64_t>{18158303, 36390029, 45652312, 70783524, 98191154, 114024957,
                                   127804916, 159566246, 175132467, 192583600, 217919476, 237199054,
                                   259336807, 261799367, 289359313, 307699687}));
  EXPECT_EQ(RowsAt(tokens, 2),
            (std::vector<uint64_t>{6380558, 26411572, 56460672, 78566983, 94693008, 106742196,
                                   124822692, 148942556, 164226950, 190352573, 210933682, 238908951,
                                   242182004, 265475238, 299910982, 312121804}));
  EXPECT_EQ(RowsAt(tokens, 3),
            (std::vector<uint64_t>{18827606, 27700912, 56521518, 65780303, 81132822, 100518937,
                                   120474864, 142052741, 163793416, 184135950, 219854666, 227756662,
                                   248975183, 271245822, 285569892, 318943450}));
}

TEST(NgramHash, EndOfTextCutsTheContextOfLaterTokensOnly) {
  const std::vector<TokenId> tokens = {9707, 11, 1879, 248044, 9707};
  EXPECT_EQ(RowsAt(tokens, 4), RowsAt(tokens, 0));
  const std::vector<TokenId> other = {5, 6, 248044, 7, 8};
  const std::vector<TokenId> alone = {7, 8};
  EXPECT_EQ(RowsAt(other, 4), RowsAt(alone, 1));
}

}  // namespace
}  // namespace hearth
