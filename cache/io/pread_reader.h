// A Reader that is a pool of threads, each of which answers one request at a time with pread. Works
// on every kernel and needs one descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/io/direct_file.h"
#include "cache/io/reader.h"
#include "runtime/base/clock.h"

namespace hearth {

// One attempt to read: bytes read, 0 at the end of the file, or -errno. Called from many threads.
using ReadAttempt = std::function<int64_t(uint64_t offset_bytes, std::span<std::byte> into)>;

struct PreadReaderOptions {
  uint32_t in_flight_max = 16;
  uint32_t thread_count = 4;
  uint64_t align_bytes = 4096;
  uint64_t attempt_bytes_max = 0;  // 0: no limit
  std::vector<std::string> notes;  // of whoever chose this reader; it adds its own
  ReadAttempt attempt;             // empty: pread of the file. For tests
  Clock& clock;
};

// The options are as OpenReader checked them.
std::unique_ptr<Reader> MakePreadReader(std::shared_ptr<DirectFile> file,
                                        PreadReaderOptions options);

}  // namespace hearth
