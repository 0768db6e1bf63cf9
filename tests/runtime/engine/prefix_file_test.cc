// The header of an image on disk: what is written is what is read, and nothing damaged is believed.
#include "runtime/engine/prefix_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>

#include "runtime/base/prng.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {
namespace {

PrefixFileHeader Example() {
  PrefixFileHeader h{.binding = HashPrefixBinding("a model"),
                     .number = 12,
                     .parent_number = 7,
                     .parent_seal = 99,
                     .draft_count = 105,
                     .salt = "alice",
                     .fixed = {.bytes = 5000, .xxh3 = 1}};
  h.spans.push_back({.range = {.begin = 100, .end = 103, .draft_begin = 99, .draft_end = 102},
                     .tokens = {5, 6, 7},
                     .cuts = {101, 103},
                     .part = {.bytes = 300, .xxh3 = 2}});
  h.spans.push_back({.range = {.begin = 103, .end = 106, .draft_begin = 102, .draft_end = 105},
                     .tokens = {8, 9, -1},
                     .cuts = {106},
                     .part = {.bytes = 4096, .xxh3 = 3}});
  return h;
}

class PrefixFileTest : public testing::Test {
 protected:
  absl::StatusOr<PrefixFileHeader> ReadText(const std::string& text) {
    const std::string path = dir_.File("image");
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    const absl::StatusOr<RandomAccessFile> file = RandomAccessFile::Open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    return ReadPrefixHeader(*file);
  }
  static std::string WholeFile(PrefixFileHeader header) {
    std::string text = EncodePrefixHeader(header);
    text.resize(header.file_bytes, 'x');
    return text;
  }
  FixtureDir dir_;
};

TEST_F(PrefixFileTest, HeaderComesBackAsItWas) {
  PrefixFileHeader want = Example();
  const std::string text = WholeFile(want);
  (void)EncodePrefixHeader(want);  // offsets
  const absl::StatusOr<PrefixFileHeader> got = ReadText(text);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->binding, want.binding);
  EXPECT_EQ(got->number, 12u);
  EXPECT_EQ(got->parent_number, 7u);
  EXPECT_EQ(got->parent_seal, 99u);
  EXPECT_EQ(got->draft_count, 105u);
  EXPECT_EQ(got->salt, "alice");
  EXPECT_EQ(got->seal, want.seal);
  EXPECT_EQ(got->file_bytes, 4096u + 2 * 4096 + 4096 + 4096);
  EXPECT_EQ(got->fixed.offset_bytes, 4096u);
  ASSERT_EQ(got->spans.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(got->spans[i].tokens, want.spans[i].tokens);
    EXPECT_EQ(got->spans[i].cuts, want.spans[i].cuts);
    EXPECT_EQ(got->spans[i].range.begin, want.spans[i].range.begin);
    EXPECT_EQ(got->spans[i].range.end, want.spans[i].range.end);
    EXPECT_EQ(got->spans[i].range.draft_begin, want.spans[i].range.draft_begin);
    EXPECT_EQ(got->spans[i].range.draft_end, want.spans[i].range.draft_end);
    EXPECT_EQ(got->spans[i].part.offset_bytes, want.spans[i].part.offset_bytes);
    EXPECT_EQ(got->spans[i].part.bytes, want.spans[i].part.bytes);
    EXPECT_EQ(got->spans[i].part.xxh3, want.spans[i].part.xxh3);
  }
}

TEST_F(PrefixFileTest, AnyFlippedBitOfTheHeaderIsNoticed) {
  const std::string text = WholeFile(Example());
  for (size_t at = 0; at < 4096; at += at < 240 ? 1 : 211) {
    std::string damaged = text;
    damaged[at] ^= static_cast<char>(1 << (at % 8));
    EXPECT_EQ(ReadText(damaged).status().code(), absl::StatusCode::kDataLoss) << "byte " << at;
  }
}

TEST_F(PrefixFileTest, CutAndForeignFilesAreNoticed) {
  const std::string text = WholeFile(Example());
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, text.size() - 1}) {
    EXPECT_EQ(ReadText(text.substr(0, bytes)).status().code(), absl::StatusCode::kDataLoss)
        << bytes;
  }
  EXPECT_EQ(ReadText(text + "more").status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ReadText(std::string(8192, '\0')).status().code(), absl::StatusCode::kDataLoss);
}

// Headers whose seal is right and whose fields are anything: an answer or an error, nothing else.
TEST_F(PrefixFileTest, SealedNonsenseIsAnErrorOrSound) {
  const std::string text = WholeFile(Example());
  Prng prng(3);
  int sound = 0;
  for (int round = 0; round < 500; ++round) {
    std::string changed = text;
    for (uint64_t n = 1 + prng.Below(4); n > 0; --n) {
      changed[24 + prng.Below(220)] = static_cast<char>(prng.Below(2) == 0 ? prng.Below(256) : 255);
    }
    const auto bytes = std::as_bytes(std::span(changed));
    const uint64_t seal = PrefixPartHash(bytes.first(4096 - 8));
    std::memcpy(changed.data() + 4096 - 8, &seal, sizeof(seal));
    const absl::StatusOr<PrefixFileHeader> got = ReadText(changed);
    if (!got.ok()) {
      EXPECT_EQ(got.status().code(), absl::StatusCode::kDataLoss);
      continue;
    }
    ++sound;
    EXPECT_FALSE(got->spans.empty());
    for (const PrefixFileSpan& span : got->spans) {
      EXPECT_EQ(span.tokens.size(), span.range.end - span.range.begin);
      EXPECT_EQ(span.cuts.back(), span.range.end);
    }
  }
  EXPECT_GT(sound, 20) << "changes of hashes, tokens and the binding";
}

}  // namespace
}  // namespace hearth
