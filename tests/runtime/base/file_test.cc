// Files: complete reads or an error that says what is missing, and output that is all there.
#include "runtime/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/prng.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

using ::testing::HasSubstr;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    dir_ = JoinPath(::testing::TempDir(),
                    std::string("hearth_file_") + info->name() + std::to_string(::getpid()));
    std::filesystem::create_directory(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  std::string Path(std::string_view name) const { return JoinPath(dir_, name); }
  std::string Write(std::string_view name, std::string_view text) const {
    absl::StatusOr<SequentialFile> file = SequentialFile::Create(Path(name));
    EXPECT_TRUE(file.ok()) << file.status();
    EXPECT_TRUE(file->Append(std::as_bytes(std::span(text))).ok());
    EXPECT_TRUE(file->Finish().ok());
    return Path(name);
  }

  std::string dir_;
};

std::string ReadPart(const RandomAccessFile& file, uint64_t offset_bytes, size_t count) {
  std::string text(count, '?');
  const absl::Status status = file.ReadAt(offset_bytes, std::as_writable_bytes(std::span(text)));
  return status.ok() ? text : std::string(status.message());
}

TEST_F(FileTest, ReadsAnyPart) {
  const auto file = RandomAccessFile::Open(Write("a", "0123456789"));
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->bytes(), 10u);
  EXPECT_EQ(ReadPart(*file, 0, 10), "0123456789");
  EXPECT_EQ(ReadPart(*file, 7, 3), "789");
  EXPECT_EQ(ReadPart(*file, 10, 0), "");
  EXPECT_EQ(ReadPart(*file, 99, 0), "");
}

TEST_F(FileTest, ShortReadNamesPathOffsetWantedAndGot) {
  const std::string path = Write("a", "0123456789");
  const auto file = RandomAccessFile::Open(path);
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> into(5);
  const absl::Status status = file->ReadAt(8, into);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), path + ": read at 8: wanted 5 bytes, got 2 (the file ends there)");
  EXPECT_EQ(file->ReadAt(1000, into).code(), absl::StatusCode::kOutOfRange);
  EXPECT_FALSE(file->ReadAt(UINT64_MAX, into).ok());
  EXPECT_FALSE(file->ReadAt(uint64_t{1} << 63, into).ok());
}

TEST_F(FileTest, FileThatShrinksAfterOpeningIsAnError) {
  const std::string path = Write("a", std::string(10000, 'x'));
  const auto file = RandomAccessFile::Open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(::truncate(path.c_str(), 100), 0);
  EXPECT_EQ(file->bytes(), 10000u);
  std::vector<std::byte> into(10000);
  EXPECT_EQ(file->ReadAt(0, into).code(), absl::StatusCode::kOutOfRange);
}

TEST_F(FileTest, ManyThreadsReadAtOnce) {
  std::string text(100000, '\0');
  Prng prng(1);
  for (char& c : text) c = static_cast<char>(prng.Next());
  const auto file = RandomAccessFile::Open(Write("a", text));
  ASSERT_TRUE(file.ok());
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      Prng own(t);
      for (int i = 0; i < 200; ++i) {
        const uint64_t at = own.Below(text.size());
        const size_t count = own.Below(text.size() - at + 1);
        if (ReadPart(*file, at, count) != text.substr(at, count)) ++wrong[t];
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_THAT(wrong, ::testing::Each(0));
}

TEST_F(FileTest, WhatIsNoRegularFileIsRefused) {
  EXPECT_EQ(RandomAccessFile::Open(Path("missing")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(RandomAccessFile::Open(Path("missing")).status().message()),
              HasSubstr(Path("missing")));
  EXPECT_EQ(RandomAccessFile::Open(dir_).status().message(), dir_ + ": not a regular file");
  ASSERT_EQ(::mkfifo(Path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(RandomAccessFile::Open(Path("pipe")).status().code(),  // and at once, without a writer
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(RandomAccessFile::Open("").status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(RandomAccessFile::Open(JoinPath(Write("file", "x"), "below")).ok());
  EXPECT_FALSE(RandomAccessFile::Open(std::string(10000, 'x')).ok());
}

TEST_F(FileTest, ReadFileIsWholeAndBounded) {
  const std::string path = Write("a", "abc");
  EXPECT_EQ(ReadFile(path, 3).value(), "abc");
  EXPECT_EQ(ReadFile(Write("empty", ""), 0).value(), "");
  const absl::Status status = ReadFile(path, 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), path + ": 3 bytes, at most 2 expected");
  EXPECT_EQ(ReadFile(Path("missing"), 9).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ReadFile(dir_, 1_MiB).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FileTest, FileBytesAndExistence) {
  const std::string path = Write("a", "abcd");
  EXPECT_EQ(FileBytes(path).value(), 4u);
  EXPECT_EQ(FileBytes(Path("missing")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(FileExists(path));
  EXPECT_FALSE(FileExists(Path("missing")));
}

TEST_F(FileTest, SequentialFileHoldsEveryByteInOrder) {
  Prng prng(7);
  const std::string path = Path("out");
  absl::StatusOr<SequentialFile> file = SequentialFile::Create(path);
  ASSERT_TRUE(file.ok());
  std::string want;
  // Pieces around the 1 MiB buffer, small ones between them.
  for (const uint64_t count : {uint64_t{0}, uint64_t{5}, 1_MiB - 6, uint64_t{1}, uint64_t{1}, 1_MiB,
                               1_MiB + 1, uint64_t{3}, 3_MiB, uint64_t{17}}) {
    std::string piece(count, static_cast<char>(prng.Next()));
    if (!piece.empty()) piece.back() = static_cast<char>(prng.Next());
    ASSERT_TRUE(file->Append(std::as_bytes(std::span(piece))).ok());
    ASSERT_TRUE(file->AppendZeros(count % 7000).ok());
    want += piece + std::string(count % 7000, '\0');
    ASSERT_EQ(file->bytes(), want.size());
  }
  ASSERT_TRUE(file->Finish().ok());
  EXPECT_TRUE(ReadFile(path, 64_MiB).value() == want);
}

TEST_F(FileTest, HolesReadAsZerosAndTakeNoRoom) {
  const std::string path = Path("holes");
  absl::StatusOr<SequentialFile> file = SequentialFile::Create(path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Append(std::as_bytes(std::span("ab", 2))).ok());
  ASSERT_TRUE(file->AppendHole(64_MiB).ok());
  ASSERT_TRUE(file->Append(std::as_bytes(std::span("c", 1))).ok());
  ASSERT_TRUE(file->Finish().ok());
  EXPECT_EQ(file->bytes(), 64_MiB + 3);
  const std::string read = ReadFile(path, 65_MiB).value();
  ASSERT_EQ(read.size(), 64_MiB + 3);
  EXPECT_EQ(read.front(), 'a');
  EXPECT_EQ(read.back(), 'c');
  EXPECT_EQ(read.find_first_not_of('\0', 2), read.size() - 1);
  struct stat info = {};
  ASSERT_EQ(::stat(path.c_str(), &info), 0);
  EXPECT_LT(static_cast<uint64_t>(info.st_blocks) * 512, 1_MiB);
}

TEST_F(FileTest, SequentialFileReplacesWhatWasThere) {
  Write("a", "a long text");
  EXPECT_EQ(ReadFile(Write("a", "short"), 100).value(), "short");
}

TEST_F(FileTest, SequentialFileRefusesBadPlaces) {
  EXPECT_EQ(SequentialFile::Create(Path("no/such/dir")).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(SequentialFile::Create(dir_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(FileTest, SequentialFileIsOverAfterFinish) {
  absl::StatusOr<SequentialFile> file = SequentialFile::Create(Path("a"));
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(file->Finish().ok());
  EXPECT_EQ(file->Finish().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(file->AppendZeros(1).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(FileTest, FullDeviceIsResourceExhausted) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  absl::StatusOr<SequentialFile> file = SequentialFile::Create("/dev/full");
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(file->AppendZeros(10).ok());  // still in the buffer
  const absl::Status status = file->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("/dev/full"));
}

TEST_F(FileTest, FailedAppendIsNotForgottenByFinish) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  absl::StatusOr<SequentialFile> file = SequentialFile::Create("/dev/full");
  ASSERT_TRUE(file.ok());
  EXPECT_EQ(file->AppendZeros(3_MiB).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(file->Finish().code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(FileTest, FsyncDirectoryWantsADirectory) {
  EXPECT_TRUE(FsyncDirectory(dir_).ok());
  EXPECT_EQ(FsyncDirectory(Path("missing")).code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(FsyncDirectory(Write("a", "x")).ok());
}

TEST(JoinPath, PutsOneSlash) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("/", "b"), "/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
}

TEST(AnonymousMapping, IsZeroedAlignedAndMovable) {
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{4097}, 2_MiB + 5}) {
    absl::StatusOr<AnonymousMapping> mapping = AnonymousMapping::Create(bytes);
    ASSERT_TRUE(mapping.ok());
    const std::span<std::byte> data = mapping->data();
    ASSERT_EQ(data.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data.data()) % 4096, 0u);
    EXPECT_TRUE(
        std::all_of(data.begin(), data.end(), [](std::byte b) { return b == std::byte{0}; }));
    data.back() = std::byte{7};
    AnonymousMapping moved(*std::move(mapping));
    EXPECT_EQ(moved.data().data(), data.data());
    EXPECT_EQ(moved.data().back(), std::byte{7});
    absl::StatusOr<AnonymousMapping> other = AnonymousMapping::Create(4096);
    ASSERT_TRUE(other.ok());
    *other = std::move(moved);
    EXPECT_EQ(other->data().data(), data.data());
  }
}

TEST_F(FileTest, MappingsOfOneFileShareItsBytes) {
  const std::string path = JoinPath(dir_, "shared");
  const UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_TRUE(fd.valid());
  ASSERT_EQ(::ftruncate(fd.get(), 8192), 0);
  absl::StatusOr<FileMapping> writer = FileMapping::Map(fd.get(), 8192, MapAccess::kReadWrite);
  ASSERT_TRUE(writer.ok()) << writer.status();
  FileMapping reader;
  {
    absl::StatusOr<FileMapping> mapped = FileMapping::Map(fd.get(), 8192, MapAccess::kRead);
    ASSERT_TRUE(mapped.ok()) << mapped.status();
    reader = *std::move(mapped);
  }
  writer->data()[5000] = std::byte{42};
  EXPECT_EQ(reader.data()[5000], std::byte{42});
  EXPECT_TRUE(FileMapping::Map(fd.get(), 0, MapAccess::kRead)->data().empty());
  const UniqueFd only_read(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(FileMapping::Map(only_read.get(), 8192, MapAccess::kReadWrite).status().code(),
            absl::StatusCode::kPermissionDenied);
}

TEST(AnonymousMapping, EmptyAndImpossibleOnesAreDefined) {
  EXPECT_TRUE(AnonymousMapping::Create(0)->data().empty());
  const absl::Status status = AnonymousMapping::Create(uint64_t{1} << 60).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("TiB"));
}

}  // namespace
}  // namespace hearth
