// Traces in files: what is saved is read, and bad files are named.
#include "runtime/engine/trace_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "runtime/base/file.h"
#include "runtime/base/replace_file.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

RouteTrace Example() {
  return {.identity = {.model_xxh3_128 = std::string(32, 'a'),
                       .tokenizer_xxh3_128 = std::string(32, 'b'),
                       .layer_count = 2,
                       .has_mtp = true,
                       .expert_count = 4,
                       .ranks = 2},
          .text_begins = {0, 1},
          .routes = {0, 1, 2, 3, 3, 0, 1, 0}};
}

TEST(TraceFile, ReadsWhatItWrites) {
  const FixtureDir dir;
  const std::string path = JoinPath(dir.path(), "t.trace");
  ASSERT_TRUE(WriteTrace(path, Example()).ok());
  const absl::StatusOr<RouteTrace> read = ReadTrace(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->routes, Example().routes);
  EXPECT_EQ(read->text_begins, Example().text_begins);
  EXPECT_EQ(read->identity, Example().identity);
}

TEST(TraceFile, MissingCutAndForeignFilesAreNamed) {
  const FixtureDir dir;
  const std::string path = JoinPath(dir.path(), "t.trace");
  EXPECT_EQ(ReadTrace(path).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(WriteTrace(path, Example()).ok());
  const std::string whole = *ReadFile(path, 1 << 20);
  for (const std::string& text :
       {std::string(), whole.substr(0, whole.size() - 1), std::string(100, 'x')}) {
    ASSERT_TRUE(ReplaceFile(path, text).ok());
    const absl::Status status = ReadTrace(path).status();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
}

}  // namespace
}  // namespace hearth
