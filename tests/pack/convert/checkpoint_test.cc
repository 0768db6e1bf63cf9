// Goal: whatever the dialect, the values that a Checkpoint hands out are those that the generated
// model stands for, exactly. The truth is float64 from tests/support, which shares no code with the
// reader; each fp32 value must be that truth rounded once.
#include "pack/convert/checkpoint.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pack/format/expert_layout.h"
#include "pack/quant/fp8_source.h"
#include "pack/quant/nvfp4_source.h"
#include "tests/support/safetensors_fixture.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/support/tiny_codecs.h"

namespace hearth {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<Checkpoint> OpenOrFail(const std::string& dir) {
  absl::StatusOr<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::Open(dir);
  if (checkpoint.ok()) return *std::move(checkpoint);
  ADD_FAILURE() << checkpoint.status();
  return nullptr;
}

std::vector<float> Rounded(const std::vector<double>& truth) {
  return {truth.begin(), truth.end()};
}

std::vector<float> ValuesOf(ExpertFormat format, const SourceMatrix& m) {
  if (format == ExpertFormat::kBf16 || format == ExpertFormat::kF32) return m.values;
  std::vector<float> values(size_t{m.rows} * m.cols);
  if (format == ExpertFormat::kNvfp4) {
    DecodeNvfp4(m.codes, m.scales, m.multiplier, values);
    return values;
  }
  const size_t block_cols = (m.cols + 127) / 128;
  for (size_t r = 0; r < m.rows; ++r) {
    DecodeFp8BlockRow(std::span(m.codes).subspan(r * m.cols, m.cols),
                      std::span(m.block_scales).subspan(r / 128 * block_cols, block_cols),
                      std::span(values).subspan(r * m.cols, m.cols));
  }
  return values;
}

void ExpectExpertsMatch(const Checkpoint& checkpoint, const TinyCheckpoint& tiny) {
  SourceExpert expert;  // reused across formats on purpose
  const uint32_t layers = checkpoint.geometry().layer_count_with_mtp();
  for (uint32_t layer = 0; layer < layers; ++layer) {
    for (uint32_t e = 0; e < tiny.options().expert_count; ++e) {
      const ExpertKey key{LayerId(layer), ExpertId(e)};
      ASSERT_EQ(checkpoint.ReadExpert(key, expert), absl::OkStatus());
      EXPECT_EQ(expert.format, checkpoint.expert_format(key.layer));
      const ExpertTruth& truth = tiny.expert(key.layer, key.expert);
      EXPECT_EQ(expert.gate.rows, truth.width);
      EXPECT_EQ(expert.down.rows, truth.hidden);
      EXPECT_EQ(ValuesOf(expert.format, expert.gate), Rounded(truth.gate)) << layer << " " << e;
      EXPECT_EQ(ValuesOf(expert.format, expert.up), Rounded(truth.up)) << layer << " " << e;
      EXPECT_EQ(ValuesOf(expert.format, expert.down), Rounded(truth.down)) << layer << " " << e;
    }
  }
}

void ExpectDenseMatches(const Checkpoint& checkpoint, const TinyCheckpoint& tiny) {
  EXPECT_EQ(checkpoint.dense().size(), tiny.dense().size());
  for (const DenseInfo& info : checkpoint.dense()) {
    const auto it = tiny.dense().find(info.name);
    ASSERT_NE(it, tiny.dense().end()) << info.name;
    std::vector<float> values(info.rows * info.cols);
    ASSERT_EQ(checkpoint.ReadDenseRows(info.name, 0, info.rows, values), absl::OkStatus());
    EXPECT_EQ(values, Rounded(it->second)) << info.name;
    EXPECT_EQ(info.is_f32_source, tiny.options().dense == TinyDense::kF32) << info.name;
  }
}

std::vector<double> NgramValues(const NgramSource& source, std::span<const std::byte> rows) {
  std::vector<double> values;
  const auto byte = [&](uint64_t i) { return std::to_integer<uint8_t>(rows[i]); };
  for (uint64_t r = 0; r < rows.size(); r += source.row_bytes) {
    for (uint32_t i = 0; i < source.row_dim; ++i) {
      switch (source.format) {
        case NgramRowFormat::kBf16:
          values.push_back(
              TinyBf16(static_cast<uint16_t>(byte(r + 2 * i) | byte(r + 2 * i + 1) << 8)));
          break;
        case NgramRowFormat::kF32: {
          float value = 0;
          std::memcpy(&value, &rows[r + 4 * i], 4);
          values.push_back(value);
          break;
        }
        case NgramRowFormat::kFp8:
          values.push_back(TinyE4m3(byte(r + i)) * double{source.scale});
          break;
        case NgramRowFormat::kNvfp4: {
          const uint8_t pair = byte(r + i / 2);
          const uint8_t scale = byte(r + source.row_dim / 2 + i / 16);
          values.push_back(TinyE2m1(i % 2 == 0 ? pair & 15 : pair >> 4) * TinyE4m3(scale) *
                           double{source.scale});
          break;
        }
      }
    }
  }
  return values;
}

void ExpectNgramMatches(const Checkpoint& checkpoint, const TinyCheckpoint& tiny) {
  const NgramSource& source = checkpoint.ngram();
  ASSERT_EQ(source.row_count, tiny.ngram_row_count());
  ASSERT_EQ(source.row_dim, tiny.ngram_row_dim());
  std::vector<std::byte> rows(source.row_count * source.row_bytes);
  ASSERT_EQ(checkpoint.ReadNgramRows(0, source.row_count, rows), absl::OkStatus());
  EXPECT_EQ(NgramValues(source, rows), tiny.ngram());
  // A range that starts in the first shard and ends in the second.
  std::vector<std::byte> part(7 * source.row_bytes);
  ASSERT_EQ(checkpoint.ReadNgramRows(209, 7, part), absl::OkStatus());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), rows.begin() + 209 * source.row_bytes));
}

struct DialectCase {
  TinyExperts experts;
  const char* dialect;
  ExpertFormat trunk;
  ExpertFormat mtp;
  NgramRowFormat ngram;
};

void PrintTo(const DialectCase& c, std::ostream* out) { *out << c.dialect; }

class Dialects : public ::testing::TestWithParam<DialectCase> {};

TEST_P(Dialects, EveryValueEqualsTheTruth) {
  const DialectCase& c = GetParam();
  for (const bool prefix : {true, false}) {
    TinyOptions options = TinyOptions::For(c.experts);
    options.language_model_prefix = prefix;
    const TinyCheckpoint tiny(options);
    const FixtureDir dir;
    tiny.Write(dir.path());
    const auto checkpoint = OpenOrFail(dir.path());
    ASSERT_NE(checkpoint, nullptr);
    EXPECT_EQ(checkpoint->dialect(), c.dialect);
    EXPECT_EQ(checkpoint->expert_format(LayerId(0)), c.trunk);
    EXPECT_EQ(checkpoint->expert_format(LayerId(options.layer_count)), c.mtp);
    EXPECT_EQ(checkpoint->ngram().format, c.ngram);
    ExpectExpertsMatch(*checkpoint, tiny);
    ExpectDenseMatches(*checkpoint, tiny);
    ExpectNgramMatches(*checkpoint, tiny);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Dialects,
    ::testing::Values(DialectCase{TinyExperts::kBf16Packed, "bf16", ExpertFormat::kBf16,
                                  ExpertFormat::kBf16, NgramRowFormat::kBf16},
                      DialectCase{TinyExperts::kBf16Separate, "bf16", ExpertFormat::kBf16,
                                  ExpertFormat::kBf16, NgramRowFormat::kBf16},
                      DialectCase{TinyExperts::kF32Packed, "f32", ExpertFormat::kF32,
                                  ExpertFormat::kF32, NgramRowFormat::kF32},
                      DialectCase{TinyExperts::kFp8, "fp8", ExpertFormat::kFp8, ExpertFormat::kFp8,
                                  NgramRowFormat::kFp8},
                      DialectCase{TinyExperts::kFp8F32Scales, "fp8", ExpertFormat::kFp8,
                                  ExpertFormat::kFp8, NgramRowFormat::kFp8},
                      DialectCase{TinyExperts::kModelOptNvfp4, "modelopt-nvfp4",
                                  ExpertFormat::kNvfp4, ExpertFormat::kBf16, NgramRowFormat::kFp8},
                      DialectCase{TinyExperts::kCompressedTensorsNvfp4, "compressed-tensors-nvfp4",
                                  ExpertFormat::kNvfp4, ExpertFormat::kBf16, NgramRowFormat::kBf16},
                      DialectCase{TinyExperts::kModelOptNvfp4Csf, "modelopt-nvfp4",
                                  ExpertFormat::kNvfp4, ExpertFormat::kFp8,
                                  NgramRowFormat::kNvfp4}));

TEST(Checkpoint, Fp8BlocksBeyondOneHundredTwentyEightUseTheirOwnScales) {
  TinyOptions options = TinyOptions::For(TinyExperts::kFp8);
  options.hidden = 192;
  options.width = 160;
  options.expert_count = 2;
  options.layer_count = 1;
  options.ngram = TinyNgram::kNone;
  const TinyCheckpoint tiny(options);
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = OpenOrFail(dir.path());
  ASSERT_NE(checkpoint, nullptr);
  SourceExpert expert;
  ASSERT_EQ(checkpoint->ReadExpert({LayerId(0), ExpertId(1)}, expert), absl::OkStatus());
  EXPECT_EQ(expert.gate.block_scales.size(), 4u);
  ExpectExpertsMatch(*checkpoint, tiny);
}

TEST(Checkpoint, BothNvfp4DialectsGiveTheSameBits) {
  const TinyCheckpoint modelopt(TinyOptions::For(TinyExperts::kModelOptNvfp4));
  const TinyCheckpoint foreign(TinyOptions::For(TinyExperts::kCompressedTensorsNvfp4));
  const FixtureDir modelopt_dir, foreign_dir;
  modelopt.Write(modelopt_dir.path());
  foreign.Write(foreign_dir.path());
  const auto a = OpenOrFail(modelopt_dir.path());
  const auto b = OpenOrFail(foreign_dir.path());
  ASSERT_TRUE(a != nullptr && b != nullptr);
  SourceExpert x, y;
  for (uint32_t e = 0; e < 8; ++e) {
    const ExpertKey key{LayerId(2), ExpertId(e)};
    ASSERT_EQ(a->ReadExpert(key, x), absl::OkStatus());
    ASSERT_EQ(b->ReadExpert(key, y), absl::OkStatus());
    EXPECT_EQ(x.up.multiplier, y.up.multiplier);
    EXPECT_EQ(ValuesOf(x.format, x.up), ValuesOf(y.format, y.up));
    EXPECT_EQ(ValuesOf(x.format, x.down), ValuesOf(y.format, y.down));
  }
}

TEST(Checkpoint, OneExpertInTheOtherNvfp4DialectWorks) {
  TinyCheckpoint tiny(TinyOptions::For(TinyExperts::kModelOptNvfp4));
  const std::string up = tiny.ExpertPrefix(LayerId(1)) + "5.up_proj.";
  const float multiplier = 1.0f / tiny.nvfp4(LayerId(1), ExpertId(5), Projection::kUp).divisor;
  const std::vector<float> divisor = {1.0f / multiplier};
  ASSERT_EQ(1.0f / divisor[0], multiplier);
  tiny.Find(up + "weight").name = up + "weight_packed";
  tiny.Find(up + "weight_scale_2") = F32Fixture(up + "weight_global_scale", {}, divisor);
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = OpenOrFail(dir.path());
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(checkpoint->dialect(), "compressed-tensors-nvfp4+modelopt-nvfp4");
  ExpectExpertsMatch(*checkpoint, tiny);
}

TEST(Checkpoint, GateAndUpKeepTheirOwnGlobalScales) {
  TinyCheckpoint tiny(TinyOptions::For(TinyExperts::kModelOptNvfp4));
  TinyNvfp4 gate = tiny.nvfp4(LayerId(0), ExpertId(3), Projection::kGate);
  TinyNvfp4 up = tiny.nvfp4(LayerId(0), ExpertId(3), Projection::kUp);
  gate.divisor = 1;
  up.divisor = 4;
  tiny.SetNvfp4(LayerId(0), ExpertId(3), Projection::kGate, gate);
  tiny.SetNvfp4(LayerId(0), ExpertId(3), Projection::kUp, up);
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = OpenOrFail(dir.path());
  ASSERT_NE(checkpoint, nullptr);
  SourceExpert expert;
  ASSERT_EQ(checkpoint->ReadExpert({LayerId(0), ExpertId(3)}, expert), absl::OkStatus());
  EXPECT_EQ(expert.gate.multiplier, 1.0f);
  EXPECT_EQ(expert.up.multiplier, 0.25f);
  ExpectExpertsMatch(*checkpoint, tiny);
}

// Products of a small block scale and a small global scale are below what FP16 can hold.
TEST(Checkpoint, SmallScalesAreNotFlushed) {
  TinyCheckpoint tiny(TinyOptions::For(TinyExperts::kModelOptNvfp4));
  const auto set = [&](uint32_t e, float divisor, uint8_t first_code, uint8_t code_count) {
    TinyNvfp4 matrix = tiny.nvfp4(LayerId(0), ExpertId(e), Projection::kGate);
    matrix.divisor = divisor;
    for (size_t i = 0; i < matrix.scales.size(); ++i) {
      matrix.scales[i] = static_cast<uint8_t>(first_code + i % code_count);
    }
    tiny.SetNvfp4(LayerId(0), ExpertId(e), Projection::kGate, matrix);
  };
  set(0, 1e6f, 0x08, 1);
  set(1, 1e5f, 0x01, 1);
  set(2, 1e5f, 0x01, 7);
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = OpenOrFail(dir.path());
  ASSERT_NE(checkpoint, nullptr);
  ExpectExpertsMatch(*checkpoint, tiny);
}

TEST(Checkpoint, InputScalesAreNeverRead) {
  TinyCheckpoint tiny(TinyOptions::For(TinyExperts::kModelOptNvfp4));
  const std::string expert = tiny.ExpertPrefix(LayerId(0)) + "5.";
  tiny.Erase(expert + "gate_proj.input_scale");
  const std::vector<float> bad[] = {{0.0f}, {-1.0f}, {std::nanf("")}, {1e-45f}};
  tiny.Find(expert + "up_proj.input_scale") =
      F32Fixture(expert + "up_proj.input_scale", {1}, bad[0]);
  for (uint32_t e = 0; e < 4; ++e) {
    const std::string name =
        tiny.ExpertPrefix(LayerId(1)) + std::to_string(e) + ".up_proj.input_scale";
    tiny.Find(name) = F32Fixture(name, {}, bad[e]);
  }
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = OpenOrFail(dir.path());
  ASSERT_NE(checkpoint, nullptr);
  ExpectExpertsMatch(*checkpoint, tiny);
}

TEST(Checkpoint, GlobalScaleMayBeScalarOrOneValue) {
  TinyCheckpoint tiny(TinyOptions::For(TinyExperts::kModelOptNvfp4));
  for (const char* p : {"gate_proj", "down_proj"}) {
    tiny.Find(tiny.ExpertPrefix(LayerId(0)) + "1." + p + ".weight_scale_2").shape = {1};
  }
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = OpenOrFail(dir.path());
  ASSERT_NE(checkpoint, nullptr);
  ExpectExpertsMatch(*checkpoint, tiny);
}

TEST(Checkpoint, RowsAreReadOnTheirOwn) {
  for (const TinyExperts kind : {TinyExperts::kBf16Packed, TinyExperts::kModelOptNvfp4Csf}) {
    const TinyCheckpoint tiny(TinyOptions::For(kind));
    const FixtureDir dir;
    tiny.Write(dir.path());
    const auto checkpoint = OpenOrFail(dir.path());
    ASSERT_NE(checkpoint, nullptr);
    for (const char* name : {"layers.3.self_attn.q_proj", "layers.0.linear_attn.conv1d"}) {
      const std::vector<float> all = Rounded(tiny.dense().at(name));
      const uint64_t rows = std::string_view(name).ends_with("q_proj") ? 256 : 160;
      const uint64_t cols = all.size() / rows;
      std::vector<float> some(3 * cols, -7);
      ASSERT_EQ(checkpoint->ReadDenseRows(name, 41, 3, some), absl::OkStatus());
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 41 * cols)) << name;
    }
  }
}

TEST(Checkpoint, BadRangesAndNamesAreErrors) {
  const TinyCheckpoint tiny{TinyOptions()};
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = OpenOrFail(dir.path());
  ASSERT_NE(checkpoint, nullptr);
  std::vector<float> values(64);
  std::vector<std::byte> rows(checkpoint->ngram().row_bytes);
  EXPECT_EQ(checkpoint->ReadDenseRows("lm_head", 512, 1, values).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(checkpoint->ReadDenseRows("lm_head", UINT64_MAX, 2, values).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(checkpoint->ReadDenseRows("lm_tail", 0, 1, values).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(checkpoint->ReadNgramRows(424, 1, rows).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(checkpoint->ReadText("no_such_file.json").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(checkpoint->ReadText("../config.json").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(checkpoint->ReadText("generation_config.json").value(), HasSubstr("eos_token_id"));
}

TEST(Checkpoint, GeometryComesFromConfigAndTensors) {
  const TinyCheckpoint tiny(TinyOptions::For(TinyExperts::kModelOptNvfp4));
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = OpenOrFail(dir.path());
  ASSERT_NE(checkpoint, nullptr);
  const ModelGeometry& g = checkpoint->geometry();
  EXPECT_EQ(g.Validate(), absl::OkStatus());
  EXPECT_EQ(g.vocab_count, 512u);
  EXPECT_EQ(g.hidden, 64u);
  EXPECT_THAT(g.layers,
              ElementsAre(MixerKind::kGdn, MixerKind::kGdn, MixerKind::kGdn, MixerKind::kQsa));
  EXPECT_EQ(g.attention.rotary_dim, 8u);
  EXPECT_EQ(g.attention.rope_theta, 10000.0);
  EXPECT_EQ(g.attention.block_count_max, 4u);
  EXPECT_EQ(g.gdn.output_gate, OutputGate::kSigmoid);
  EXPECT_TRUE(g.moe.renormalise);
  EXPECT_TRUE(g.has_mtp);
  EXPECT_EQ(g.mtp_rope_theta, 20000.0);
  EXPECT_EQ(g.ngram.layer, 1u);
  EXPECT_EQ(g.ngram.eos_token, 256);
  EXPECT_EQ(g.ngram.row_count, 424u);
  EXPECT_THAT(g.ngram.head_rows, ElementsAre(101, 103, 107, 109));
  EXPECT_THAT(g.ngram.head_offsets, ElementsAre(0, 101, 204, 311));
  EXPECT_THAT(g.stop_tokens, ElementsAre(258, 256));
}

TEST(Checkpoint, HashConstantsAreDerivedOnlyWhenTheFileHasNone) {
  TinyCheckpoint tiny{TinyOptions()};
  const std::string embedding = tiny.prefix() + "layers.1.ple.ple_embedding.";
  const FixtureDir stored, changed, derived;
  tiny.Write(stored.path());
  const std::vector<uint64_t> other = {1, 3, 5};
  const FixtureTensor original = tiny.Find(embedding + "layer_multipliers");
  tiny.Find(embedding + "layer_multipliers") = I64Fixture(embedding + "layer_multipliers", other);
  tiny.Write(changed.path());
  for (const char* name : {"layer_multipliers", "ngram_heads_vocab_sizes", "ngram_heads_offsets"}) {
    tiny.Erase(embedding + name);
  }
  tiny.Write(derived.path());
  const auto a = OpenOrFail(stored.path());
  const auto b = OpenOrFail(changed.path());
  const auto c = OpenOrFail(derived.path());
  ASSERT_TRUE(a != nullptr && b != nullptr && c != nullptr);
  EXPECT_EQ(b->geometry().ngram.multipliers, other);
  EXPECT_EQ(c->geometry().ngram.multipliers, a->geometry().ngram.multipliers);
  EXPECT_EQ(c->geometry().ngram.head_rows, a->geometry().ngram.head_rows);
  EXPECT_EQ(c->geometry().ngram.head_offsets, a->geometry().ngram.head_offsets);
}

TEST(Checkpoint, AbsentPartsAreNotAnError) {
  TinyOptions options;
  options.ngram = TinyNgram::kNone;
  options.mtp = TinyMtp::kNone;
  options.shard_count = 1;
  const TinyCheckpoint tiny(options);
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = OpenOrFail(dir.path());
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_EQ(checkpoint->ngram().row_count, 0u);
  EXPECT_EQ(checkpoint->geometry().ngram.row_count, 0u);
  EXPECT_FALSE(checkpoint->geometry().has_mtp);
  ExpectExpertsMatch(*checkpoint, tiny);
  ExpectDenseMatches(*checkpoint, tiny);
}

TEST(Checkpoint, ConfigWithMtpAndFileWithoutMeansNoMtp) {
  TinyCheckpoint tiny{TinyOptions()};
  std::erase_if(tiny.tensors, [](const FixtureTensor& t) { return t.name.starts_with("mtp."); });
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = OpenOrFail(dir.path());
  ASSERT_NE(checkpoint, nullptr);
  EXPECT_FALSE(checkpoint->geometry().has_mtp);
}

TEST(Checkpoint, TiedHeadReadsTheEmbedding) {
  TinyCheckpoint tiny{TinyOptions()};
  tiny.Erase("lm_head.weight");
  tiny.SetJson("config.json", "/tie_word_embeddings", "true");
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = OpenOrFail(dir.path());
  ASSERT_NE(checkpoint, nullptr);
  std::vector<float> head(512 * 64);
  ASSERT_EQ(checkpoint->ReadDenseRows("lm_head", 0, 512, head), absl::OkStatus());
  EXPECT_EQ(head, Rounded(tiny.dense().at("embed_tokens")));
}

// F16 has mantissa bits that BF16 lacks.
TEST(Checkpoint, F16WeightsAreExactAndCountAsF32) {
  TinyCheckpoint tiny{TinyOptions()};
  const std::string gate = tiny.prefix() + "layers.0.mlp.gate.weight";
  std::vector<uint16_t> codes(8 * 64, 0x3C01);  // 1 + 2^-10
  tiny.Find(gate) = Bf16Fixture(gate, {8, 64}, codes);
  tiny.Find(gate).dtype = "F16";
  for (const char* part : {"gate_up_proj", "down_proj"}) {
    FixtureTensor& packed = tiny.Find(tiny.ExpertPrefix(LayerId(0)) + part);
    packed.dtype = "F16";
    for (size_t i = 0; i < packed.data.size(); ++i) packed.data[i] = i % 2 == 0 ? 0x01 : 0xBC;
  }
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = OpenOrFail(dir.path());
  ASSERT_NE(checkpoint, nullptr);
  std::vector<float> values(8 * 64);
  ASSERT_EQ(checkpoint->ReadDenseRows("layers.0.mlp.gate", 0, 8, values), absl::OkStatus());
  EXPECT_THAT(values, Each(1.0f + 0x1p-10f));
  for (const DenseInfo& info : checkpoint->dense()) {
    EXPECT_EQ(info.is_f32_source, info.name == "layers.0.mlp.gate") << info.name;
  }
  SourceExpert expert;
  ASSERT_EQ(checkpoint->ReadExpert({LayerId(0), ExpertId(7)}, expert), absl::OkStatus());
  EXPECT_EQ(expert.format, ExpertFormat::kF32);
  EXPECT_THAT(expert.down.values, Each(-1.0f - 0x1p-10f));
}

TEST(Checkpoint, ContentHashDependsOnEveryByte) {
  const TinyCheckpoint tiny{TinyOptions()};
  const FixtureDir one, two;
  tiny.Write(one.path());
  tiny.Write(two.path());
  const std::string first = OpenOrFail(one.path())->ContentHash(nullptr).value();
  EXPECT_EQ(first.size(), 32u);
  EXPECT_EQ(OpenOrFail(two.path())->ContentHash(nullptr).value(), first);
  const std::string shard = two.File("model-00002-of-00002.safetensors");
  std::string bytes = ReadFixtureFile(shard);
  bytes[bytes.size() - 1] ^= 1;
  WriteFixtureFile(shard, bytes);
  EXPECT_NE(OpenOrFail(two.path())->ContentHash(nullptr).value(), first);
}

}  // namespace
}  // namespace hearth
