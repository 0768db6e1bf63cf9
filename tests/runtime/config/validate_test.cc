// The two configs of the program: documented lists, the defaults, and what their fields need
// together.
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/status.h"
#include "runtime/config/compute_config.h"
#include "runtime/config/devices_config.h"
#include "runtime/config/generate_config.h"
#include "runtime/config/score_config.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using Assignments = std::vector<std::pair<std::string, std::string>>;

template <class Config>
std::string ValidateAfter(const Assignments& assignments) {
  Config config;
  GivenFields given;
  for (const auto& [name, value] : assignments) {
    const absl::Status status = SetField(FieldsOf(config), name, value);
    EXPECT_TRUE(status.ok()) << status;
    given.Add(name);
  }
  return std::string(config.Validate(given).message());
}

TEST(Configs, EveryFieldIsDocumentedAndItsDefaultIsInBounds) {
  GenerateConfig generate;
  EXPECT_EQ(CheckFields(FieldsOf(generate)), absl::OkStatus());
  DevicesConfig devices;
  EXPECT_EQ(CheckFields(FieldsOf(devices)), absl::OkStatus());
  ScoreConfig score;
  EXPECT_EQ(CheckFields(FieldsOf(score)), absl::OkStatus());
}

TEST(Configs, DefaultsPrint) {
  GenerateConfig config;
  EXPECT_EQ(
      PrintFields(FieldsOf(config)),
      "pack = \nprompt = \ntokens = \nchat = false\nmax_tokens = 128\nmin_tokens = 0\nignore_eos = "
      "false\n"
      "stop = \ntemperature = 0\ntop_k = 0\ntop_p = 1\nmin_p = 0\nrepetition_penalty = 1\n"
      "frequency_penalty = 0\npresence_penalty = 0\nlogit_bias = \nseed = 0\nspec = 3\nstats = "
      "false\ntrace_window = \ntrace_window_index = \n"
      "slots = \nvram_budget = \nvram_reserve = \npolicy = forecast\nprofile = \npcie_share "
      "= auto\n"
      "pcie_window_bytes_max = 256MiB\nram_budget = \nmmap_experts = false\ndaemon = \nio = auto\n"
      "device = auto\nkv = bf16\narithmetic = fast\n"
      "cpu_isa = auto\nthreads = 0\ncpus = \nprompt_chunk_tokens = 0\nngram_in_memory = false\n");
}

TEST(Configs, ChoicesAreListed) {
  ScoreConfig config;
  const std::vector<Field> fields = FieldsOf(config);
  EXPECT_EQ(FindField(fields, "arithmetic")->metavar, "reference|fast");
  EXPECT_EQ(FindField(fields, "cpu_isa")->metavar, "auto|scalar|avx2|avx512|avx512vbmi");
  EXPECT_THAT(std::string(SetField(fields, "arithmetic", "exact").message()),
              HasSubstr("expected one of reference|fast"));
}

TEST(GenerateConfig, DraftsAreZeroToEight) {
  GenerateConfig config;
  const std::vector<Field> fields = FieldsOf(config);
  EXPECT_TRUE(SetField(fields, "spec", "0").ok());
  EXPECT_TRUE(SetField(fields, "spec", "8").ok());
  EXPECT_FALSE(SetField(fields, "spec", "9").ok());
}

TEST(GenerateConfig, NeedsAPackAndOneSourceOfThePrompt) {
  EXPECT_EQ(ValidateAfter<GenerateConfig>({{"pack", "p"}, {"prompt", "hi"}}), "");
  EXPECT_EQ(ValidateAfter<GenerateConfig>({{"pack", "p"}, {"tokens", "t.json"}}), "");
  EXPECT_EQ(ValidateAfter<GenerateConfig>({{"prompt", "hi"}}), "pack: is required");
  EXPECT_EQ(ValidateAfter<GenerateConfig>({{"pack", "p"}}),
            "prompt, tokens: expected exactly one of them, found neither");
  EXPECT_EQ(ValidateAfter<GenerateConfig>({{"pack", "p"}, {"prompt", "hi"}, {"tokens", "t"}}),
            "prompt, tokens: expected exactly one of them, found both");
  EXPECT_EQ(ValidateAfter<GenerateConfig>({{"pack", "p"}, {"tokens", ""}}), "tokens: is required");
}

TEST(GenerateConfig, FieldsWithoutEffectAreRefused) {
  const Assignments base = {{"pack", "p"}, {"prompt", "hi"}};
  for (const char* name : {"top_k", "top_p", "min_p", "seed"}) {
    Assignments greedy = base;
    greedy.emplace_back(name, "1");
    EXPECT_THAT(ValidateAfter<GenerateConfig>(greedy),
                HasSubstr(std::string(name) + ": has no effect at temperature 0"));
    greedy.emplace_back("temperature", "0.7");
    EXPECT_EQ(ValidateAfter<GenerateConfig>(greedy), "");
  }
  EXPECT_THAT(ValidateAfter<GenerateConfig>({{"pack", "p"}, {"tokens", "t"}, {"chat", "true"}}),
              HasSubstr("chat: has no effect on tokens"));
}

TEST(GenerateConfig, MinTokensFitsUnderMaxTokensAndNeedsAnEnd) {
  Assignments given = {{"pack", "p"}, {"prompt", "hi"}, {"max_tokens", "4"}, {"min_tokens", "4"}};
  EXPECT_EQ(ValidateAfter<GenerateConfig>(given), "");
  given.emplace_back("ignore_eos", "true");
  EXPECT_THAT(ValidateAfter<GenerateConfig>(given), HasSubstr("min_tokens: has no effect"));
  given = {{"pack", "p"}, {"prompt", "hi"}, {"max_tokens", "4"}, {"min_tokens", "5"}};
  EXPECT_EQ(ValidateAfter<GenerateConfig>(given),
            "min_tokens: found 5, expected at most max_tokens (4)");
}

TEST(GenerateConfig, LogitBiasIsATokenAndANumber) {
  EXPECT_EQ(ParseLogitBias("17:-2.5")->token, 17);
  EXPECT_EQ(ParseLogitBias("17:-2.5")->bias, -2.5f);
  EXPECT_EQ(ParseLogitBias("0:100")->bias, 100.0f);
  EXPECT_FALSE(ParseLogitBias("").ok());
  for (const char* text : {":", "5", "5:", ":1", "a:1", "5:1x", "5 :1", "5:nan", "5:inf", "5:100.5",
                           "5:-101", "-1:0", "3000000000:1", "5:1:1"}) {
    EXPECT_THAT(ValidateAfter<GenerateConfig>(
                    {{"pack", "p"}, {"prompt", "hi"}, {"logit_bias", "3:1"}, {"logit_bias", text}}),
                HasSubstr("logit_bias: found '" + std::string(text) + "'"));
  }
}

TEST(Configs, AWindowsTraceNeedsAWindow) {
  const Assignments run = {{"pack", "p"}, {"prompt", "hi"}};
  const Assignments score = {{"pack", "p"}, {"text", "a.txt"}};
  const auto with = [](Assignments all, const Assignments& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const Assignments trace = {{"trace_window", "t.json"}, {"trace_window_index", "2"}};
  EXPECT_EQ(ValidateAfter<GenerateConfig>(with(run, trace)), "");
  EXPECT_THAT(ValidateAfter<GenerateConfig>(with(run, {trace[1]})),
              HasSubstr("trace_window_index: has no effect without trace_window"));
  EXPECT_THAT(ValidateAfter<GenerateConfig>(with(with(run, trace), {{"max_tokens", "1"}})),
              HasSubstr("trace_window: has no effect with max_tokens 1"));
  EXPECT_THAT(ValidateAfter<ScoreConfig>(with(score, trace)),
              HasSubstr("trace_window: has no effect without window"));
  EXPECT_EQ(ValidateAfter<ScoreConfig>(with(with(score, trace), {{"window", "4"}})), "");
}

TEST(Configs, WorkersAreAskedForInOneWay) {
  const Assignments base = {{"pack", "p"}, {"text", "a.txt"}};
  const auto with = [&](const Assignments& more) {
    Assignments all = base;
    all.insert(all.end(), more.begin(), more.end());
    return ValidateAfter<ScoreConfig>(all);
  };
  EXPECT_EQ(with({{"threads", "3"}}), "");
  EXPECT_EQ(with({{"cpus", "0-3,8"}}), "");
  EXPECT_EQ(with({{"cpus", "0"}, {"threads", "1"}}),
            "threads, cpus: expected at most one of them, found both");
  for (const char* list : {"", "3-", "all", "-1", "0,,1", "1.5"}) {
    EXPECT_THAT(with({{"cpus", list}}), HasSubstr("such as 0-3,8")) << list;
    EXPECT_THAT(ValidateAfter<DevicesConfig>({{"cpus", list}}), HasSubstr("cpus: found")) << list;
  }
  EXPECT_EQ(ValidateAfter<DevicesConfig>({{"cpus", "1,2"}}), "");
}

TEST(GenerateConfig, TopPOfZeroIsRefused) {
  EXPECT_THAT(ValidateAfter<GenerateConfig>(
                  {{"pack", "p"}, {"prompt", "hi"}, {"temperature", "1"}, {"top_p", "0"}}),
              HasSubstr("top_p: found 0"));
}

TEST(ScoreConfig, NeedsAPackAndOneSourceOfText) {
  EXPECT_EQ(ValidateAfter<ScoreConfig>({{"pack", "p"}, {"text", "a.txt"}}), "");
  EXPECT_EQ(ValidateAfter<ScoreConfig>({{"text", "a.txt"}}), "pack: is required");
  EXPECT_THAT(ValidateAfter<ScoreConfig>({{"pack", "p"}}), HasSubstr("found neither"));
  EXPECT_THAT(ValidateAfter<ScoreConfig>({{"pack", "p"}, {"text", "a"}, {"tokens", "b"}}),
              HasSubstr("found both"));
}

}  // namespace
}  // namespace hearth
