// Any bytes as a schema: compiling ends with a grammar or a Status. What is compiled is walked
// along the bytes behind the first 0x00 byte, each of which picks among the tokens that may come:
// there is always one.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/model/grammar/grammar_constraint.h"
#include "runtime/model/grammar/json_schema.h"
#include "runtime/model/grammar/text_leaves.h"
#include "runtime/model/grammar/token_masks.h"
#include "runtime/model/grammar/token_trie.h"

namespace {

using hearth::TokenId;
namespace grammar = hearth::grammar;

struct World {
  World() {
    for (int byte = 0; byte < 256; ++byte) texts.push_back(std::string(1, static_cast<char>(byte)));
    for (const char* piece : {"{\"", "\":", "\",\"", "\"}", "}}", "],", "[{", "12", "0.5", "true",
                              "null", "\\u00", "\xC3\xA9", "\x82\xAC", "abc", "  ", "\n", "\"\""}) {
      texts.push_back(piece);
    }
    texts.push_back("");  // the stop token
    const std::vector<std::string_view> views(texts.begin(), texts.end());
    trie = grammar::TokenTrie::FromBytes(views);
    leaves = grammar::CommonLeaves::Make();
    common = std::make_shared<const std::vector<const grammar::Dfa*>>(leaves->Sorted());
  }
  std::vector<std::string> texts;
  std::shared_ptr<const grammar::TokenTrie> trie;
  std::shared_ptr<const grammar::CommonLeaves> leaves;
  std::shared_ptr<const std::vector<const grammar::Dfa*>> common;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const World* const kWorld = new World;  // made once: it does not change
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const auto compiled = grammar::CompileJsonSchema(input.substr(0, zero), *kWorld->leaves, {});
  if (!compiled.ok()) return 0;
  const auto masks = std::make_shared<grammar::LeafMasks>(kWorld->trie, 1'000'000);
  const TokenId stop = static_cast<TokenId>(kWorld->texts.size() - 1);
  grammar::GrammarConstraint constraint(
      *compiled, kWorld->trie,
      {.common = masks, .own = masks, .common_leaves = kWorld->common, .owner = kWorld->leaves},
      {stop}, 100'000);
  std::string_view choices = zero == std::string_view::npos ? "" : input.substr(zero + 1);
  if (choices.size() > 200) choices = choices.substr(0, 200);
  for (const char choice : choices) {
    std::vector<TokenId> allowed;
    const auto mask = constraint.Allowed();
    for (TokenId token = 0; token <= stop; ++token) {
      if ((mask[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0)
        allowed.push_back(token);
    }
    HEARTH_CHECK(!allowed.empty());
    constraint.Push(allowed[static_cast<uint8_t>(choice) % allowed.size()]);
  }
  return 0;
}
