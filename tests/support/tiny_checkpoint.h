// T0: a generated model of the qwen4_exp shape, well under 1 MB, as a checkpoint directory in every
// dialect that the packer reads, together with the float64 values that its tensors stand for.
//
//   TinyCheckpoint tiny(TinyOptions::For(TinyExperts::kModelOptNvfp4));
//   tiny.SetNvfp4(LayerId(1), ExpertId(5), Projection::kUp, matrix);  // or tiny.Find(...),
//   SetJson(...) tiny.Write(dir.path()); tiny.expert(LayerId(1), ExpertId(5)).Evaluate(x); // the
//   oracle
//
// Everything is a function of the options: codes come from (seed, tensor name), so two dialects
// with the same seed hold the same dense weights, and the NVFP4 dialects the same experts.
// Encodings and the oracle are written here from the format documents alone; nothing is shared with
// pack/.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pack/format/expert_layout.h"
#include "runtime/base/ids.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {

enum class TinyExperts {
  kBf16Packed,              // experts.gate_up_proj, experts.down_proj
  kBf16Separate,            // experts.E.gate_proj.weight ...
  kF32Packed,               // as kBf16Packed in fp32
  kFp8,                     // weight, weight_scale_inv in BF16, 128 x 128 blocks
  kFp8F32Scales,            // the same with F32 scales
  kModelOptNvfp4,           // weight, weight_scale, weight_scale_2, input_scale
  kCompressedTensorsNvfp4,  // weight_packed, weight_scale, weight_global_scale, input_global_scale
  kModelOptNvfp4Csf,        // weight, weight_scale.nvfp4_csf_{fixed,exceptions}, weight_scale_2
};
enum class TinyDense { kBf16, kF32, kMxfp8 };  // kMxfp8: the attention and GDN matrices, rest BF16
enum class TinyNgram { kNone, kBf16, kF32, kFp8, kNvfp4 };
enum class TinyMtp { kNone, kBf16Packed, kF32Packed, kFp8 };

struct TinyOptions {
  TinyExperts experts = TinyExperts::kBf16Packed;
  TinyDense dense = TinyDense::kBf16;
  TinyNgram ngram = TinyNgram::kBf16;
  TinyMtp mtp = TinyMtp::kBf16Packed;
  uint64_t seed = 1;
  uint32_t layer_count = 4;  // every fourth one is QSA, the others GDN
  uint32_t expert_count = 8;
  uint32_t experts_per_token = 2;
  uint32_t hidden = 64;
  uint32_t width = 32;
  uint32_t vocab_count = 512;
  uint32_t shard_count = 2;             // 1: model.safetensors without an index
  bool language_model_prefix = true;    // "model.language_model." or "model."
  bool with_vision_and_buffers = true;  // tensors that a text engine drops
  // The combination in which such experts are published.
  static TinyOptions For(TinyExperts experts);
};

// One routed expert in float64: row-major gate, up (width, hidden) and down (hidden, width).
struct ExpertTruth {
  uint32_t hidden = 0;
  uint32_t width = 0;
  std::vector<double> gate, up, down;

  std::vector<double>& matrix(Projection p) {
    return p == Projection::kGate ? gate : (p == Projection::kUp ? up : down);
  }
  const std::vector<double>& matrix(Projection p) const {
    return p == Projection::kGate ? gate : (p == Projection::kUp ? up : down);
  }
  // down * (silu(gate * x) o (up * x)), all in float64.
  std::vector<double> Evaluate(std::span<const double> x) const;
};

// One NVFP4 matrix before it is written in some dialect.
struct TinyNvfp4 {
  std::vector<uint8_t> codes;   // (rows, cols), one E2M1 code each
  std::vector<uint8_t> scales;  // (rows, cols / 16), E4M3
  float divisor = 1;            // stored as such, or as the multiplier 1 / divisor in fp32
};

// Byte-level BPE without merges: ids 0..255 are the bytes, 256 <|endoftext|>, 257 <|im_start|>,
// 258 <|im_end|>, 259 <think>, 260 </think>. Generation stops on 258 and 256.
std::string TinyTokenizerJson();

class TinyCheckpoint {
 public:
  explicit TinyCheckpoint(const TinyOptions& options);

  // Files as they will be written; change them before Write().
  std::vector<FixtureTensor> tensors;  // shard k holds the k-th share, in this order
  std::map<std::string, std::string>
      texts;  // config.json, generation_config.json, tokenizer.json...

  FixtureTensor& Find(std::string_view full_name);  // fails the test when absent
  bool Has(std::string_view full_name) const;
  void Erase(std::string_view full_name);
  // Sets one value of a JSON text, by JSON pointer: SetJson("config.json",
  // "/text_config/hidden_act", "\"gelu\""). EraseJson removes it.
  void SetJson(const std::string& file, const std::string& pointer, std::string_view value_text);
  void EraseJson(const std::string& file, const std::string& pointer);
  // Replaces one expert matrix, tensors and truth; only where the experts are NVFP4 per expert.
  void SetNvfp4(LayerId layer, ExpertId expert, Projection p, const TinyNvfp4& matrix);
  TinyNvfp4 nvfp4(LayerId layer, ExpertId expert, Projection p) const;  // what was generated

  // Shards, index and texts into an existing directory.
  void Write(const std::string& dir) const;

  const TinyOptions& options() const { return options_; }
  std::string prefix() const;                     // of the trunk's tensors
  std::string ExpertPrefix(LayerId layer) const;  // full name up to "mlp.experts."
  const ExpertTruth& expert(LayerId layer, ExpertId expert) const;  // MTP: layer_count
  // By pack name ("layers.0.linear_attn.A_log"), row-major.
  const std::map<std::string, std::vector<double>>& dense() const { return dense_; }
  const std::vector<double>& ngram() const { return ngram_; }  // (rows, 16)
  uint64_t ngram_row_count() const;
  uint32_t ngram_row_dim() const { return options_.hidden / 4; }

 private:
  void AddBf16(const std::string& pack_name, std::vector<uint64_t> shape, double center,
               double spread, bool bare_name = false);
  void AddMatrix(const std::string& pack_name, uint64_t rows, uint64_t cols);
  void AddMxfp8(const std::string& pack_name, uint64_t rows, uint64_t cols);
  void AddHyperConnection(const std::string& pack_name, bool with_inject);
  void AddAttention(const std::string& pack_name);
  void AddGdn(const std::string& pack_name);
  void AddMoe(const std::string& pack_name);
  void AddNgram();
  void AddNgramTable(const std::string& table);
  void AddExperts(LayerId layer, TinyExperts kind);
  void AddPackedExperts(LayerId layer, bool f32);
  void AddSeparateBf16(LayerId layer);
  void AddFp8Experts(LayerId layer, bool f32_scales);
  void AddNvfp4Tensors(LayerId layer, ExpertId expert, Projection p, const TinyNvfp4& matrix);
  void AddMtp();
  void AddDropped();
  void AddTexts();
  std::string FullName(const std::string& pack_name) const;
  ExpertTruth& MutableExpert(LayerId layer, ExpertId expert);

  TinyOptions options_;
  std::map<std::string, std::vector<double>> dense_;
  std::map<ExpertKey, ExpertTruth> experts_;
  std::vector<double> ngram_;
};

}  // namespace hearth
