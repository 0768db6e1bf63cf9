// PackDirectory: what exists is not overwritten by accident, what an interrupted build left is
// cleaned up, what is not ours is never touched, and two builds do not write into one place.
#include "pack/writer/pack_directory.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "runtime/base/file.h"
#include "tests/support/safetensors_fixture.h"
#include "tests/support/synthetic_checkpoint.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

Manifest SomeManifest(const std::string& made_by) {
  Manifest m;
  m.geometry = SyntheticGeometry({});
  m.made_by = made_by;
  return m;
}

void CommitPack(const std::string& target, const std::string& made_by, IfExists if_exists) {
  auto dir = PackDirectory::Create(target, if_exists);
  ASSERT_TRUE(dir.ok()) << dir.status();
  WriteFixtureFile(dir->path() + "/dense.bin", made_by);
  if (FileExists(target + "/dense.bin")) {
    EXPECT_NE(ReadFixtureFile(target + "/dense.bin"), made_by) << "not before it is complete";
  }
  ASSERT_TRUE(dir->Commit(SomeManifest(made_by)).ok());
  EXPECT_EQ(ReadFixtureFile(target + "/dense.bin"), made_by);
}

TEST(PackDirectory, AppearsOnlyWhenCommitted) {
  FixtureDir dir;
  CommitPack(dir.File("pack"), "one", IfExists::kRefuse);
  EXPECT_FALSE(FileExists(dir.File("pack.building")));
  {
    const auto abandoned = PackDirectory::Create(dir.File("other"), IfExists::kRefuse);
    ASSERT_TRUE(abandoned.ok());
    WriteFixtureFile(abandoned->path() + "/experts.bin", "half");
  }
  EXPECT_FALSE(FileExists(dir.File("other")));
  EXPECT_FALSE(FileExists(dir.File("other.building")));
}

TEST(PackDirectory, ReplacesOnlyAPackAndOnlyWhenAsked) {
  FixtureDir dir;
  const std::string target = dir.File("pack");
  CommitPack(target, "one", IfExists::kRefuse);
  const auto refused = PackDirectory::Create(target, IfExists::kRefuse).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--force"));
  CommitPack(target, "two", IfExists::kReplacePack);
  EXPECT_FALSE(FileExists(target + ".building")) << "the old pack is gone";

  std::filesystem::create_directory(dir.File("documents"));
  WriteFixtureFile(dir.File("documents/letter.txt"), "dear");
  WriteFixtureFile(dir.File("documents/manifest.json"), "{\"name\": \"an extension\"}");
  for (const IfExists choice : {IfExists::kRefuse, IfExists::kReplacePack}) {
    EXPECT_EQ(PackDirectory::Create(dir.File("documents"), choice).status().code(),
              absl::StatusCode::kAlreadyExists);
    EXPECT_EQ(PackDirectory::Create(dir.File("documents/letter.txt"), choice).status().code(),
              absl::StatusCode::kAlreadyExists);
  }
  EXPECT_EQ(ReadFixtureFile(dir.File("documents/letter.txt")), "dear");
}

TEST(PackDirectory, TakesAnEmptyDirectoryAndATrailingSlash) {
  FixtureDir dir;
  std::filesystem::create_directory(dir.File("empty"));
  auto made = PackDirectory::Create(dir.File("empty") + "/", IfExists::kRefuse);
  ASSERT_TRUE(made.ok()) << made.status();
  ASSERT_TRUE(made->Commit(SomeManifest("x")).ok());
  EXPECT_TRUE(FileExists(dir.File("empty/manifest.json")));
}

TEST(PackDirectory, CleansUpAfterAnInterruptedBuild) {
  FixtureDir dir;
  std::filesystem::create_directory(dir.File("pack.building"));
  WriteFixtureFile(dir.File("pack.building/experts.bin"), "half");
  CommitPack(dir.File("pack"), "one", IfExists::kRefuse);
  EXPECT_FALSE(FileExists(dir.File("pack/experts.bin")));
}

TEST(PackDirectory, NeverRemovesWhatNoBuildMakes) {
  FixtureDir dir;
  std::filesystem::create_directory(dir.File("pack.building"));
  WriteFixtureFile(dir.File("pack.building/thesis.tex"), "years of work");
  WriteFixtureFile(dir.File("pack.building/dense.bin"), "half");
  const auto status = PackDirectory::Create(dir.File("pack"), IfExists::kRefuse).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("thesis.tex"));
  EXPECT_TRUE(FileExists(dir.File("pack.building/thesis.tex")));
  EXPECT_TRUE(FileExists(dir.File("pack.building/dense.bin")));
}

TEST(PackDirectory, RefusesASecondBuildInTheSamePlace) {
  FixtureDir dir;
  const auto first = PackDirectory::Create(dir.File("pack"), IfExists::kRefuse);
  ASSERT_TRUE(first.ok());
  const auto second = PackDirectory::Create(dir.File("pack"), IfExists::kRefuse).status();
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.message()), HasSubstr("another build"));
}

TEST(PackDirectory, NamesAParentThatDoesNotExist) {
  FixtureDir dir;
  const auto status = PackDirectory::Create(dir.File("no/pack"), IfExists::kRefuse).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace hearth
