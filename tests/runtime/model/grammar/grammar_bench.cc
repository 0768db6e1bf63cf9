// What a mask costs on a vocabulary of 248,320 tokens: cold (a state that was never seen, by a new
// constraint of a known grammar), and kept; and what compiling and building cost. The tokens are
// Flashlet's, and beside them what a large vocabulary has more of: pairs of its words, words in
// other cases, runs of spaces and signs, pieces of other scripts.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <benchmark/benchmark.h>

#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/model/grammar/grammar_constraint.h"
#include "runtime/model/grammar/json_schema.h"
#include "runtime/model/grammar/text_leaves.h"
#include "runtime/model/grammar/token_masks.h"
#include "runtime/model/grammar/token_trie.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/model/tokenizer/tokenizer_json.h"
#include "tests/runtime/model/grammar/test_random.h"

namespace hearth::grammar {
namespace {

constexpr size_t kVocabCount = 248'320;

std::vector<std::string> LargeVocabulary() {
  const auto json =
      ReadFile(HEARTH_SOURCE_DIR "/profiles/flashlet/tokenizer.json", kTokenizerJsonBytesMax);
  HEARTH_CHECK(json.ok());
  const auto tokenizer = Tokenizer::FromJson(*json, "tokenizer.json");
  HEARTH_CHECK(tokenizer.ok());
  std::vector<std::string> tokens, words;
  std::unordered_set<std::string> known;
  const auto add = [&](const std::string& token) {
    if (tokens.size() < kVocabCount && known.insert(token).second) tokens.push_back(token);
  };
  for (uint32_t i = 0; i < tokenizer->vocab_count(); ++i) {
    const TokenId id = static_cast<TokenId>(i);
    if (tokenizer->IsAdded(id)) continue;
    add(std::string(tokenizer->TokenBytes(id)));
    if (tokens.back().size() > 1 && tokens.back()[0] != '\n') words.push_back(tokens.back());
  }
  for (int n = 2; n <= 120; ++n) {
    add(std::string(static_cast<size_t>(n), ' '));
    add(std::string(static_cast<size_t>(n), '-'));
    add("\n" + std::string(static_cast<size_t>(n), ' '));
  }
  for (const char* sign : {"\"", "\",", "\":", "\"}", "\"]", "\")", "\");", "\"\n", "\"},"}) {
    for (size_t i = 0; i < 300; ++i) add(words[i * 7 % words.size()] + sign);
  }
  Random random(1);
  while (tokens.size() < kVocabCount) {
    const std::string& left = words[random() % words.size()];
    const std::string& right = words[random() % words.size()];
    switch (random() % 4) {
      case 0: {  // three characters of another script
        std::string text;
        for (int i = 0; i < 3; ++i) {
          text += {static_cast<char>(0xE4 + random() % 5), static_cast<char>(0x80 + random() % 64),
                   static_cast<char>(0x80 + random() % 64)};
        }
        add(text.substr(0, random() % 3 == 0 ? 3 + random() % 6 : 6));
        break;
      }
      default:
        add(left + right.substr(right[0] == ' ' ? 1 : 0, 5));
    }
  }
  return tokens;
}

struct World {
  World() {
    tokens = LargeVocabulary();
    const std::vector<std::string_view> views(tokens.begin(), tokens.end());
    trie = TokenTrie::FromBytes(views);
    leaves = CommonLeaves::Make();
    common = std::make_shared<const std::vector<const Dfa*>>(leaves->Sorted());
    common_masks = std::make_shared<LeafMasks>(trie, 16_MiB);
    for (uint32_t s = 0; s < leaves->json_string->state_count(); ++s) {
      if (leaves->json_string->Wide(s)) common_masks->Get(*leaves->json_string, s, UINT64_MAX);
    }
  }
  std::vector<std::string> tokens;
  std::shared_ptr<const TokenTrie> trie;
  std::shared_ptr<const CommonLeaves> leaves;
  std::shared_ptr<const std::vector<const Dfa*>> common;
  std::shared_ptr<LeafMasks> common_masks;
};

struct Place {
  const char* name;
  const char* schema;
  const char* written;  // so far
};

constexpr const char* kPerson = R"({"type": "object", "properties": {
    "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
    "mail": {"type": "string", "format": "email"}, "code": {"type": "string", "maxLength": 12},
    "tags": {"type": "array", "items": {"type": "string"}},
    "friends": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["name", "age"]})";

constexpr Place kPlaces[] = {
    {"start", kPerson, ""},
    {"key", kPerson, "{"},
    {"string", kPerson, "{\"name\": \"Ann"},
    {"after_string", kPerson, "{\"name\": \"Ann\""},
    {"number", kPerson, "{\"name\": \"Ann\", \"age\": 1"},
    {"keys", kPerson, "{\"name\": \"Ann\", \"age\": 1, \""},
    {"email", kPerson, "{\"name\": \"Ann\", \"age\": 1, \"mail\": \"a"},
    {"max_length", kPerson, "{\"name\": \"Ann\", \"age\": 1, \"code\": \"abcdef"},
    {"deep_string", kPerson,
     "{\"name\": \"A\", \"age\": 1, \"friends\": [{\"name\": \"B\", \"age\": 2, \"tags\": [\"x"},
    {"any_value", "{}", ""},
    {"any_string", R"({"type": "object"})", "{\"a\": [\"b"},
    {"any_key", R"({"type": "object"})", "{\"a"},
};

GrammarConstraint Make(const World& world, const std::shared_ptr<const Grammar>& grammar,
                       const std::shared_ptr<LeafMasks>& own) {
  LeafMaskSources sources = {.common = world.common_masks,
                             .own = own,
                             .common_leaves = world.common,
                             .owner = world.leaves};
  return GrammarConstraint(grammar, world.trie, std::move(sources), {0}, 4_MiB);
}

void Write(GrammarConstraint& constraint, const World& world, std::string_view text) {
  for (const char c : text) {
    for (size_t token = 0; token < 300; ++token) {
      if (world.tokens[token] == std::string_view(&c, 1)) {
        constraint.Push(static_cast<TokenId>(token));
        break;
      }
    }
  }
}

void Mask(benchmark::State& state, const World& world, const Place& place, bool kept,
          bool known_leaves) {
  const auto grammar = CompileJsonSchema(place.schema, *world.leaves, {});
  HEARTH_CHECK(grammar.ok());
  auto own = std::make_shared<LeafMasks>(world.trie, 4_MiB);
  GrammarConstraint constraint = Make(world, *grammar, own);
  Write(constraint, world, place.written);
  size_t allowed = 0;
  for (const uint64_t word : constraint.Allowed()) allowed += std::popcount(word);
  for (auto _ : state) {
    if (kept) {
      benchmark::DoNotOptimize(constraint.Allowed().data());
      continue;
    }
    state.PauseTiming();
    if (!known_leaves) own = std::make_shared<LeafMasks>(world.trie, 4_MiB);
    auto fresh = std::make_unique<GrammarConstraint>(Make(world, *grammar, own));
    Write(*fresh, world, place.written);
    state.ResumeTiming();
    benchmark::DoNotOptimize(fresh->Allowed().data());
    state.PauseTiming();
    fresh.reset();
    state.ResumeTiming();
  }
  state.counters["allowed"] = static_cast<double>(allowed);
}

void RegisterAll(const World& world) {
  for (const Place& place : kPlaces) {
    const std::string name = place.name;
    benchmark::RegisterBenchmark((name + "/first").c_str(), Mask, std::cref(world), place, false,
                                 false)
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(200);
    benchmark::RegisterBenchmark((name + "/known_leaves").c_str(), Mask, std::cref(world), place,
                                 false, true)
        ->Unit(benchmark::kMicrosecond)
        ->Iterations(200);
    benchmark::RegisterBenchmark((name + "/kept").c_str(), Mask, std::cref(world), place, true,
                                 true)
        ->Unit(benchmark::kMicrosecond);
  }
  benchmark::RegisterBenchmark("compile", [&](benchmark::State& state) {
    for (auto _ : state) {
      benchmark::DoNotOptimize(CompileJsonSchema(kPerson, *world.leaves, {}).ok());
    }
  })->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark("build_trie", [&](benchmark::State& state) {
    const std::vector<std::string_view> views(world.tokens.begin(), world.tokens.end());
    for (auto _ : state) benchmark::DoNotOptimize(TokenTrie::FromBytes(views)->depth());
  })->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("string_leaf", [&](benchmark::State& state) {
    for (auto _ : state) {
      LeafMasks masks(world.trie, 16_MiB);
      benchmark::DoNotOptimize(masks.Get(*world.leaves->json_string, 1, UINT64_MAX)->exits.size());
    }
  })->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace hearth::grammar

int main(int argc, char** argv) {
  const hearth::grammar::World world;
  hearth::grammar::RegisterAll(world);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
