// The program: its command line, its plan and refusals, its signals, and an engine that comes, goes
// and comes back. Runs the binary itself over a small pack.
#include "tools/hearthd/hearthd.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "cache/policy/routing_profile.h"
#include "cache/store/remote_store.h"
#include "pack/reader/pack.h"
#include "runtime/base/clock.h"
#include "runtime/base/file.h"
#include "runtime/config/daemon_config.h"
#include "tests/support/hash_model.h"
#include "tests/support/runner_fixture.h"

namespace hearth::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int code = -1;
  std::string results;
  std::string talk;
};

// In this process, with a stop that has come already: whatever starts also ends.
Outcome RunHere(std::vector<std::string> args) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const UniqueFd reading(ends[0]), writing(ends[1]);
  EXPECT_EQ(::write(writing.get(), "x", 1), 1);
  std::ostringstream results, talk;
  SteadyClock clock;
  const CommandIo io{.results = results, .talk = talk, .clock = clock};
  const ExitCode code = RunHearthd(args, io, reading.get());
  return {static_cast<int>(code), results.str(), talk.str()};
}

// The binary in a process of its own. Killed when it goes.
class Program {
 public:
  Program(std::vector<std::string> args, const std::string& talk_path) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    results_ = UniqueFd(ends[0]);
    const UniqueFd writing(ends[1]);
    const UniqueFd talk(::open(talk_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    args.insert(args.begin(), HEARTHD_BINARY);
    std::vector<char*> argv;
    for (std::string& arg : args) argv.push_back(arg.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, writing.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, talk.get(), STDERR_FILENO);
    char* environment[] = {nullptr};
    EXPECT_EQ(::posix_spawn(&pid_, HEARTHD_BINARY, &actions, nullptr, argv.data(), environment), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Program() { End(SIGKILL); }
  // A line of its results; what there is when it ends before.
  std::string ReadLine() {
    std::string line;
    char c = 0;
    while (::read(results_.get(), &c, 1) == 1 && c != '\n') line += c;
    return line;
  }
  int End(int signal) {
    if (pid_ <= 0) return -1;
    ::kill(pid_, signal);
    return Wait();
  }
  int Wait() {
    int status = -1;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd results_;
};

class HearthdTest : public ::testing::Test {
 protected:
  std::vector<std::string> Args(std::vector<std::string> more = {}) const {
    std::vector<std::string> args = {"--pack",       pack_.dir(), "--socket", socket_,
                                     "--ram-budget", "64MiB",     "--io",     "pread"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  std::unique_ptr<RemoteStore> Connect(const Pack& pack) {
    absl::StatusOr<std::unique_ptr<RemoteStore>> remote = RemoteStore::Connect(
        pack.manifest, pack.experts,
        {.socket_path = socket_, .retry_min_ns = 10'000'000, .retry_max_ns = 20'000'000}, clock_);
    EXPECT_TRUE(remote.ok()) << remote.status();
    return remote.ok() ? *std::move(remote) : nullptr;
  }
  static void ExpectPacksBytes(RemoteStore& remote, const Pack& pack) {
    std::vector<std::byte> blob;
    for (uint32_t l = 0; l < remote.layer_count(); ++l) {
      for (uint32_t e = 0; e < remote.expert_count(); ++e) {
        const ExpertKey key{LayerId(l), ExpertId(e)};
        blob.resize(remote.layout(key.layer).blob_bytes());
        ASSERT_TRUE(pack.experts.Read(key, blob).ok());
        const absl::StatusOr<ExpertLease> lease = remote.Acquire(key);
        ASSERT_TRUE(lease.ok()) << lease.status();
        ASSERT_TRUE(std::ranges::equal(lease->bytes(), blob));
      }
    }
  }

  TemporaryPack pack_{HashModel(), DenseChoice::kBf16};
  FixtureDir dir_;
  std::string socket_ = dir_.File("socket");
  SteadyClock clock_;
};

TEST(HearthdHelp, FitsAScreen) {
  const Outcome help = RunHere({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_TRUE(help.results.starts_with("hearthd: ")) << help.results;
  EXPECT_LE(std::ranges::count(help.results, '\n'), 28);
  std::istringstream lines(help.results);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_THAT(RunHere({"--version"}).results, HasSubstr("hearthd "));
}

TEST(HearthdConfig, IsAListThatItsOwnParsersAccept) {
  DaemonConfig config;
  EXPECT_TRUE(CheckFields(FieldsOf(config)).ok()) << CheckFields(FieldsOf(config));
}

TEST(HearthdUsage, WrongCommandLinesAreExplained) {
  const auto expect = [](std::vector<std::string> args, const std::string& text) {
    const Outcome outcome = RunHere(std::move(args));
    EXPECT_EQ(outcome.code, 2) << outcome.talk;
    EXPECT_THAT(outcome.talk, HasSubstr(text));
    EXPECT_EQ(outcome.results, "");
  };
  expect({}, "--pack: is required");
  expect({"--pack", "p", "--socket", "s"}, "--ram-budget: is required");
  expect({"--pack", "p", "--socket", "s", "--ram-budget", "24"}, "24");
  expect({"--pak", "p"}, "--pack");
  expect({"--pack", "p", "--socket", "s", "--ram-budget", "1GiB", "--save-seconds", "5"},
         "--save-seconds: has no effect");
  expect({"--pack", "p", "--socket", "s", "--ram-budget", "1GiB", "--policy", "lruu"}, "lru");
}

TEST_F(HearthdTest, PacksAndBudgetsThatCannotBeAreRefused) {
  Outcome outcome = RunHere({"--pack", "/nowhere", "--socket", socket_, "--ram-budget", "1GiB"});
  EXPECT_EQ(outcome.code, 5) << outcome.talk;
  outcome = RunHere({"--pack", pack_.dir(), "--socket", socket_, "--ram-budget", "1KiB"});
  EXPECT_EQ(outcome.code, 4) << outcome.talk;
  EXPECT_FALSE(FileExists(socket_));
}

TEST_F(HearthdTest, SaysWhatItTakesAndServes) {
  const Outcome outcome = RunHere(Args());
  EXPECT_EQ(outcome.code, 0) << outcome.talk;
  EXPECT_THAT(outcome.talk, HasSubstr("for experts ("));
  EXPECT_THAT(outcome.talk, HasSubstr("leaves "));
  EXPECT_THAT(outcome.results, HasSubstr("hearthd serves " + pack_.dir() + " at " + socket_));
  EXPECT_FALSE(FileExists(socket_));
}

TEST_F(HearthdTest, AForeignProfileIsRefused) {
  const std::string path = dir_.File("profile.json");
  RoutingProfile profile;
  profile.identity = {.model_xxh3_128 = std::string(32, 'a'),
                      .tokenizer_xxh3_128 = std::string(32, 'b'),
                      .layer_count = 1,
                      .expert_count = 2,
                      .ranks = 1};
  profile.domains.push_back({.name = "x", .token_count = 2, .counts = {1, 1}});
  WriteFixtureFile(path, profile.ToJson());
  const Outcome outcome = RunHere(Args({"--profile", path}));
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.talk, HasSubstr(path));
}

TEST_F(HearthdTest, AStateThatCannotBeSavedIsAWarning) {
  const Outcome outcome = RunHere(Args({"--state", "/nowhere/state"}));
  EXPECT_EQ(outcome.code, 0);
  EXPECT_THAT(outcome.talk, HasSubstr("warning: the state will not be saved"));
}

TEST_F(HearthdTest, ServesUntilItIsAskedToEndAndKeepsItsState) {
  const std::string state = dir_.File("state"), talk = dir_.File("talk");
  const absl::StatusOr<Pack> pack = Pack::Open(pack_.dir());
  ASSERT_TRUE(pack.ok()) << pack.status();
  {
    Program program(Args({"--state", state, "--json"}), talk);
    EXPECT_THAT(program.ReadLine(), HasSubstr("\"ready\""));
    struct stat info;
    ASSERT_EQ(::stat(socket_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    {
      const std::unique_ptr<RemoteStore> remote = Connect(*pack);
      ASSERT_NE(remote, nullptr);
      ExpectPacksBytes(*remote, *pack);
    }
    // A second one finds the socket taken, and leaves it alone.
    const Outcome second = RunHere(Args());
    EXPECT_EQ(second.code, 1);
    EXPECT_THAT(second.talk, HasSubstr("another hearthd serves this socket"));
    EXPECT_EQ(program.End(SIGTERM), 0);
    EXPECT_THAT(program.ReadLine(), HasSubstr("\"read_count\""));
    EXPECT_FALSE(FileExists(socket_));
    EXPECT_TRUE(FileExists(state));
  }
  Program again(Args({"--state", state}), talk);
  EXPECT_THAT(again.ReadLine(), HasSubstr("hearthd serves"));
  EXPECT_THAT(ReadFixtureFile(talk), Not(HasSubstr("is not used")));
}

TEST_F(HearthdTest, AKilledOneIsReplacedAndItsEnginesFindTheNext) {
  const absl::StatusOr<Pack> pack = Pack::Open(pack_.dir());
  ASSERT_TRUE(pack.ok()) << pack.status();
  auto first = std::make_unique<Program>(Args(), dir_.File("talk"));
  first->ReadLine();
  const std::unique_ptr<RemoteStore> remote = Connect(*pack);
  ASSERT_NE(remote, nullptr);
  first->End(SIGKILL);
  ASSERT_TRUE(FileExists(socket_));
  ExpectPacksBytes(*remote, *pack);
  Program second(Args(), dir_.File("talk"));
  EXPECT_THAT(second.ReadLine(), HasSubstr("hearthd serves"));
  for (int i = 0; i < 5000 && !remote->connected(); ++i) ::poll(nullptr, 0, 1);
  EXPECT_TRUE(remote->connected());
  ExpectPacksBytes(*remote, *pack);
}

}  // namespace
}  // namespace hearth::cli
