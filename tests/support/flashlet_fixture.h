// The small trained model as tests of engines and servers want it: its pack in a temporary
// directory, its tokenizer, and prompts of several kinds.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "tests/support/golden_file.h"
#include "tests/support/runner_fixture.h"

namespace hearth {

class Flashlet {
 public:
  // HEARTH_SOURCE_DIR, which headers do not know.
  explicit Flashlet(const std::string& source_dir)
      : source_dir_(source_dir), pack_(source_dir + "/profiles/flashlet", DenseChoice::kQ8) {
    absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(
        ReadFixtureFile(source_dir + "/profiles/flashlet/tokenizer.json"), "tokenizer.json");
    HEARTH_CHECK(tokenizer.ok());
    tokenizer_ = std::make_unique<Tokenizer>(*std::move(tokenizer));
  }
  const std::string& pack_dir() const { return pack_.dir(); }
  const Tokenizer& tokenizer() const { return *tokenizer_; }

  std::vector<TokenId> Tokens(const std::string& text) const {
    return tokenizer_->Encode(text, SpecialTokens::kParse);
  }
  // One user turn, as the model's own template writes it.
  std::vector<TokenId> Chat(const std::string& question) const {
    return Tokens("<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n");
  }
  // The first `count` tokens of a golden text: "code", "prose", "zh".
  std::vector<TokenId> Golden(const std::string& name, uint32_t count) const {
    const GoldenFile golden(source_dir_ + "/tests/golden/golden-nvfp4.safetensors");
    const std::vector<int32_t> ids = golden.Get<int32_t>(name + ".ids");
    HEARTH_CHECK(ids.size() >= count);
    return {ids.begin(), ids.begin() + count};
  }

 private:
  std::string source_dir_;
  TemporaryPack pack_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace hearth
