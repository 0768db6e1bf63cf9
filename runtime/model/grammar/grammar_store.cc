// What is kept: the trie and the common masks for the store's life, compiled grammars with their
// own masks while there is room, the ones used last first.
#include "runtime/model/grammar/grammar_store.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "runtime/model/grammar/grammar_constraint.h"
#include "runtime/model/grammar/json_schema.h"
#include "runtime/model/grammar/text_leaves.h"
#include "runtime/model/grammar/token_masks.h"
#include "runtime/model/grammar/token_trie.h"
#include "runtime/model/grammar/tool_call_grammar.h"

namespace hearth {
namespace {

using grammar::CommonLeaves;
using grammar::Grammar;
using grammar::GrammarConstraint;
using grammar::LeafMasks;
using grammar::LeafMaskSources;
using grammar::TokenTrie;

constexpr uint64_t kCommonMaskBytes = 16_MiB;
constexpr uint64_t kOwnMaskBytes = 4_MiB;  // of one grammar
constexpr std::string_view kAnyObject = R"({"type": "object"})";

// Bytes that texts of a grammar are made of: printable ASCII, line breaks, and UTF-8.
bool MayBeNeeded(uint32_t byte) {
  return byte == '\n' || byte == '\t' || (byte >= 0x20 && byte <= 0x7E) ||
         (byte >= 0x80 && byte <= 0xBF) || (byte >= 0xC2 && byte <= 0xF4);
}

absl::Status CheckVocabulary(const TokenTrie& trie, const std::vector<TokenId>& stop_tokens) {
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (MayBeNeeded(byte) && !trie.HasByte(static_cast<uint8_t>(byte))) {
      return absl::InvalidArgumentError(
          absl::StrCat("the tokenizer has no token for the byte 0x", absl::Hex(byte),
                       " alone; constrained decoding needs one for each"));
    }
  }
  if (stop_tokens.empty()) {
    return absl::InvalidArgumentError("constrained decoding needs a stop token, found none");
  }
  for (const TokenId stop : stop_tokens) {
    if (stop < 0 || static_cast<uint32_t>(stop) >= trie.vocab_count()) {
      return absl::InvalidArgumentError(
          absl::StrCat("stop token ", stop, " is outside the vocabulary of ", trie.vocab_count()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

struct GrammarStore::Data {
  struct Kept {
    std::string key;
    std::shared_ptr<const Grammar> grammar;
    std::shared_ptr<LeafMasks> masks;  // its own
    uint64_t MemoryBytes() const {
      return key.size() + grammar->MemoryBytes() + masks->MemoryBytes();
    }
  };
  using Compile = std::function<absl::StatusOr<std::shared_ptr<const Grammar>>()>;

  absl::StatusOr<std::shared_ptr<TokenConstraint>> Constraint(std::string key,
                                                              const Compile& compile);
  std::shared_ptr<TokenConstraint> Make(const Kept& kept) const;
  void StayWithinBudget();  // under the mutex

  Options options;
  std::shared_ptr<const TokenTrie> trie;
  std::shared_ptr<const CommonLeaves> leaves;
  std::shared_ptr<const std::vector<const grammar::Dfa*>> common;
  std::shared_ptr<LeafMasks> common_masks;
  grammar::ToolCallMarks marks;

  std::mutex mutex;
  std::list<Kept> grammars;  // guarded by mutex; the one used last comes first
};

GrammarStore::GrammarStore(std::unique_ptr<Data> data) : data_(std::move(data)) {}
GrammarStore::~GrammarStore() = default;

absl::StatusOr<std::unique_ptr<GrammarStore>> GrammarStore::Create(const Tokenizer& tokenizer,
                                                                   Options options) {
  auto data = std::make_unique<Data>();
  data->trie = TokenTrie::FromTokenizer(tokenizer, options.vocab_count);
  HEARTH_RETURN_IF_ERROR(CheckVocabulary(*data->trie, options.stop_tokens));
  data->options = std::move(options);
  data->leaves = CommonLeaves::Make();
  data->common = std::make_shared<const std::vector<const grammar::Dfa*>>(data->leaves->Sorted());
  data->common_masks = std::make_shared<LeafMasks>(data->trie, kCommonMaskBytes);
  data->marks = {.open = tokenizer.FindToken("<tool_call>"),
                 .close = tokenizer.FindToken("</tool_call>")};
  // What nearly every answer comes to, so that no request waits for it.
  const grammar::Dfa& text = *data->leaves->json_string;
  const uint32_t inside = text.Next(grammar::Dfa::kStart, '"');
  data->common_masks->Get(text, inside, UINT64_MAX);
  data->common_masks->Get(*data->leaves->raw_text, grammar::Dfa::kStart, UINT64_MAX);
  return std::unique_ptr<GrammarStore>(new GrammarStore(std::move(data)));
}

std::shared_ptr<TokenConstraint> GrammarStore::Data::Make(const Kept& kept) const {
  LeafMaskSources sources = {
      .common = common_masks, .own = kept.masks, .common_leaves = common, .owner = leaves};
  return std::make_shared<GrammarConstraint>(kept.grammar, trie, std::move(sources),
                                             options.stop_tokens, options.constraint_bytes);
}

absl::StatusOr<std::shared_ptr<TokenConstraint>> GrammarStore::Data::Constraint(
    std::string key, const Compile& compile) {
  {
    const std::lock_guard lock(mutex);
    const auto found = std::find_if(grammars.begin(), grammars.end(),
                                    [&](const Kept& kept) { return kept.key == key; });
    if (found != grammars.end()) {
      grammars.splice(grammars.begin(), grammars, found);
      return Make(grammars.front());
    }
  }
  HEARTH_ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> compiled, compile());
  Kept kept = {.key = std::move(key),
               .grammar = compiled,
               .masks = std::make_shared<LeafMasks>(trie, kOwnMaskBytes)};
  std::shared_ptr<TokenConstraint> constraint = Make(kept);
  const std::lock_guard lock(mutex);
  grammars.push_front(std::move(kept));
  StayWithinBudget();
  return constraint;
}

void GrammarStore::Data::StayWithinBudget() {
  uint64_t bytes = 0;
  for (auto it = grammars.begin(); it != grammars.end();) {
    bytes += it->MemoryBytes();
    it = bytes > options.grammars_bytes ? grammars.erase(it) : std::next(it);
  }
}

absl::StatusOr<std::shared_ptr<TokenConstraint>> GrammarStore::ForSchema(
    std::string_view schema_json) {
  return data_->Constraint(absl::StrCat("schema:", ToAbsl(schema_json)), [&] {
    return grammar::CompileJsonSchema(schema_json, *data_->leaves, data_->options.grammar);
  });
}

absl::StatusOr<std::shared_ptr<TokenConstraint>> GrammarStore::ForAnyObject() {
  return ForSchema(kAnyObject);
}

absl::StatusOr<std::shared_ptr<TokenConstraint>> GrammarStore::ForToolCalls(
    std::span<const ToolSignature> tools, bool several) {
  std::string key = several ? "calls:" : "call:";
  for (const ToolSignature& tool : tools) {
    absl::StrAppend(&key, tool.name.size(), ":", tool.name, tool.parameters_json.size(), ":",
                    tool.parameters_json);
  }
  return data_->Constraint(std::move(key), [&] {
    return grammar::CompileToolCalls(tools, several, data_->marks, *data_->leaves,
                                     data_->options.grammar);
  });
}

}  // namespace hearth
