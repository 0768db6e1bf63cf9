// Encoding speed over the evaluation texts of the golden file, and loading speed.
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/model/tokenizer/nfc.h"
#include "runtime/model/tokenizer/splitter.h"
#include "runtime/model/tokenizer/tokenizer.h"
#include "runtime/model/tokenizer/tokenizer_json.h"

namespace hearth {
namespace {

constexpr const char* kTexts[] = {"en", "de", "ru", "ja", "zh", "cpp", "python"};

std::string TokenizerJson() {
  absl::StatusOr<std::string> json = ReadFile(
      std::string(HEARTH_SOURCE_DIR) + "/profiles/flashlet/tokenizer.json", kTokenizerJsonBytesMax);
  HEARTH_CHECK(json.ok());
  return *std::move(json);
}

std::string TextOf(const std::string& name) {
  std::ifstream file(std::string("/work/shared/flashlet/eval/") + name + ".txt", std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  return text;
}

void EncodeText(benchmark::State& state, const std::string& name, const std::string& json) {
  const absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(json, "tokenizer.json");
  const std::string text = TextOf(name);
  if (text.empty()) return state.SkipWithError("no evaluation text on this machine");
  HEARTH_CHECK(tokenizer.ok());
  HEARTH_CHECK(
      tokenizer->Decode(tokenizer->Encode(text, SpecialTokens::kParse), SkipSpecial::kNo) == text);
  for (auto _ : state) {
    benchmark::DoNotOptimize(tokenizer->Encode(text, SpecialTokens::kParse));
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void SplitText(benchmark::State& state, const std::string& name) {
  const absl::StatusOr<Splitter> splitter =
      Splitter::Create(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
                       R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
  HEARTH_CHECK(splitter.ok());
  const std::string text = TextOf(name);
  if (text.empty()) return state.SkipWithError("no evaluation text on this machine");
  std::vector<std::string_view> pieces;
  for (auto _ : state) {
    pieces.clear();
    splitter->Split(text, pieces);
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
}

void LoadTokenizer(benchmark::State& state, const std::string& json) {
  for (auto _ : state) benchmark::DoNotOptimize(Tokenizer::FromJson(json, "tokenizer.json"));
}

void RegisterAll() {
  const std::string plain = TokenizerJson();
  std::string nfc = plain;
  const std::string null_normalizer = R"("normalizer": null)";
  const size_t at = nfc.find(null_normalizer);
  HEARTH_CHECK(at != std::string::npos);
  nfc.replace(at, null_normalizer.size(), R"("normalizer": {"type": "NFC"})");
  for (const std::string name : kTexts) {
    benchmark::RegisterBenchmark(("Encode/" + name).c_str(),
                                 [=](benchmark::State& s) { EncodeText(s, name, plain); });
    benchmark::RegisterBenchmark(("EncodeNfc/" + name).c_str(),
                                 [=](benchmark::State& s) { EncodeText(s, name, nfc); });
    benchmark::RegisterBenchmark(("Split/" + name).c_str(),
                                 [=](benchmark::State& s) { SplitText(s, name); });
  }
  benchmark::RegisterBenchmark("Load", [=](benchmark::State& s) { LoadTokenizer(s, plain); });
}

}  // namespace
}  // namespace hearth

int main(int argc, char** argv) {
  hearth::RegisterAll();
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
