// The frame around every subcommand: help, version, errors on one line, exit codes.
#include "tools/hearth/frame.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/clock.h"
#include "runtime/config/generate_config.h"
#include "runtime/config/score_config.h"
#include "tools/hearth/commands.h"
#include "tools/hearth/exit_code.h"
#include "tools/hearth/help_text.h"

namespace hearth::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct SampleConfig {
  std::string outcome = "ok";
  uint64_t cache_bytes = 1 << 20;
  uint32_t rows = 0;
  template <class Visitor>
  void Visit(Visitor&& v) {
    v("outcome", outcome, "what Run does");
    v("cache_bytes", cache_bytes, "how much to keep");
    v("rows", rows, "rows");
  }
  absl::Status Validate(const GivenFields& given) const {
    if (given.Has("rows") && outcome == "ok") {
      return absl::InvalidArgumentError("rows: has no effect when outcome is ok");
    }
    return absl::OkStatus();
  }
};

absl::Status RunSample(const SampleConfig& config, const CommandIo& io) {
  io.results << (io.json ? "{\"ran\":true}\n" : "ran\n");
  if (config.outcome == "damaged") return absl::DataLossError("layer 3: checksum");
  if (config.outcome == "full") return absl::ResourceExhaustedError("no\nroom");
  if (config.outcome == "missing") return absl::NotFoundError("a.json: not found");
  if (config.outcome == "input") return absl::InvalidArgumentError("a.json: not an array");
  if (config.outcome == "bad_alloc") throw std::bad_alloc();
  if (config.outcome == "exception") throw std::runtime_error("from a library");
  return absl::OkStatus();
}

struct Outcome {
  ExitCode code;
  std::string results;
  std::string talk;
};

Outcome RunWith(const std::vector<std::string>& args, std::span<const Command> commands) {
  std::ostringstream results;
  std::ostringstream talk;
  FakeClock clock;
  const CommandIo io{.results = results, .talk = talk, .clock = clock};
  const ExitCode code = RunHearth(args, commands, io);
  return {code, results.str(), talk.str()};
}

Outcome Hearth(const std::vector<std::string>& args) {
  const std::vector<Command> commands = {
      MakeCommand<SampleConfig>({"sample", "does as told", "A note."}, RunSample),
      MakeCommand<SampleConfig>({"pack build", "builds", ""}, RunSample),
      MakeCommand<SampleConfig>({"pack verify", "verifies", ""}, RunSample)};
  return RunWith(args, commands);
}

TEST(Frame, RunsACommandOfOneOrTwoWords) {
  EXPECT_EQ(Hearth({"sample"}).results, "ran\n");
  EXPECT_EQ(Hearth({"pack", "verify"}).results, "ran\n");
  EXPECT_EQ(Hearth({"pack", "verify"}).code, ExitCode::kOk);
  EXPECT_EQ(Hearth({"pack", "verify"}).talk, "");
}

TEST(Frame, JsonReachesTheCommand) {
  EXPECT_EQ(Hearth({"sample", "--json"}).results, "{\"ran\":true}\n");
}

TEST(Frame, StatusCodesBecomeExitCodesAndOneLine) {
  const auto outcome = [](const char* what) { return Hearth({"sample", "--outcome", what}); };
  EXPECT_EQ(outcome("damaged").code, ExitCode::kDamaged);
  EXPECT_EQ(outcome("damaged").talk, "hearth: layer 3: checksum\n");
  EXPECT_EQ(outcome("full").code, ExitCode::kResources);
  EXPECT_EQ(outcome("full").talk, "hearth: no room\n") << "one line, whatever the message";
  EXPECT_EQ(outcome("missing").code, ExitCode::kNotFound);
  EXPECT_EQ(outcome("input").code, ExitCode::kFailure) << "bad data is not bad usage";
}

TEST(Frame, ExceptionsOfLibrariesEndInAnExitCode) {
  EXPECT_EQ(Hearth({"sample", "--outcome", "bad_alloc"}).code, ExitCode::kResources);
  EXPECT_EQ(Hearth({"sample", "--outcome", "bad_alloc"}).talk, "hearth: not enough memory\n");
  EXPECT_EQ(Hearth({"sample", "--outcome", "exception"}).code, ExitCode::kFailure);
}

TEST(Frame, WrongFlagsAreUsageErrorsAndNothingRuns) {
  for (const std::vector<std::string>& args :
       std::vector<std::vector<std::string>>{{"sample", "--outcom", "ok"},
                                             {"sample", "--rows", "x"},
                                             {"sample", "--rows", "1"},
                                             {"sample", "stray"},
                                             {"sample", "--json", "--json"}}) {
    const Outcome outcome = Hearth(args);
    EXPECT_EQ(outcome.code, ExitCode::kUsage) << args[1];
    EXPECT_EQ(outcome.results, "") << args[1];
    EXPECT_THAT(outcome.talk, StartsWith("hearth: "));
    EXPECT_THAT(outcome.talk, EndsWith("(see `hearth sample --help`)\n"));
    EXPECT_EQ(std::ranges::count(outcome.talk, '\n'), 1);
  }
  EXPECT_THAT(Hearth({"sample", "--outcom", "ok"}).talk, HasSubstr("did you mean --outcome?"));
  EXPECT_THAT(Hearth({"sample", "--rows", "1"}).talk, HasSubstr("--rows: has no effect"));
}

TEST(Frame, UnknownCommandsNameTheNearest) {
  EXPECT_EQ(Hearth({"smaple"}).talk,
            "hearth: unknown command 'smaple'; did you mean `hearth sample`?\n");
  EXPECT_EQ(Hearth({"smaple"}).code, ExitCode::kUsage);
  EXPECT_EQ(Hearth({"pakc", "build"}).talk,
            "hearth: unknown command 'pakc'; did you mean `hearth pack`?\n");
  EXPECT_EQ(Hearth({"pack", "biuld"}).talk,
            "hearth: unknown command 'pack biuld'; did you mean `hearth pack build`?\n");
  EXPECT_EQ(Hearth({"frobnicate"}).talk,
            "hearth: unknown command 'frobnicate'; `hearth --help` lists what there is\n");
  EXPECT_EQ(Hearth({"--versoin"}).talk,
            "hearth: unknown flag '--versoin'; did you mean `hearth --version`?\n");
  EXPECT_EQ(Hearth({""}).code, ExitCode::kUsage);
}

TEST(Frame, NoCommandShowsTheListAsTalk) {
  EXPECT_EQ(Hearth({}).code, ExitCode::kUsage);
  EXPECT_EQ(Hearth({}).results, "");
  EXPECT_THAT(Hearth({}).talk, HasSubstr("pack verify"));
  EXPECT_EQ(Hearth({"pack"}).code, ExitCode::kUsage);
  EXPECT_THAT(Hearth({"pack"}).talk, HasSubstr("pack verify"));
  EXPECT_THAT(Hearth({"pack"}).talk, Not(HasSubstr("does as told")));
}

TEST(Frame, HelpIsAResult) {
  EXPECT_EQ(Hearth({"--help"}).code, ExitCode::kOk);
  EXPECT_THAT(Hearth({"--help"}).results, HasSubstr("does as told"));
  EXPECT_THAT(Hearth({"pack", "--help"}).results, HasSubstr("pack build"));
  const Outcome help = Hearth({"sample", "--wrong", "--help"});
  EXPECT_EQ(help.code, ExitCode::kOk);
  EXPECT_THAT(help.results, HasSubstr("--cache-bytes SIZE"));
  EXPECT_THAT(help.results, HasSubstr("how much to keep (default 1MiB)"));
  EXPECT_THAT(help.results, HasSubstr("A note.\n"));
  EXPECT_THAT(help.results, HasSubstr(std::string(kExitCodesHelp)));
}

TEST(Frame, VersionIsAResultWithAndWithoutJson) {
  EXPECT_THAT(Hearth({"--version"}).results,
              testing::MatchesRegex("hearth [0-9]+\\.[0-9]+\\.[0-9]+\n"));
  EXPECT_THAT(Hearth({"--version", "--json"}).results, StartsWith("{\"version\":\""));
  EXPECT_EQ(Hearth({"--version", "--jsn"}).code, ExitCode::kUsage);
}

TEST(Frame, PrintConfigShowsWhatTheFlagsComeTo) {
  const std::vector<std::string> args = {"sample", "--cache-bytes", "3MiB", "--print-config"};
  EXPECT_EQ(Hearth(args).results, "# outcome = 'ok'\ncache_bytes = '3MiB'\n# rows = 0\n");
  std::vector<std::string> with_json = args;
  with_json.push_back("--json");
  EXPECT_EQ(Hearth(with_json).results,
            "{\n  \"outcome\": \"ok\",\n  \"cache_bytes\": \"3MiB\",\n  \"rows\": 0\n}\n");
}

TEST(Frame, ResultsThatCannotBeWrittenAreAFailure) {
  const std::vector<Command> commands = {MakeCommand<SampleConfig>({"sample", "", ""}, RunSample)};
  std::ostringstream results;
  results.setstate(std::ios::badbit);
  std::ostringstream talk;
  FakeClock clock;
  const CommandIo io{.results = results, .talk = talk, .clock = clock};
  EXPECT_EQ(RunHearth(std::vector<std::string>{"sample"}, commands, io), ExitCode::kFailure);
  EXPECT_THAT(talk.str(), HasSubstr("cannot write"));
}

void ExpectFitsAScreen(const std::string& page) {
  EXPECT_LE(std::ranges::count(page, '\n'), 28) << page;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(HelpText, TheLargestConfigsFitAScreenAndShowDefaultsAndBounds) {
  GenerateConfig generate;
  const std::string page = CommandHelp({"run", "continues a prompt", ""}, FieldsOf(generate));
  ExpectFitsAScreen(page);
  EXPECT_THAT(page, HasSubstr("--max-tokens N"));
  EXPECT_THAT(page, HasSubstr("most tokens drafted per window, 0 = off (0 to 8; default 3)"));
  EXPECT_THAT(page, Not(HasSubstr("--arithmetic reference|fast")));
  EXPECT_THAT(page, HasSubstr("--help compute: --device, "));
  const std::string compute = CommandHelp({"run", "", ""}, FieldsOf(generate), "compute");
  EXPECT_THAT(compute, HasSubstr("--arithmetic reference|fast"));
  EXPECT_THAT(compute, Not(HasSubstr("--max-tokens")));
  ScoreConfig score;
  ExpectFitsAScreen(CommandHelp({"score", "scores a text", ""}, FieldsOf(score)));
}

TEST(Commands, EveryCommandIsDocumentedAndItsHelpFitsAScreen) {
  const std::vector<Command> commands = AllCommands();
  ExpectFitsAScreen(CommandListHelp(commands, {}));
  for (const Command& command : commands) {
    EXPECT_FALSE(command.text.summary.empty()) << command.text.name;
    EXPECT_LE(command.text.summary.size(), 60u) << command.text.name;
    const std::unique_ptr<Invocation> invocation = command.make();  // what the fields point into
    const std::vector<Field> fields = invocation->Fields();
    EXPECT_EQ(CheckFields(fields), absl::OkStatus()) << command.text.name;
    for (const char* taken : {"json", "help", "config", "print_config"}) {
      EXPECT_EQ(FindField(fields, taken), nullptr) << command.text.name << " lists " << taken;
    }
    ExpectFitsAScreen(CommandHelp(command.text, fields));
    for (const std::string& group : HelpGroups(fields)) {
      ExpectFitsAScreen(CommandHelp(command.text, fields, group));
    }
  }
}

}  // namespace
}  // namespace hearth::cli
