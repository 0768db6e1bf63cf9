// The carriers of errors: codes from errno, context in front of messages, and the two macros.
#include "runtime/base/status.h"

#include <cerrno>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hearth {
namespace {

TEST(ErrnoStatus, CodeFitsTheError) {
  struct Case {
    int error_number;
    absl::StatusCode code;
  };
  const Case cases[] = {{ENOENT, absl::StatusCode::kNotFound},
                        {ENOTDIR, absl::StatusCode::kNotFound},
                        {EACCES, absl::StatusCode::kPermissionDenied},
                        {EROFS, absl::StatusCode::kPermissionDenied},
                        {EEXIST, absl::StatusCode::kAlreadyExists},
                        {EINVAL, absl::StatusCode::kInvalidArgument},
                        {EISDIR, absl::StatusCode::kInvalidArgument},
                        {ENOMEM, absl::StatusCode::kResourceExhausted},
                        {ENOSPC, absl::StatusCode::kResourceExhausted},
                        {EMFILE, absl::StatusCode::kResourceExhausted},
                        {EAGAIN, absl::StatusCode::kUnavailable},
                        {EIO, absl::StatusCode::kInternal}};
  for (const Case& c : cases) {
    EXPECT_EQ(ErrnoStatus(c.error_number, "x").code(), c.code) << c.error_number;
  }
  EXPECT_EQ(ErrnoStatus(ENOENT, "/a/b").message(), "/a/b: No such file or directory");
}

TEST(Annotate, AddsContextAndKeepsTheCode) {
  const absl::Status status = Annotate(absl::DataLossError("bad"), "file.bin");
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status.message(), "file.bin: bad");
  EXPECT_TRUE(Annotate(absl::OkStatus(), "file.bin").ok());
}

absl::Status FirstError(const absl::Status& a, const absl::Status& b, int* reached) {
  HEARTH_RETURN_IF_ERROR(a);
  ++*reached;
  HEARTH_RETURN_IF_ERROR(b);
  ++*reached;
  return absl::OkStatus();
}

TEST(ReturnIfError, StopsAtTheFirstError) {
  int reached = 0;
  EXPECT_TRUE(FirstError(absl::OkStatus(), absl::OkStatus(), &reached).ok());
  EXPECT_EQ(reached, 2);
  reached = 0;
  EXPECT_EQ(FirstError(absl::OkStatus(), absl::AbortedError("b"), &reached).message(), "b");
  EXPECT_EQ(reached, 1);
}

using Owned = std::unique_ptr<int>;
absl::StatusOr<Owned> Make(int value) {
  if (value < 0) return absl::OutOfRangeError("negative");
  return std::make_unique<int>(value);
}
absl::StatusOr<int> Sum(int a, int b) {
  HEARTH_ASSIGN_OR_RETURN(const Owned first, Make(a));
  Owned second;
  HEARTH_ASSIGN_OR_RETURN(second, Make(b));
  return *first + *second;
}

TEST(AssignOrReturn, MovesTheValueOutOrReturnsTheError) {
  EXPECT_EQ(Sum(2, 3).value(), 5);
  EXPECT_EQ(Sum(-1, 3).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Sum(2, -1).status().message(), "negative");
}

TEST(StringViews, ConvertBothWays) {
  const std::string_view text = "abc";
  EXPECT_EQ(ToStd(ToAbsl(text)), text);
}

}  // namespace
}  // namespace hearth
