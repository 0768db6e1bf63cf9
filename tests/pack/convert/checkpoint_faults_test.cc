// Goal: every way in which a checkpoint can be wrong is refused with one line that names the file
// and the tensor or key. Method: damage one thing of the generated model and look at what Open() or
// a read says.
#include "pack/convert/checkpoint.h"

#include <cmath>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/safetensors_fixture.h"
#include "tests/support/tiny_checkpoint.h"

namespace hearth {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void ExpectRefusal(const absl::Status& status, absl::StatusCode code,
                   const std::vector<std::string>& parts) {
  EXPECT_EQ(status.code(), code) << status;
  const std::string message(status.message());
  EXPECT_THAT(message, Not(HasSubstr("\n")));
  for (const std::string& part : parts) EXPECT_THAT(message, HasSubstr(part));
}

absl::Status OpenStatus(const TinyCheckpoint& tiny, std::string* dir_path = nullptr) {
  const FixtureDir dir;
  tiny.Write(dir.path());
  if (dir_path != nullptr) *dir_path = dir.path();
  return Checkpoint::Open(dir.path()).status();
}

// Opens, then reads expert 0 of layer 0; the checkpoint has to open.
absl::Status ReadStatus(const TinyCheckpoint& tiny, uint32_t expert = 0) {
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = Checkpoint::Open(dir.path());
  if (!checkpoint.ok()) {
    ADD_FAILURE() << checkpoint.status();
    return checkpoint.status();
  }
  SourceExpert into;
  return (*checkpoint)->ReadExpert({LayerId(0), ExpertId(expert)}, into);
}

TinyCheckpoint Tiny(TinyExperts experts) { return TinyCheckpoint(TinyOptions::For(experts)); }

TEST(CheckpointFaults, MissingPartnersAreNamed) {
  struct Case {
    TinyExperts experts;
    const char* suffix;
  };
  for (const Case& c :
       {Case{TinyExperts::kModelOptNvfp4, "weight_scale"},
        Case{TinyExperts::kModelOptNvfp4, "weight_scale_2"},
        Case{TinyExperts::kCompressedTensorsNvfp4, "weight_scale"},
        Case{TinyExperts::kCompressedTensorsNvfp4, "weight_global_scale"},
        Case{TinyExperts::kModelOptNvfp4Csf, "weight_scale.nvfp4_csf_fixed"},
        Case{TinyExperts::kModelOptNvfp4Csf, "weight_scale.nvfp4_csf_exceptions"},
        Case{TinyExperts::kFp8, "weight_scale_inv"}, Case{TinyExperts::kModelOptNvfp4, "weight"},
        Case{TinyExperts::kBf16Separate, "weight"}}) {
    TinyCheckpoint tiny = Tiny(c.experts);
    tiny.Erase(tiny.ExpertPrefix(LayerId(2)) + "6.up_proj." + c.suffix);
    const std::string suffix =
        c.suffix == std::string("weight_scale_inv") ? "weight_scale" : c.suffix;
    ExpectRefusal(OpenStatus(tiny), absl::StatusCode::kNotFound,
                  {"layers.2.mlp.experts.6.up_proj." + suffix, "hearth-test-"});
  }
}

TEST(CheckpointFaults, MissingDenseTensorsAndExpertsAreNamed) {
  for (const char* name : {"embed_tokens.weight", "layers.3.self_attn.indexer.k_layernorm.weight",
                           "layers.0.linear_attn.A_log", "hyper_connection_mixer.hc_norm.weight"}) {
    TinyCheckpoint tiny{TinyOptions()};
    tiny.Erase(tiny.prefix() + name);
    ExpectRefusal(OpenStatus(tiny), absl::StatusCode::kNotFound, {name, "hearth-test-"});
  }
  TinyCheckpoint tiny{TinyOptions()};
  tiny.Erase("mtp.layers.0.mlp.experts.down_proj");
  ExpectRefusal(OpenStatus(tiny), absl::StatusCode::kNotFound,
                {"mtp.layers.0.mlp.experts.down_proj"});
}

TEST(CheckpointFaults, UnknownTensorsAreRefused) {
  TinyCheckpoint tiny{TinyOptions()};
  const std::vector<float> one = {1};
  tiny.tensors.push_back(F32Fixture(tiny.prefix() + "layers.0.input_layernorm.weight", {1}, one));
  ExpectRefusal(OpenStatus(tiny), absl::StatusCode::kInvalidArgument,
                {"1 tensors", "layers.0.input_layernorm.weight"});
}

// A scale beside a BF16 weight would silently be ignored otherwise.
TEST(CheckpointFaults, AScaleWithoutUseIsRefused) {
  TinyCheckpoint tiny{TinyOptions()};
  const std::vector<float> one = {0.5f};
  const std::string table = tiny.prefix() + "layers.1.ple.ple_embedding.ngram_embedding.";
  tiny.tensors.push_back(F32Fixture(table + "weight_scale", {1}, one));
  ExpectRefusal(OpenStatus(tiny), absl::StatusCode::kInvalidArgument,
                {"ngram_embedding.weight_scale"});
}

TEST(CheckpointFaults, WrongShapesAndDtypesSayWhatWasExpected) {
  TinyCheckpoint tiny{TinyOptions()};
  tiny.Find(tiny.prefix() + "layers.0.mlp.gate.weight").shape = {64, 8};
  ExpectRefusal(OpenStatus(tiny), absl::StatusCode::kInvalidArgument,
                {"layers.0.mlp.gate.weight", "expected [8, 64]", "found [64, 8] BF16"});

  TinyCheckpoint codes = Tiny(TinyExperts::kModelOptNvfp4);
  FixtureTensor& scale = codes.Find(codes.ExpertPrefix(LayerId(0)) + "0.gate_proj.weight_scale");
  scale.dtype = "U8";
  ExpectRefusal(OpenStatus(codes), absl::StatusCode::kInvalidArgument,
                {"experts.0.gate_proj.weight_scale", "F8_E4M3", "found [32, 4] U8"});

  TinyCheckpoint packed{TinyOptions()};
  packed.Find(packed.ExpertPrefix(LayerId(0)) + "gate_up_proj").dtype = "I16";
  ExpectRefusal(OpenStatus(packed), absl::StatusCode::kInvalidArgument,
                {"experts.gate_up_proj", "BF16", "I16"});
}

TEST(CheckpointFaults, ExpertsOfOneLayerInTwoFormatsAreRefused) {
  TinyCheckpoint tiny = Tiny(TinyExperts::kBf16Separate);
  const std::string name = tiny.ExpertPrefix(LayerId(1)) + "4.gate_proj.weight";
  const std::vector<float> values(32 * 64, 0.5f);
  tiny.Find(name) = F32Fixture(name, {32, 64}, values);
  ExpectRefusal(OpenStatus(tiny), absl::StatusCode::kInvalidArgument,
                {"layers.1.mlp.experts.4.gate_proj", "f32", "bf16"});
}

TEST(CheckpointFaults, Fp8ExpertsWithoutBlockScalesAreRefused) {
  TinyCheckpoint tiny = Tiny(TinyExperts::kFp8);
  const std::string name = tiny.ExpertPrefix(LayerId(0)) + "0.gate_proj.weight_scale";
  const std::vector<float> one = {0.5f};
  tiny.Find(name + "_inv") = F32Fixture(name, {1}, one);
  ExpectRefusal(OpenStatus(tiny), absl::StatusCode::kInvalidArgument,
                {"experts.0.gate_proj", "without 128 x 128 block scales"});
}

TEST(CheckpointFaults, BadScaleCodesAreDataLossWithPosition) {
  for (const uint8_t code : {0x7F, 0xFF, 0x80, 0x88}) {
    for (const TinyExperts experts :
         {TinyExperts::kModelOptNvfp4, TinyExperts::kModelOptNvfp4Csf}) {
      TinyCheckpoint tiny = Tiny(experts);
      TinyNvfp4 matrix = tiny.nvfp4(LayerId(0), ExpertId(0), Projection::kDown);
      matrix.scales[17 * 2 + 1] = code;  // (64, 2)
      tiny.SetNvfp4(LayerId(0), ExpertId(0), Projection::kDown, matrix);
      ExpectRefusal(ReadStatus(tiny), absl::StatusCode::kDataLoss,
                    {"layers.0.mlp.experts.0.down_proj.weight_scale", "row 17, column 1",
                     code == 0x7F || code == 0xFF ? "NaN" : "negative", ".safetensors"});
      EXPECT_EQ(ReadStatus(tiny, 1), absl::OkStatus());
    }
  }
}

TEST(CheckpointFaults, BadGlobalScalesAreRefused) {
  const float bad[] = {0.0f, -0.5f, std::nanf(""), INFINITY, -0.0f};
  for (const float value : bad) {
    for (const TinyExperts experts :
         {TinyExperts::kModelOptNvfp4, TinyExperts::kCompressedTensorsNvfp4}) {
      TinyCheckpoint tiny = Tiny(experts);
      const char* suffix =
          experts == TinyExperts::kModelOptNvfp4 ? "weight_scale_2" : "weight_global_scale";
      const std::string name = tiny.ExpertPrefix(LayerId(0)) + "0.up_proj." + suffix;
      tiny.Find(name) = F32Fixture(name, {1}, std::span(&value, 1));
      ExpectRefusal(ReadStatus(tiny), absl::StatusCode::kDataLoss, {name, "global scale"});
    }
  }
}

TEST(CheckpointFaults, ADivisorWhoseInverseOverflowsIsRefused) {
  TinyCheckpoint tiny = Tiny(TinyExperts::kCompressedTensorsNvfp4);
  const std::string name = tiny.ExpertPrefix(LayerId(0)) + "0.up_proj.weight_global_scale";
  const std::vector<float> tiniest = {1e-45f};
  tiny.Find(name) = F32Fixture(name, {}, tiniest);
  ExpectRefusal(ReadStatus(tiny), absl::StatusCode::kDataLoss, {name});
}

TEST(CheckpointFaults, BadFp8CodesAndScalesAreDataLossWithPosition) {
  TinyCheckpoint codes = Tiny(TinyExperts::kFp8);
  const std::string weight = codes.ExpertPrefix(LayerId(0)) + "0.gate_proj.weight";
  codes.Find(weight).data[3 * 64 + 9] = 0x7F;
  ExpectRefusal(ReadStatus(codes), absl::StatusCode::kDataLoss,
                {weight, "NaN code 0x7F at row 3, column 9"});
  for (const uint16_t bits : {0x7FC0, 0x7F80, 0xBF80}) {  // NaN, infinity, -1
    TinyCheckpoint scales = Tiny(TinyExperts::kFp8);
    scales.Find(weight + "_scale_inv").data = {static_cast<uint8_t>(bits & 0xFF),
                                               static_cast<uint8_t>(bits >> 8)};
    ExpectRefusal(ReadStatus(scales), absl::StatusCode::kDataLoss,
                  {weight + "_scale_inv", "row 0, column 0"});
  }
}

TEST(CheckpointFaults, BadCsfStreamsAreDataLoss) {
  const auto damaged = [](const std::function<void(FixtureTensor&, FixtureTensor&)>& damage) {
    TinyCheckpoint tiny = Tiny(TinyExperts::kModelOptNvfp4Csf);
    const std::string scale = tiny.ExpertPrefix(LayerId(0)) + "0.gate_proj.weight_scale.";
    damage(tiny.Find(scale + "nvfp4_csf_fixed"), tiny.Find(scale + "nvfp4_csf_exceptions"));
    return ReadStatus(tiny);
  };
  ExpectRefusal(damaged([](FixtureTensor& fixed, FixtureTensor&) { fixed.data[3] = 241; }),
                absl::StatusCode::kDataLoss, {"nvfp4_csf_fixed", "base 241 of row 3"});
  ExpectRefusal(damaged([](FixtureTensor&, FixtureTensor& exceptions) {
                  const std::vector<uint32_t> list = {32 * 4};
                  exceptions = U32Fixture(exceptions.name, list);
                }),
                absl::StatusCode::kDataLoss, {"exception 0", "position 128 of 128"});
  ExpectRefusal(damaged([](FixtureTensor&, FixtureTensor& exceptions) {
                  const std::vector<uint32_t> list = {5, 5};
                  exceptions = U32Fixture(exceptions.name, list);
                }),
                absl::StatusCode::kDataLoss, {"exception 1", "does not ascend"});
}

TEST(CheckpointFaults, DenseValuesThatAreNotFiniteAreDataLoss) {
  TinyCheckpoint tiny{TinyOptions()};
  FixtureTensor& gate = tiny.Find(tiny.prefix() + "layers.0.mlp.gate.weight");
  gate.data[2 * (2 * 64 + 5)] = 0xC0;
  gate.data[2 * (2 * 64 + 5) + 1] = 0x7F;
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_EQ(checkpoint.status(), absl::OkStatus());
  std::vector<float> rows(2 * 64);
  EXPECT_EQ((*checkpoint)->ReadDenseRows("layers.0.mlp.gate", 0, 2, rows), absl::OkStatus());
  ExpectRefusal((*checkpoint)->ReadDenseRows("layers.0.mlp.gate", 1, 2, rows),
                absl::StatusCode::kDataLoss, {"layers.0.mlp.gate.weight", "row 2, column 5"});
}

TEST(CheckpointFaults, Mxfp8ScaleThatIsNanIsDataLoss) {
  TinyCheckpoint tiny = Tiny(TinyExperts::kModelOptNvfp4Csf);
  tiny.Find(tiny.prefix() + "layers.3.self_attn.q_proj.weight_scale").data[5] = 0xFF;
  const FixtureDir dir;
  tiny.Write(dir.path());
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_EQ(checkpoint.status(), absl::OkStatus());
  std::vector<float> values(256 * 64);
  ExpectRefusal((*checkpoint)->ReadDenseRows("layers.3.self_attn.q_proj", 0, 256, values),
                absl::StatusCode::kDataLoss, {"self_attn.q_proj", "0xFF", "row 2, column 32"});
}

TEST(CheckpointFaults, NgramTableNeedsItsScaleAndAllItsShards) {
  TinyCheckpoint scale = Tiny(TinyExperts::kModelOptNvfp4);
  const std::string table = scale.prefix() + "layers.1.ple.ple_embedding.ngram_embedding.";
  scale.Erase(table + "weight_scale");
  ExpectRefusal(OpenStatus(scale), absl::StatusCode::kNotFound, {"ngram_embedding.weight_scale"});

  TinyCheckpoint shard{TinyOptions()};
  shard.Erase(table + "shard_1.weight");
  ExpectRefusal(OpenStatus(shard), absl::StatusCode::kNotFound, {"shard_1.weight"});
  shard.EraseJson("config.json", "/text_config/split_ngram_parts");
  ExpectRefusal(OpenStatus(shard), absl::StatusCode::kInvalidArgument,
                {"ngram.head_offsets", "config.json"});
}

TEST(CheckpointFaults, NgramRowsWithNanAreDataLoss) {
  for (const TinyExperts experts :
       {TinyExperts::kBf16Packed, TinyExperts::kModelOptNvfp4, TinyExperts::kModelOptNvfp4Csf}) {
    TinyCheckpoint tiny = Tiny(experts);
    const std::string shard = tiny.prefix() + "layers.1.ple.ple_embedding.ngram_embedding.shard_1.";
    const bool is_nvfp4 = experts == TinyExperts::kModelOptNvfp4Csf;
    FixtureTensor& t = tiny.Find(shard + (is_nvfp4 ? "weight_scale" : "weight"));
    t.data[t.data.size() - 1] = 0x7F;
    t.data[t.data.size() - 2] = 0xFF;
    const FixtureDir dir;
    tiny.Write(dir.path());
    const auto checkpoint = Checkpoint::Open(dir.path());
    ASSERT_EQ(checkpoint.status(), absl::OkStatus());
    std::vector<std::byte> rows(2 * (*checkpoint)->ngram().row_bytes);
    EXPECT_EQ((*checkpoint)->ReadNgramRows(400, 2, rows), absl::OkStatus());
    ExpectRefusal((*checkpoint)->ReadNgramRows(422, 2, rows), absl::StatusCode::kDataLoss,
                  {"shard_1.weight", is_nvfp4 ? "row 210" : "row 211"});
  }
}

TEST(CheckpointFaults, HashConstantsOutOfBoundsAreRefused) {
  const std::string embedding = "model.language_model.layers.1.ple.ple_embedding.";
  struct Case {
    const char* name;
    std::vector<uint64_t> values;
    const char* part;
  };
  const Case cases[] = {
      {"layer_multipliers", {1, uint64_t{1} << 60, 1}, "ngram.multipliers"},
      {"layer_multipliers", {1, uint64_t{1} << 63, 1}, "value 1 is negative"},
      {"layer_multipliers", {1, 3}, "expected [3]"},
      {"ngram_heads_offsets", {0, 101, 204, 400}, "ngram.head_offsets"},
      {"ngram_heads_vocab_sizes", {101, 0, 107, 109}, "ngram.head_rows"},
  };
  for (const Case& c : cases) {
    TinyCheckpoint tiny{TinyOptions()};
    tiny.Find(embedding + c.name) = I64Fixture(embedding + c.name, c.values);
    const absl::Status status = OpenStatus(tiny);
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.part));
  }
}

TEST(CheckpointFaults, ConfigurationAndTensorsMustAgree) {
  TinyCheckpoint listed = Tiny(TinyExperts::kModelOptNvfp4Csf);
  listed.SetJson(
      "hf_quant_config.json",
      "/quantization/quantized_layers/model.language_model.layers.2.mlp.experts/quant_algo",
      "\"FP8_BLOCK_SCALES\"");
  listed.EraseJson(
      "hf_quant_config.json",
      "/quantization/quantized_layers/model.language_model.layers.2.mlp.experts/group_size");
  ExpectRefusal(OpenStatus(listed), absl::StatusCode::kInvalidArgument,
                {"layers.2.mlp.experts.0.gate_proj", "FP8_BLOCK_SCALES", "NVFP4"});

  TinyCheckpoint plain = Tiny(TinyExperts::kBf16Packed);
  plain.SetJson("config.json", "/quantization_config",
                R"({"quant_method":"modelopt","quant_algo":"NVFP4","group_size":16})");
  ExpectRefusal(OpenStatus(plain), absl::StatusCode::kInvalidArgument,
                {"experts.gate_up_proj", "NVFP4", "bf16"});
  plain.SetJson("config.json", "/quantization_config/ignore", R"(["*mlp.experts*"])");
  EXPECT_EQ(OpenStatus(plain), absl::OkStatus());
}

TEST(CheckpointFaults, TheSameTensorUnderTwoPrefixesIsRefused) {
  TinyCheckpoint tiny{TinyOptions()};
  FixtureTensor copy = tiny.Find(tiny.prefix() + "layers.0.mlp.gate.weight");
  copy.name = "model.layers.0.mlp.gate.weight";
  tiny.tensors.push_back(copy);
  ExpectRefusal(OpenStatus(tiny), absl::StatusCode::kInvalidArgument,
                {"model.layers.0.mlp.gate.weight", "the same as"});
}

TEST(CheckpointFaults, DirectoriesThatAreNoCheckpointAreNamed) {
  const FixtureDir empty;
  ExpectRefusal(Checkpoint::Open(empty.path()).status(), absl::StatusCode::kNotFound,
                {empty.path() + "/config.json"});
  WriteFixtureFile(empty.File("config.json"), "{");
  ExpectRefusal(Checkpoint::Open(empty.path()).status(), absl::StatusCode::kInvalidArgument,
                {empty.path() + "/config.json"});
  TinyCheckpoint tiny{TinyOptions()};
  WriteFixtureFile(empty.File("config.json"), tiny.texts.at("config.json"));
  ExpectRefusal(Checkpoint::Open(empty.path()).status(), absl::StatusCode::kNotFound,
                {empty.path(), "no .safetensors file"});
}

}  // namespace
}  // namespace hearth
