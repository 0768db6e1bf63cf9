// Headers and directories of the .bin files: what is encoded is decoded, whatever breaks a rule is
// refused with the right checksums in place, and no damaged byte passes.
#include "pack/format/directory.h"

#include <array>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "runtime/base/crc32c.h"
#include "runtime/base/prng.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

static_assert(std::is_trivially_copyable_v<FileHeader>);
static_assert(std::is_trivially_copyable_v<TensorEntry>);
static_assert(std::is_trivially_copyable_v<ExpertLayerEntry>);
static_assert(std::is_trivially_copyable_v<NgramDirectoryHeader>);

using HeaderBytes = std::array<std::byte, sizeof(FileHeader)>;

HeaderBytes BytesOf(const FileHeader& header) {
  HeaderBytes bytes;
  std::memcpy(bytes.data(), &header, sizeof(header));
  return bytes;
}

std::vector<TensorInfo> ExampleTensors() {
  return {{.name = "embed_tokens", .format = MatrixFormat::kBf16, .rows = 5, .cols = 7},
          {.name = "layers.0.norm", .format = MatrixFormat::kF32, .rows = 1, .cols = 3},
          {.name = "lm_head", .format = MatrixFormat::kQ8, .rows = 17, .cols = 64, .crc32c = 9}};
}

// Puts a number of any width into a directory and makes its checksum right again.
template <class T>
void Patch(std::vector<std::byte>& directory, size_t offset, T value) {
  ASSERT_LE(offset + sizeof(T), directory.size() - 4);
  std::memcpy(directory.data() + offset, &value, sizeof(T));
  const uint32_t crc = Crc32c(std::span(directory).first(directory.size() - 4));
  std::memcpy(directory.data() + directory.size() - 4, &crc, 4);
}

TEST(FileHeader, AcceptsItsOwnFileAndNamesWrongSizes) {
  auto tensors = ExampleTensors();
  const FileHeader header = PlaceTensors(tensors);
  EXPECT_TRUE(DecodeHeader(BytesOf(header), ContainerKind::kTensors, header.file_bytes, "f").ok());
  const auto cut = DecodeHeader(BytesOf(header), ContainerKind::kTensors, 100, "f");
  EXPECT_THAT(std::string(cut.status().message()),
              HasSubstr(absl::StrCat("expected ", header.file_bytes, " bytes, found 100")));
  EXPECT_FALSE(DecodeHeader(BytesOf(header), ContainerKind::kExperts, header.file_bytes, "f").ok());
}

TEST(FileHeader, RefusesEveryFlippedBit) {
  auto tensors = ExampleTensors();
  const FileHeader header = PlaceTensors(tensors);
  for (size_t bit = 0; bit < sizeof(FileHeader) * 8; ++bit) {
    HeaderBytes bytes = BytesOf(header);
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(DecodeHeader(bytes, ContainerKind::kTensors, header.file_bytes, "f").ok()) << bit;
  }
}

TEST(FileHeader, NamesTheVersionItCannotRead) {
  auto tensors = ExampleTensors();
  FileHeader header = PlaceTensors(tensors);
  header.version = 9;
  const auto status =
      DecodeHeader(BytesOf(SealHeader(header)), ContainerKind::kTensors, header.file_bytes, "f")
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("version 9, this build reads 1"));
}

TEST(FileHeader, RefusesExtentsThatDoNotFitWithARightChecksum) {
  auto tensors = ExampleTensors();
  const FileHeader good = PlaceTensors(tensors);
  const auto refuses = [&good](auto&& change) {
    FileHeader header = good;
    change(header);
    return !DecodeHeader(BytesOf(SealHeader(header)), ContainerKind::kTensors, good.file_bytes, "f")
                .ok();
  };
  EXPECT_TRUE(refuses([](FileHeader& h) { h.data_offset_bytes = 63; }));
  EXPECT_TRUE(refuses([](FileHeader& h) { h.data_offset_bytes = h.directory_offset_bytes + 1; }));
  EXPECT_TRUE(refuses([](FileHeader& h) { h.directory_offset_bytes += 64; }));
  EXPECT_TRUE(refuses([](FileHeader& h) { h.directory_offset_bytes = UINT64_MAX - 63; }));
  EXPECT_TRUE(refuses([](FileHeader& h) { h.directory_bytes += 1; }));
  EXPECT_TRUE(refuses([](FileHeader& h) { h.directory_bytes = UINT64_MAX; }));
  EXPECT_TRUE(refuses([](FileHeader& h) { h.reserved0 = 1; }));
  EXPECT_TRUE(refuses([](FileHeader& h) { h.reserved1 = 1; }));
}

TEST(TensorDirectory, RoundTripsWithAlignedExtents) {
  auto tensors = ExampleTensors();
  const FileHeader header = PlaceTensors(tensors);
  const auto bytes = EncodeTensorDirectory(tensors);
  EXPECT_EQ(bytes.size(), header.directory_bytes);
  const auto decoded = DecodeTensorDirectory(bytes, header, "f");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  ASSERT_EQ(decoded->size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& t = (*decoded)[i];
    EXPECT_EQ(t.name, tensors[i].name);
    EXPECT_EQ(t.format, tensors[i].format);
    EXPECT_EQ(t.rows, tensors[i].rows);
    EXPECT_EQ(t.cols, tensors[i].cols);
    EXPECT_EQ(t.crc32c, tensors[i].crc32c);
    EXPECT_EQ(t.bytes, MatrixBytes(t.format, t.rows, t.cols));
    EXPECT_EQ(t.offset_bytes % 64, 0u);
  }
  EXPECT_EQ((*decoded)[2].bytes, 2u * Q8BandBytes(64)) << "17 rows take two bands";
}

TEST(TensorDirectory, RefusesEveryFlippedBitAndEveryBrokenRule) {
  auto tensors = ExampleTensors();
  const FileHeader header = PlaceTensors(tensors);
  const auto good = EncodeTensorDirectory(tensors);
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bytes = good;
    bytes[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    EXPECT_FALSE(DecodeTensorDirectory(bytes, header, "f").ok()) << bit;
  }
  const size_t entry = sizeof(TensorDirectoryHeader) + sizeof(TensorEntry);  // the second
  const auto message = [&](size_t offset, auto value) {
    auto bytes = good;
    Patch(bytes, offset, value);
    return std::string(DecodeTensorDirectory(bytes, header, "f").status().message());
  };
  EXPECT_THAT(message(0, 4u), HasSubstr("counts"));
  EXPECT_THAT(message(0, 0xFFFFFFFFu), HasSubstr("counts"));
  EXPECT_THAT(message(entry + offsetof(TensorEntry, offset_bytes), uint64_t{64}),
              HasSubstr("layers.0.norm"));
  EXPECT_THAT(message(entry + offsetof(TensorEntry, bytes), uint64_t{13}),
              HasSubstr("expected 12"));
  EXPECT_THAT(message(entry + offsetof(TensorEntry, format), 77u), HasSubstr("unknown format 77"));
  EXPECT_THAT(message(entry + offsetof(TensorEntry, rows), 0xFFFFFFFFu), HasSubstr("shape"));
  EXPECT_THAT(message(entry + offsetof(TensorEntry, cols), 0u), HasSubstr("shape"));
  EXPECT_THAT(message(entry + offsetof(TensorEntry, name_bytes), 0xFFFFFFFFu), HasSubstr("name"));
  EXPECT_THAT(message(good.size() - 5, '/'), HasSubstr("name"));
}

TEST(TensorDirectory, RandomBytesWithARightChecksumNeverPassAsSomethingImpossible) {
  auto tensors = ExampleTensors();
  const FileHeader header = PlaceTensors(tensors);
  const auto good = EncodeTensorDirectory(tensors);
  Prng prng(3);
  for (int i = 0; i < 20000; ++i) {
    auto bytes = good;
    for (uint64_t n = 1 + prng.Below(4); n > 0; --n) {
      bytes[prng.Below(bytes.size())] = static_cast<std::byte>(prng.Next());
    }
    Patch(bytes, 0, static_cast<uint8_t>(bytes[0]));
    const auto decoded = DecodeTensorDirectory(bytes, header, "f");
    if (!decoded.ok()) continue;
    for (const TensorInfo& t : *decoded) {
      ASSERT_LE(t.offset_bytes + t.bytes, header.directory_offset_bytes);
      ASSERT_EQ(t.bytes, MatrixBytes(t.format, t.rows, t.cols));
    }
  }
}

TEST(ExpertDirectory, RoundTripsWithBlobsOnPages) {
  ExpertDirectory directory{.expert_count = 3};
  directory.layouts = {*ExpertLayout::Create(ExpertFormat::kNvfp4, 64, 32),
                       *ExpertLayout::Create(ExpertFormat::kFp8, 64, 32),
                       *ExpertLayout::Create(ExpertFormat::kXt, 64, 32, XtBits{3, 4, 2})};
  const FileHeader header = PlaceExperts(directory);
  directory.crcs = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto bytes = EncodeExpertDirectory(directory);
  EXPECT_EQ(bytes.size(), header.directory_bytes);
  const auto decoded = DecodeExpertDirectory(bytes, header, "f");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->layouts, directory.layouts);
  EXPECT_EQ(decoded->layer_offsets_bytes, directory.layer_offsets_bytes);
  EXPECT_EQ(decoded->crcs, directory.crcs);
  for (const uint64_t offset : decoded->layer_offsets_bytes) EXPECT_EQ(offset % 4096, 0u);

  const size_t entry = sizeof(ExpertDirectoryHeader);
  const auto refuses = [&](size_t offset, auto value) {
    auto changed = bytes;
    Patch(changed, offset, value);
    return !DecodeExpertDirectory(changed, header, "f").ok();
  };
  EXPECT_TRUE(refuses(0, 4u));
  EXPECT_TRUE(refuses(4, 0xFFFFu));
  EXPECT_TRUE(refuses(entry + offsetof(ExpertLayerEntry, offset_bytes), uint64_t{8192}));
  EXPECT_TRUE(refuses(entry + offsetof(ExpertLayerEntry, blob_bytes), uint64_t{1}));
  EXPECT_TRUE(refuses(entry + offsetof(ExpertLayerEntry, format), 6u));
  EXPECT_TRUE(refuses(entry + offsetof(ExpertLayerEntry, hidden), 0xFFFFFFF0u));
  EXPECT_TRUE(refuses(entry + offsetof(ExpertLayerEntry, width), 31u))
      << "NVFP4 takes blocks of 16";
  EXPECT_TRUE(refuses(entry + offsetof(ExpertLayerEntry, xt_bits), 3u)) << "not an XT layer";
  const size_t xt_bits = entry + 2 * sizeof(ExpertLayerEntry) + offsetof(ExpertLayerEntry, xt_bits);
  EXPECT_FALSE(refuses(xt_bits, 0x020403u));  // what it is
  for (const uint32_t wrong : {0u, 0x020401u, 0x020503u, 0x030403u, 0x01020403u}) {
    EXPECT_TRUE(refuses(xt_bits, wrong)) << wrong;
  }
}

TEST(ExpertDirectory, HoldsTheFullModelInLittleSpace) {
  ExpertDirectory directory{.expert_count = 512};
  directory.layouts.assign(48, *ExpertLayout::Create(ExpertFormat::kNvfp4, 2560, 640));
  const FileHeader header = PlaceExperts(directory);
  EXPECT_EQ(directory.layouts[0].blob_bytes(), 2764816u);
  EXPECT_LT(header.directory_bytes, 128u << 10);
  EXPECT_EQ(header.file_bytes,
            4096 + 24576 * directory.layouts[0].stride_bytes() + header.directory_bytes);
}

TEST(NgramDirectory, RoundTripsAndRefusesBrokenRules) {
  NgramDirectory table{
      .format = NgramRowFormat::kNvfp4, .row_count = 9000, .row_dim = 32, .scale = 0.5f};
  const FileHeader header = PlaceNgram(table);
  table.crcs = {7, 8, 9};
  const auto bytes = EncodeNgramDirectory(table);
  EXPECT_EQ(bytes.size(), header.directory_bytes);
  const auto decoded = DecodeNgramDirectory(bytes, header, "f");
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->row_count, 9000u);
  EXPECT_EQ(decoded->scale, 0.5f);
  EXPECT_EQ(decoded->crcs, table.crcs);
  const auto refuses = [&](size_t offset, auto value) {
    auto changed = bytes;
    Patch(changed, offset, value);
    return !DecodeNgramDirectory(changed, header, "f").ok();
  };
  EXPECT_TRUE(refuses(offsetof(NgramDirectoryHeader, row_count), uint64_t{9010}));
  EXPECT_TRUE(refuses(offsetof(NgramDirectoryHeader, row_count), UINT64_MAX));
  EXPECT_TRUE(refuses(offsetof(NgramDirectoryHeader, row_dim), 33u));
  EXPECT_TRUE(refuses(offsetof(NgramDirectoryHeader, row_bytes), 17u));
  EXPECT_TRUE(refuses(offsetof(NgramDirectoryHeader, format), 0u));
  EXPECT_TRUE(refuses(offsetof(NgramDirectoryHeader, scale_bits), 0x7F800000u)) << "infinity";
  EXPECT_TRUE(refuses(offsetof(NgramDirectoryHeader, rows_per_chunk), 1u));
  EXPECT_TRUE(refuses(offsetof(NgramDirectoryHeader, chunk_count), 2u));
}

}  // namespace
}  // namespace hearth
