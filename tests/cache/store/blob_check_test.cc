// A wrong byte anywhere in a blob is found; padding is not looked at.
#include "cache/store/blob_check.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "runtime/base/status.h"
#include "tests/cache/store/store_fixture.h"

namespace hearth {
namespace {

TEST(BlobCheck, EveryByteOfTheBlobCountsAndNoneBehindIt) {
  const StoreFixture store;
  const ExpertKey key = Key(1, 2);
  std::vector<std::byte> bytes = ExpectedBlob(store.file().layout(key.layer), key);
  const size_t blob_bytes = bytes.size();
  bytes.resize(store.file().layout(key.layer).stride_bytes());
  EXPECT_TRUE(CheckBlob(store.file(), key, bytes).ok());
  bytes.back() = std::byte{1};
  EXPECT_TRUE(CheckBlob(store.file(), key, bytes).ok());
  for (const size_t at : {size_t{0}, blob_bytes / 2, blob_bytes - 1}) {
    bytes[at] ^= std::byte{16};
    EXPECT_EQ(CheckBlob(store.file(), key, bytes).code(), absl::StatusCode::kDataLoss);
    bytes[at] ^= std::byte{16};
  }
  EXPECT_FALSE(CheckBlob(store.file(), Key(1, 3), bytes).ok());
}

TEST(BlobCheck, AnErrorNamesFileExpertAndOffset) {
  const StoreFixture store;
  const absl::Status status = ExpertError(store.file(), Key(2, 7), absl::UnavailableError("gone"));
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ToStd(status.message()), absl::StrCat(store.path(), ": layer 2 expert 7 at ",
                                                  store.file().offset_bytes(Key(2, 7)), ": gone"));
}

}  // namespace
}  // namespace hearth
