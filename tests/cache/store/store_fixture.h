// What the tests of the RAM tiers share: a small experts.bin of two quantisation classes whose
// bytes depend on (layer, expert) alone, and a clock that a test moves while other threads read it.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "pack/reader/pack.h"
#include "pack/writer/container_writers.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/prng.h"
#include "tests/support/safetensors_fixture.h"

namespace hearth {

class TestClock final : public Clock {
 public:
  int64_t NowNs() override { return now_ns_.load(); }
  void Advance(int64_t ns) { now_ns_ += ns; }

 private:
  std::atomic<int64_t> now_ns_{0};
};

struct StoreShape {
  uint32_t trunk_layers = 3;
  uint32_t expert_count = 16;
  uint32_t hidden = 512;  // blobs of 140 KiB: read by two requests
  uint32_t width = 160;
  bool has_mtp = true;  // one more layer, in BF16
};

inline std::vector<std::byte> ExpectedBlob(const ExpertLayout& layout, ExpertKey key) {
  std::vector<std::byte> blob(layout.blob_bytes());
  Prng prng(key.layer.value * 1000 + key.expert.value + 1);
  for (size_t i = 0; i + 8 <= blob.size(); i += 8) {
    const uint64_t word = prng.Next();
    std::memcpy(&blob[i], &word, 8);
  }
  return blob;
}

class StoreFixture {
 public:
  explicit StoreFixture(const StoreShape& shape = {}) {
    std::vector<ExpertLayout> layouts(
        shape.trunk_layers, *ExpertLayout::Create(ExpertFormat::kNvfp4, shape.hidden, shape.width));
    if (shape.has_mtp) {
      layouts.push_back(*ExpertLayout::Create(ExpertFormat::kBf16, shape.hidden / 4, shape.width));
    }
    auto writer = ExpertFileWriter::Create(dir_.path(), "experts.bin", layouts, shape.expert_count);
    HEARTH_CHECK(writer.ok());
    for (uint32_t l = 0; l < layouts.size(); ++l) {
      for (uint32_t e = 0; e < shape.expert_count; ++e) {
        const auto blob = ExpectedBlob(layouts[l], {LayerId(l), ExpertId(e)});
        HEARTH_CHECK(writer->Append(blob, Crc32c(blob)).ok());
      }
    }
    HEARTH_CHECK(writer->Finish().ok());
    Reopen();
  }

  const ExpertFile& file() const { return *file_; }
  const std::string& path() const { return path_; }
  std::string bytes() const { return ReadFixtureFile(path_); }
  // Flips a bit of an expert's blob in the file.
  void Damage(ExpertKey key) {
    std::string content = bytes();
    content[file_->offset_bytes(key) + 77] ^= 2;
    WriteFixtureFile(path_, content);
    Reopen();
  }

  std::vector<ExpertKey> keys() const {
    std::vector<ExpertKey> keys;
    for (uint32_t l = 0; l < file_->layer_count(); ++l) {
      for (uint32_t e = 0; e < file_->expert_count(); ++e)
        keys.push_back({LayerId(l), ExpertId(e)});
    }
    return keys;
  }
  bool Equal(ExpertKey key, std::span<const std::byte> bytes) const {
    const std::vector<std::byte> expected = ExpectedBlob(file_->layout(key.layer), key);
    return bytes.size() >= expected.size() &&
           std::memcmp(bytes.data(), expected.data(), expected.size()) == 0;
  }

 private:
  void Reopen() {
    auto opened = ExpertFile::Open(path_);
    HEARTH_CHECK(opened.ok());
    file_ = std::make_unique<ExpertFile>(*std::move(opened));
  }
  FixtureDir dir_;
  std::string path_ = dir_.File("experts.bin");
  std::unique_ptr<ExpertFile> file_;
};

inline ExpertKey Key(uint32_t layer, uint32_t expert) { return {LayerId(layer), ExpertId(expert)}; }

}  // namespace hearth
