// Hostile tokenizer.json files, split patterns and texts. The first byte chooses which: an accepted
// file must encode and decode, an accepted pattern must cut without loss, and any text must come
// back.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/model/tokenizer/byte_alphabet.h"
#include "runtime/model/tokenizer/splitter.h"
#include "runtime/model/tokenizer/stream_decoder.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/model/tokenizer/utf8.h"

namespace {

using hearth::SkipSpecial;
using hearth::SpecialTokens;
using hearth::TokenId;
using hearth::Tokenizer;

std::string Repaired(std::string_view bytes) {
  std::string text;
  hearth::AppendReplacingBroken(bytes, text);
  return text;
}

// All bytes, a few merges, two added tokens and the split pattern of the Qwen family.
std::string FixedFile() {
  std::string vocab;
  for (char32_t c = 0; c < hearth::kByteAlphabetEnd; ++c) {
    const auto byte = hearth::ByteOfStandIn(c);
    if (!byte) continue;
    vocab += '"';
    if (c == '"' || c == '\\') vocab += '\\';
    hearth::AppendUtf8(c, vocab);
    vocab += "\":" + std::to_string(*byte) + ",";
  }
  return R"({"added_tokens":[{"id":260,"content":"<s>","single_word":false,"lstrip":false,)"
         R"("rstrip":false,"normalized":false,"special":true},{"id":261,"content":"<s>x",)"
         R"("single_word":false,"lstrip":false,"rstrip":false,"normalized":false,)"
         R"("special":false}],"pre_tokenizer":{"type":"Sequence","pretokenizers":[)"
         R"({"type":"Split","pattern":{"Regex":)"
         R"("(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?)"
         R"([^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},)"
         R"("behavior":"Isolated","invert":false},{"type":"ByteLevel","add_prefix_space":false,)"
         R"("use_regex":false}]},"model":{"type":"BPE","vocab":{)" +
         vocab +
         R"("aa":256,"ab":257,"aaab":258,"<s>":260,"s>":259},)"
         R"("merges":["a a","a b","aa ab","s >","< s>"]}})";
}

void CheckText(const Tokenizer& tokenizer, std::string_view text, bool is_exact) {
  for (const SpecialTokens special : {SpecialTokens::kParse, SpecialTokens::kAsText}) {
    const std::vector<TokenId> ids = tokenizer.Encode(text, special);
    hearth::StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const TokenId id : ids) {
      HEARTH_CHECK(id >= 0 && static_cast<uint32_t>(id) < tokenizer.vocab_count());
      HEARTH_CHECK(special == SpecialTokens::kParse || !tokenizer.IsAdded(id));
      const std::string chunk = stream.Push(id);
      HEARTH_CHECK(hearth::IsValidUtf8(chunk));
      streamed += chunk;
    }
    streamed += stream.Finish();
    HEARTH_CHECK(streamed == tokenizer.Decode(ids, SkipSpecial::kNo));
    HEARTH_CHECK(!is_exact || streamed == Repaired(text));
  }
}

void CheckSplit(std::string_view input) {
  const size_t end = input.find('\n');
  const absl::StatusOr<hearth::Splitter> splitter = hearth::Splitter::Create(input.substr(0, end));
  if (!splitter.ok() || end == std::string_view::npos) return;
  const std::string text = Repaired(input.substr(end + 1));
  std::vector<std::string_view> pieces;
  splitter->Split(text, pieces);
  std::string joined;
  for (const std::string_view piece : pieces) {
    HEARTH_CHECK(!piece.empty());
    joined += piece;
  }
  HEARTH_CHECK(joined == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const absl::StatusOr<Tokenizer> kFixed = Tokenizer::FromJson(FixedFile(), "fixed");
  HEARTH_CHECK(kFixed.ok());
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'J') {
    const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(input, "fuzz");
    HEARTH_CHECK(tokenizer.ok() ||
                 tokenizer.status().message().find('\n') == absl::string_view::npos);
    if (tokenizer.ok()) CheckText(*tokenizer, "<s>x aaab e\xCC\x81 it's\n\n\xF0\x9F 12", false);
  } else if (data[0] == 'P') {
    CheckSplit(input);
  } else {
    CheckText(*kFixed, input, true);
  }
  return 0;
}
