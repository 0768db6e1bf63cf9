// VerifyPack and Pack::Open against damage: every byte of a small pack is flipped (of its padding,
// every seventh), files are cut at every length up to 512 and at every seventh after, and what is
// reported must name the place.
#include "pack/reader/verify.h"

#include <array>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "pack/reader/pack.h"
#include "runtime/base/prng.h"
#include "tests/pack/reader/small_pack.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> FilesOf(const Pack& pack) {
  std::vector<std::string> names = {"manifest.json"};
  for (const PackFile& file : pack.manifest.files) names.push_back(file.name);
  return names;
}

void WriteByte(const std::string& path, uint64_t offset, char byte) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(byte);
  ASSERT_TRUE(file.good()) << path;
}

// What a fault at this byte must be called.
std::string PlaceOf(const Pack& pack, const std::string& file, uint64_t offset) {
  if (file == "dense.bin" || file == "mtp.bin") {
    const TensorFile& tensors = file == "mtp.bin" ? *pack.mtp : pack.dense;
    for (const TensorInfo& t : tensors.tensors()) {
      if (offset >= t.offset_bytes && offset < t.offset_bytes + t.bytes) return "tensor " + t.name;
    }
    const TensorInfo& last = tensors.tensors().back();
    const bool after = offset >= AlignUp(last.offset_bytes + last.bytes, 64);
    return offset < sizeof(FileHeader) || after ? "header or directory" : "padding at ";
  }
  if (file == "experts.bin") {
    uint64_t end = 0;
    for (uint32_t layer = 0; layer < pack.experts.layer_count(); ++layer) {
      for (uint32_t e = 0; e < pack.experts.expert_count(); ++e) {
        const ExpertKey key{LayerId(layer), ExpertId(e)};
        const uint64_t begin = pack.experts.offset_bytes(key);
        const ExpertLayout& layout = pack.experts.layout(key.layer);
        if (offset >= begin && offset < begin + layout.blob_bytes()) {
          return absl::StrCat("layer ", layer, " expert ", e);
        }
        end = begin + layout.stride_bytes();
      }
    }
    return offset < sizeof(FileHeader) || offset >= end ? "header or directory" : "padding at ";
  }
  if (file == "ngram.bin") {
    const uint64_t end = kExpertAlignBytes + pack.ngram->row_count() * pack.ngram->row_bytes();
    if (offset >= kExpertAlignBytes && offset < end) return "rows 0 to 4";
    return offset < sizeof(FileHeader) || offset >= AlignUp(end, 64) ? "header or directory"
                                                                     : "padding at ";
  }
  return "";
}

TEST(VerifyPack, AcceptsAPackAndReadsEveryByteOnce) {
  FixtureDir dir;
  const std::string path = dir.File("pack");
  BuildSmallPack(
      path, {.hidden = 48, .width = 32, .layer_count = 4, .vocab_count = 300, .ngram_rows = 10000});
  for (const uint32_t workers : {1u, 3u}) {
    uint64_t last = 0;
    const auto report = VerifyPack(
        path,
        [&last](const VerifyProgress& p) {
          EXPECT_GE(p.done_bytes, last);
          EXPECT_LE(p.done_bytes, p.total_bytes);
          last = p.done_bytes;
        },
        workers);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->ok()) << report->faults[0].file << ": " << report->faults[0].what;
    uint64_t bytes = 0;
    uint64_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      bytes += entry.file_size();
      ++files;
    }
    EXPECT_EQ(report->bytes_read, bytes);
    EXPECT_EQ(report->file_count, files);
    EXPECT_EQ(last, bytes);
  }
}

TEST(VerifyPack, FindsAndNamesAFlippedBitInEveryByte) {
  FixtureDir dir;
  const std::string path = dir.File("pack");
  BuildSmallPack(path);
  const auto pack = Pack::Open(path);
  ASSERT_TRUE(pack.ok()) << pack.status();
  Prng prng(7);
  for (const std::string& name : FilesOf(*pack)) {
    const std::string file = path + "/" + name;
    const std::string original = ReadFixtureFile(file);
    for (uint64_t offset = 0; offset < original.size(); ++offset) {
      const std::string place = PlaceOf(*pack, name, offset);
      if (place == "padding at " && offset % 7 != 0) continue;
      const auto mask = static_cast<char>(1u << prng.Below(8));
      WriteByte(file, offset, static_cast<char>(original[offset] ^ mask));
      const auto report = VerifyPack(path, nullptr, 1);
      WriteByte(file, offset, original[offset]);
      ASSERT_TRUE(report.ok()) << report.status();
      ASSERT_EQ(report->fault_count, 1u) << name << " byte " << offset;
      ASSERT_EQ(report->faults[0].file, name) << "byte " << offset;
      ASSERT_THAT(report->faults[0].where, StartsWith(place)) << name << " byte " << offset;
    }
  }
  const auto report = VerifyPack(path, nullptr, 1);
  ASSERT_TRUE(report.ok() && report->ok()) << "the pack is as it was before";
}

TEST(VerifyPack, ReportsAllDamagedExpertsNotOnlyTheFirst) {
  FixtureDir dir;
  const std::string path = dir.File("pack");
  SyntheticOptions options = SmallOptions();
  options.expert_count = 2;
  BuildSmallPack(path, options);
  const auto pack = Pack::Open(path);
  ASSERT_TRUE(pack.ok()) << pack.status();
  for (uint32_t e = 0; e < 2; ++e) {
    const uint64_t at = pack->experts.offset_bytes({LayerId(1), ExpertId(e)}) + 5;
    std::string bytes = ReadFixtureFile(path + "/experts.bin");
    WriteByte(path + "/experts.bin", at, static_cast<char>(bytes[at] ^ 4));
    std::vector<std::byte> blob(pack->experts.layout(LayerId(1)).blob_bytes());
    const absl::Status read = pack->experts.Read({LayerId(1), ExpertId(e)}, blob);
    EXPECT_EQ(read.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(read.message()), HasSubstr(absl::StrCat("layer 1 expert ", e)));
  }
  const auto report = VerifyPack(path, nullptr, 2);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->fault_count, 2u);
  EXPECT_EQ(report->faults[1].where, "layer 1 expert 1");
}

TEST(VerifyPack, AFileOfAnotherPackIsFoundByItsHash) {
  FixtureDir dir;
  SyntheticOptions other = SmallOptions();
  other.seed = 2;
  BuildSmallPack(dir.File("a"));
  BuildSmallPack(dir.File("b"), other);
  WriteFixtureFile(dir.File("a/dense.bin"), ReadFixtureFile(dir.File("b/dense.bin")));
  const auto report = VerifyPack(dir.File("a"), nullptr, 1);
  ASSERT_TRUE(report.ok()) << report.status();
  ASSERT_EQ(report->fault_count, 1u);
  EXPECT_EQ(report->faults[0].file, "dense.bin");
  EXPECT_THAT(report->faults[0].what, HasSubstr("contents differ"));
}

TEST(VerifyPack, ADirectoryWithoutAManifestIsNotAPack) {
  FixtureDir dir;
  EXPECT_EQ(VerifyPack(dir.path(), nullptr, 1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Pack::Open(dir.path()).status().code(), absl::StatusCode::kNotFound);
}

TEST(PackOpen, RefusesEveryFileCutAtAnyLength) {
  FixtureDir dir;
  const std::string path = dir.File("pack");
  BuildSmallPack(path);
  const auto pack = Pack::Open(path);
  ASSERT_TRUE(pack.ok()) << pack.status();
  for (const std::string& name : FilesOf(*pack)) {
    const std::string file = path + "/" + name;
    const std::string original = ReadFixtureFile(file);
    for (uint64_t length = original.size(); length-- > 0;) {
      const bool every = length < 512 || length + 64 > original.size();
      if (!every && length % 7 != 0) continue;
      std::filesystem::resize_file(file, length);
      const absl::Status status = Pack::Open(path).status();
      ASSERT_FALSE(status.ok()) << name << " cut to " << length;
      const std::string message(status.message());
      ASSERT_THAT(message, HasSubstr(name)) << length;
      ASSERT_THAT(message, HasSubstr(absl::StrCat("found ", length))) << name;
      if (name != "manifest.json") {  // which may have lost its own length
        ASSERT_THAT(message, HasSubstr(absl::StrCat("expected ", original.size(), " bytes")));
      } else {
        ASSERT_THAT(message, HasSubstr("expected ")) << length;
      }
    }
    WriteFixtureFile(file, original);
  }
  EXPECT_TRUE(Pack::Open(path).ok()) << "the pack is as it was before";
}

TEST(PackOpen, RefusesAFileThatHasGrown) {
  FixtureDir dir;
  const std::string path = dir.File("pack");
  BuildSmallPack(path);
  for (const char* name : {"dense.bin", "experts.bin", "ngram.bin", "mtp.bin", "tokenizer.json"}) {
    const std::string file = path + "/" + name;
    const std::string original = ReadFixtureFile(file);
    WriteFixtureFile(file, original + '\0');
    const absl::Status status = Pack::Open(path).status();
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("found ", original.size() + 1)));
    WriteFixtureFile(file, original);
  }
}

// A .bin file opened on its own knows its length too, without the manifest.
TEST(TensorFile, RefusesACutFileByItsOwnHeader) {
  FixtureDir dir;
  const std::string path = dir.File("pack");
  BuildSmallPack(path);
  const std::string file = path + "/dense.bin";
  const std::string original = ReadFixtureFile(file);
  for (const uint64_t length : {0ul, 63ul, 64ul, 65ul, original.size() - 1}) {
    std::filesystem::resize_file(file, length);
    const absl::Status status = TensorFile::Open(file).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("found ", length)));
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected "));
    WriteFixtureFile(file, original);
  }
}

TEST(PackOpen, RefusesFilesThatDoNotFitTheGeometry) {
  FixtureDir dir;
  const std::string path = dir.File("pack");
  BuildSmallPack(path);
  const std::string manifest = path + "/manifest.json";
  const auto parsed = Manifest::FromJson(ReadFixtureFile(manifest), manifest);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const auto expect = [&](auto&& change, const std::string& what) {
    Manifest changed = *parsed;
    change(changed);
    WriteFixtureFile(manifest, changed.ToJson());
    const absl::Status status = Pack::Open(path).status();
    EXPECT_FALSE(status.ok()) << what;
    EXPECT_THAT(std::string(status.message()), HasSubstr(what));
  };
  expect([](Manifest& m) { m.geometry.vocab_count = 5; }, "embed_tokens: expected (5, 16)");
  expect([](Manifest& m) { m.geometry.layers.push_back(MixerKind::kQsa); }, "layers.1.");
  expect([](Manifest& m) { m.geometry.moe.expert_width = 32; }, "width 32");
  expect([](Manifest& m) { m.geometry.ngram.row_count = 6; }, "expected 6 rows");
  expect([](Manifest& m) { m.geometry.has_mtp = false; }, "mtp.bin");
  expect([](Manifest& m) { m.geometry.ngram = {}; }, "ngram.bin");
  expect([](Manifest& m) { m.files.erase(m.files.begin() + 1); }, "is missing");
}

TEST(PackOpen, NamesAFileThatIsGone) {
  FixtureDir dir;
  const std::string path = dir.File("pack");
  BuildSmallPack(path);
  std::filesystem::remove(path + "/chat_template.jinja");
  EXPECT_THAT(std::string(Pack::Open(path).status().message()), HasSubstr("chat_template.jinja"));
}

}  // namespace
}  // namespace hearth
