// What the tests of readers share: a file of known bytes, aligned memory, and a run of requests
// through a reader whose every byte is compared.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

#include "cache/io/reader.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/prng.h"

namespace hearth {

inline constexpr int64_t kPatienceNs = 60'000'000'000;  // more than any read here takes
inline constexpr uint64_t kBlockBytes = 4096;

inline std::vector<std::byte> RandomBytes(uint64_t seed, uint64_t count_bytes) {
  std::vector<std::byte> bytes((count_bytes + 7) / 8 * 8);
  Prng prng(seed);
  for (size_t i = 0; i < bytes.size(); i += 8) {
    const uint64_t value = prng.Next();
    std::memcpy(bytes.data() + i, &value, 8);
  }
  bytes.resize(count_bytes);
  return bytes;
}

// A file of random bytes that is gone when the test is.
class RandomFile {
 public:
  RandomFile(const std::string& name, uint64_t count_bytes)
      : path_(absl::StrCat(testing::TempDir(), "hearth_io_", ::getpid(), "_", name)),
        bytes_(RandomBytes(count_bytes, count_bytes)) {
    auto file = SequentialFile::Create(path_);
    HEARTH_CHECK(file.ok() && file->Append(bytes_).ok() && file->Finish().ok());
  }
  ~RandomFile() { std::remove(path_.c_str()); }
  RandomFile(const RandomFile&) = delete;
  RandomFile& operator=(const RandomFile&) = delete;
  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::string path_;
  std::vector<std::byte> bytes_;
};

// The end of an aligned request for everything up to the end of the file.
inline uint64_t RoundUpToBlock(uint64_t value) {
  return (value + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

// The part of the file that `request` names, up to the file's end.
inline std::span<const std::byte> Wanted(std::span<const std::byte> file,
                                         const ReadRequest& request) {
  const uint64_t begin = std::min<uint64_t>(request.offset_bytes, file.size());
  return file.subspan(begin, std::min<uint64_t>(request.into.size(), file.size() - begin));
}

// Requests of 1 to 9 blocks at random blocks of the file, each into its own part of `memory`.
inline std::vector<ReadRequest> RandomRequests(Prng& prng, uint64_t file_bytes,
                                               std::span<std::byte> memory, size_t count) {
  std::vector<ReadRequest> requests;
  const uint64_t block_count = (file_bytes + kBlockBytes - 1) / kBlockBytes;
  uint64_t used_bytes = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t first = prng.Below(block_count);
    const uint64_t blocks = std::min(1 + prng.Below(9), block_count - first);
    const uint64_t length_bytes = blocks * kBlockBytes;
    HEARTH_CHECK(used_bytes + length_bytes <= memory.size());
    requests.push_back({.offset_bytes = first * kBlockBytes,
                        .into = memory.subspan(used_bytes, length_bytes),
                        .tag = i});
    used_bytes += length_bytes;
  }
  return requests;
}

struct RunResult {
  std::vector<absl::Status> statuses;  // by tag
  std::vector<uint64_t> order;         // tags as they completed
};

// Sends all requests through, as many at once as there is room for. Tags are 0, 1, 2...
inline RunResult RunAll(Reader& reader, std::span<const ReadRequest> requests) {
  RunResult result;
  result.statuses.assign(requests.size(), absl::UnknownError("never completed"));
  std::vector<bool> is_done(requests.size());
  std::vector<ReadCompletion> done(3);
  size_t sent = 0;
  while (result.order.size() < requests.size()) {
    const auto taken = reader.Submit(requests.subspan(sent));
    if (!taken.ok()) {
      ADD_FAILURE() << taken.status();
      return result;
    }
    sent += *taken;
    EXPECT_LE(reader.in_flight(), reader.traits().in_flight_max);
    EXPECT_EQ(reader.in_flight(), sent - result.order.size());
    const auto n = reader.Wait(done, kPatienceNs);
    if (!n.ok() || *n == 0) {
      ADD_FAILURE() << (n.ok() ? absl::DeadlineExceededError("nothing completed") : n.status());
      return result;
    }
    for (size_t i = 0; i < *n; ++i) {
      EXPECT_FALSE(is_done[done[i].tag]) << "tag " << done[i].tag << " completed twice";
      is_done[done[i].tag] = true;
      result.statuses[done[i].tag] = done[i].status;
      result.order.push_back(done[i].tag);
    }
  }
  EXPECT_EQ(reader.in_flight(), 0u);
  return result;
}

// Every request is ok and holds the file's bytes.
inline void ExpectAllRead(Reader& reader, std::span<const std::byte> file,
                          std::span<const ReadRequest> requests) {
  const RunResult result = RunAll(reader, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(result.statuses[i].ok()) << result.statuses[i];
    const auto want = Wanted(file, requests[i]);
    ASSERT_TRUE(std::equal(want.begin(), want.end(), requests[i].into.begin()))
        << "request " << i << " at " << requests[i].offset_bytes;
  }
}

}  // namespace hearth
