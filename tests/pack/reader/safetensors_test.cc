// Goal: a safetensors file or set of shards is either read or refused with one line that names the
// path and the reason; nothing is allocated because a header says so.
#include "pack/reader/safetensors.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/safetensors_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

absl::StatusOr<std::vector<SourceTensor>> Parse(const std::string& bytes) {
  return ParseSafetensors(std::as_bytes(std::span(bytes)), bytes.size(), "/m/x.safetensors");
}

std::vector<FixtureTensor> TwoTensors() {
  const std::vector<float> a = {1, 2, 3, 4, 5, 6};
  const std::vector<uint16_t> b = {0x3F80, 0x4000};
  return {F32Fixture("a", {2, 3}, a), Bf16Fixture("b", {2}, b)};
}

TEST(Safetensors, ReadsTensorsByOffset) {
  const FixtureDir dir;
  WriteFixtureFile(dir.File("x.safetensors"), SafetensorsBytes(TwoTensors()));
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(dir.File("x.safetensors"));
  ASSERT_EQ(file.status(), absl::OkStatus());
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_EQ(DescribeTensor(file->tensors()[0]), "[2, 3] F32");
  EXPECT_EQ(file->tensors()[1].value_count(), 2u);
  std::vector<float> row(3);
  ASSERT_EQ(file->Read(file->tensors()[0], 12, std::as_writable_bytes(std::span(row))),
            absl::OkStatus());
  EXPECT_EQ(row, (std::vector<float>{4, 5, 6}));
}

TEST(Safetensors, MetadataOnlyIsAFileWithoutTensors) {
  for (const char* header : {"{}", R"({"__metadata__":{"format":"pt"}})", "{}      "}) {
    const auto tensors = Parse(SafetensorsBytes(header, ""));
    ASSERT_EQ(tensors.status(), absl::OkStatus()) << header;
    EXPECT_THAT(*tensors, IsEmpty());
  }
}

TEST(Safetensors, EmptyAndScalarTensorsAreRead) {
  const auto tensors =
      Parse(SafetensorsBytes(R"({"e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},)"
                             R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
                             "abcd"));
  ASSERT_EQ(tensors.status(), absl::OkStatus());
  EXPECT_EQ((*tensors)[0].value_count(), 0u);
  EXPECT_EQ((*tensors)[1].value_count(), 1u);
  EXPECT_EQ((*tensors)[1].rank, 0u);
}

struct Malformed {
  const char* name;
  std::string bytes;
  absl::StatusCode code;
  const char* part;
};

std::vector<Malformed> MalformedFiles() {
  const auto with = [](std::string_view header, size_t data_bytes) {
    return SafetensorsBytes(header, std::string(data_bytes, 'x'));
  };
  const auto length = [](uint64_t value, std::string_view rest) {
    std::string bytes(reinterpret_cast<const char*>(&value), 8);
    return bytes.append(rest);
  };
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  constexpr auto kLoss = absl::StatusCode::kDataLoss;
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const std::string deep = std::string(2000, '[') + std::string(2000, ']');
  return {
      {"no bytes", "", kLoss, "0 bytes"},
      {"7 bytes", "1234567", kLoss, "7 bytes"},
      {"length 2^64-1", length(UINT64_MAX, "{}"), kLoss, "header length 18446744073709551615"},
      {"length one past the end", length(3, "{}"), kLoss,
       "header length 3 goes beyond the file of 10"},
      {"length 0", length(0, ""), kBad, "header length 0"},
      {"LFS pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n",
       absl::StatusCode::kFailedPrecondition, "git lfs pull"},
      {"not JSON", with("hello", 0), kBad, "bad JSON"},
      {"JSON cut short", with("{" + a, 4), kBad, "header"},
      {"array", with("[]", 0), kBad, "bad JSON"},
      {"text after the object", with("{} x", 0), kBad, "header"},
      {"two objects", with("{}{}", 0), kBad, "header"},
      {"not UTF-8", with("{\"\xFF\":1}", 0), kBad, "UTF-8"},
      {"tensor is a number", with(R"({"a":5})", 0), kBad, "'a'"},
      {"unknown key", with(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"z":1}})", 0),
       kBad, "unknown key 'z'"},
      {"no dtype", with(R"({"a":{"shape":[0],"data_offsets":[0,0]}})", 0), kBad, "no dtype"},
      {"no shape", with(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0), kBad, "no shape"},
      {"no offsets", with(R"({"a":{"dtype":"U8","shape":[0]}})", 0), kBad, "no data_offsets"},
      {"key twice",
       with(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", 0), kBad,
       "duplicate key 'dtype'"},
      {"unknown dtype", with(R"({"a":{"dtype":"F4","shape":[0],"data_offsets":[0,0]}})", 0), kBad,
       "unknown dtype 'F4'"},
      {"negative dimension", with(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}})", 0),
       kBad, "shape"},
      {"fractional dimension",
       with(R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,0]}})", 0), kBad, "shape"},
      {"deep JSON", with(R"({"a":{"dtype":"U8","shape":)" + deep + R"(,"data_offsets":[0,0]}})", 0),
       kBad, "header"},
      {"nine dimensions",
       with(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1), kBad,
       "more than 8"},
      {"shape overflows",
       with(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
       kBad, "overflows"},
      {"span is not shape x dtype",
       with(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4), kBad,
       "needs 8 bytes, data_offsets span 4"},
      {"offsets reversed", with(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", 4),
       kBad, "reversed: [4, 0]"},
      {"one offset", with(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4]}})", 4), kBad,
       "two numbers"},
      {"three offsets", with(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4,4]}})", 4), kBad,
       "two numbers"},
      {"duplicate tensor",
       with("{" + a + R"(,"a":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})", 5), kBad,
       "duplicate tensor 'a'"},
      {"the same name escaped",
       with("{" + a + R"(,"\u0061":{"dtype":"U8","shape":[1],"data_offsets":[4,5]}})", 5), kBad,
       "duplicate tensor 'a'"},
      {"overlap", with("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})", 5),
       kBad, "overlap"},
      {"gap", with("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[5,7]}})", 7), kBad,
       "a gap"},
      {"gap at the start", with(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[1,5]}})", 5),
       kBad, "a gap"},
      {"truncated", with("{" + a + "}", 3), kLoss, "expected a file of 65 bytes, found 64"},
      {"out of the file",
       with(R"({"a":{"dtype":"U8","shape":[18446744073709551615],)"
            R"("data_offsets":[0,18446744073709551615]}})",
            4),
       kLoss, "truncated"},
      {"bytes after the last tensor", with("{" + a + "}", 6), kLoss, "2 bytes belong to no tensor"},
      {"metadata twice", with(R"({"__metadata__":{},"__metadata__":{}})", 0), kBad, "__metadata__"},
      {"metadata of numbers", with(R"({"__metadata__":{"a":1}})", 0), kBad, "__metadata__"},
      {"name of many lines", with("{\"a\\nb\":5}", 0), kBad, "'a\\nb'"},
  };
}

TEST(Safetensors, MalformedFilesAreRefusedWithOneLine) {
  const FixtureDir dir;
  const std::string path = dir.File("x.safetensors");
  for (const Malformed& c : MalformedFiles()) {
    WriteFixtureFile(path, c.bytes);
    const absl::Status status = SafetensorsFile::Open(path).status();
    EXPECT_EQ(status.code(), c.code) << c.name << ": " << status;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(path)) << c.name;
    EXPECT_THAT(message, HasSubstr(c.part)) << c.name;
    EXPECT_THAT(message, Not(HasSubstr("\n"))) << c.name;
    EXPECT_LT(message.size(), 600u) << c.name;
  }
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string whole = SafetensorsBytes(TwoTensors());
  ASSERT_EQ(Parse(whole).status(), absl::OkStatus());
  for (size_t bytes = 0; bytes < whole.size(); ++bytes) {
    EXPECT_FALSE(Parse(whole.substr(0, bytes)).ok()) << bytes;
  }
}

// Two shards, a in the first and b in the second, with an index that a test may change.
class ShardSet : public ::testing::Test {
 protected:
  static constexpr const char* kOne = "model-00001-of-00002.safetensors";
  static constexpr const char* kTwo = "model-00002-of-00002.safetensors";

  void SetUp() override {
    const std::vector<FixtureTensor> tensors = TwoTensors();
    WriteFixtureFile(dir_.File(kOne), SafetensorsBytes(std::span(tensors).first(1)));
    WriteFixtureFile(dir_.File(kTwo), SafetensorsBytes(std::span(tensors).subspan(1)));
    WriteIndex(std::string(R"("a":")") + kOne + R"(","b":")" + kTwo + "\"");
  }
  void WriteIndex(const std::string& entries) {
    WriteFixtureFile(dir_.File("model.safetensors.index.json"),
                     "{\"metadata\":{\"total_size\":28},\"weight_map\":{" + entries + "}}");
  }
  void ExpectRefusal(absl::StatusCode code, const std::vector<std::string>& parts) {
    const absl::Status status = SafetensorsSet::Open(dir_.path()).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(dir_.path()));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("\n")));
    for (const std::string& part : parts) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
  }
  FixtureDir dir_;
};

TEST_F(ShardSet, FindsTensorsInTheirShards) {
  const absl::StatusOr<SafetensorsSet> set = SafetensorsSet::Open(dir_.path());
  ASSERT_EQ(set.status(), absl::OkStatus());
  EXPECT_EQ(set->tensor_count(), 2u);
  EXPECT_EQ(set->Find("b").file->file().path(), dir_.File(kTwo));
  EXPECT_EQ(set->Find("c").tensor, nullptr);
}

TEST_F(ShardSet, MissingShardsAreListed) {
  std::filesystem::remove(dir_.File(kTwo));
  ExpectRefusal(absl::StatusCode::kNotFound, {"1 of 2 shards missing", kTwo});
}

TEST_F(ShardSet, FilesThatTheIndexDoesNotNameAreIgnored) {
  WriteFixtureFile(dir_.File("amax.safetensors"), "not even a header");
  EXPECT_EQ(SafetensorsSet::Open(dir_.path())->tensor_count(), 2u);
}

TEST_F(ShardSet, ShardsMayLieInAFolder) {
  std::filesystem::create_directory(dir_.File("tensors"));
  std::filesystem::rename(dir_.File(kTwo), dir_.File(std::string("tensors/") + kTwo));
  WriteIndex(std::string(R"("a":")") + kOne + R"(","b":"tensors/)" + kTwo + "\"");
  const absl::StatusOr<SafetensorsSet> set = SafetensorsSet::Open(dir_.path());
  ASSERT_EQ(set.status(), absl::OkStatus());
  EXPECT_EQ(set->Find("b").file->file().path(), dir_.File(std::string("tensors/") + kTwo));
}

TEST_F(ShardSet, AShardOfAnotherModelIsNamed) {
  const std::vector<float> c = {1};
  const std::vector<FixtureTensor> other = {F32Fixture("c", {1}, c)};
  WriteFixtureFile(dir_.File(kTwo), SafetensorsBytes(other));
  ExpectRefusal(absl::StatusCode::kNotFound, {"'b'", kTwo, "does not have it"});
}

TEST_F(ShardSet, AListedTensorThatNoShardHasIsNamed) {
  WriteIndex(std::string(R"("a":")") + kOne + R"(","b":")" + kTwo + R"(","c":")" + kTwo + "\"");
  ExpectRefusal(absl::StatusCode::kNotFound, {"'c'", kTwo});
}

TEST_F(ShardSet, ATensorInAnotherShardThanListedIsNamed) {
  WriteIndex(std::string(R"("a":")") + kTwo + R"(","b":")" + kOne + "\"");
  ExpectRefusal(absl::StatusCode::kInvalidArgument, {"'a'", kOne, kTwo});
}

TEST_F(ShardSet, ATensorInTwoShardsIsNamed) {
  const std::vector<FixtureTensor> tensors = TwoTensors();
  WriteFixtureFile(dir_.File(kTwo), SafetensorsBytes(tensors));
  ExpectRefusal(absl::StatusCode::kInvalidArgument, {"'a' is also in", kOne, kTwo});
}

TEST_F(ShardSet, ATensorListedTwiceIsNamed) {
  WriteIndex(std::string(R"("a":")") + kOne + R"(","b":")" + kTwo + R"(","a":")" + kOne + "\"");
  ExpectRefusal(absl::StatusCode::kInvalidArgument, {"'a' is listed twice"});
}

TEST_F(ShardSet, ATruncatedShardIsRefusedWithBothSizes) {
  const std::string bytes = ReadFixtureFile(dir_.File(kTwo));
  WriteFixtureFile(dir_.File(kTwo), bytes.substr(0, bytes.size() - 1));
  ExpectRefusal(absl::StatusCode::kDataLoss, {kTwo, "truncated", std::to_string(bytes.size()),
                                              std::to_string(bytes.size() - 1)});
}

TEST_F(ShardSet, SwappedShardFilesAreRefused) {
  const std::string one = ReadFixtureFile(dir_.File(kOne));
  WriteFixtureFile(dir_.File(kOne), ReadFixtureFile(dir_.File(kTwo)));
  WriteFixtureFile(dir_.File(kTwo), one);
  ExpectRefusal(absl::StatusCode::kInvalidArgument, {"listed in", "found in"});
}

TEST_F(ShardSet, NamesThatLeaveTheDirectoryAreRefused) {
  for (const char* name : {"../x.safetensors", "/m/x.safetensors", "a/../x.safetensors",
                           "/etc/passwd", "a//x.safetensors", "x.bin", ""}) {
    WriteIndex(std::string(R"("a":")") + name + "\"");
    ExpectRefusal(absl::StatusCode::kInvalidArgument, {"not the name of a .safetensors file"});
  }
}

TEST_F(ShardSet, ABrokenIndexIsRefused) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"weight_map":5})", R"({"weight_map":{"a":5}})"}) {
    WriteFixtureFile(dir_.File("model.safetensors.index.json"), text);
    ExpectRefusal(absl::StatusCode::kInvalidArgument, {"model.safetensors.index.json"});
  }
}

TEST_F(ShardSet, SeveralShardsNeedAnIndex) {
  std::filesystem::remove(dir_.File("model.safetensors.index.json"));
  ExpectRefusal(absl::StatusCode::kNotFound, {"2 .safetensors files and no"});
  std::filesystem::remove(dir_.File(kTwo));
  EXPECT_EQ(SafetensorsSet::Open(dir_.path()).status(), absl::OkStatus());
  std::filesystem::remove(dir_.File(kOne));
  ExpectRefusal(absl::StatusCode::kNotFound, {"no .safetensors file"});
}

TEST(SafetensorsSet, ADirectoryThatIsNotThereIsNamed) {
  const absl::Status status = SafetensorsSet::Open("/no/such/dir").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/no/such/dir"));
}

}  // namespace
}  // namespace hearth
