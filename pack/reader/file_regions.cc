#include "pack/reader/file_regions.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"

#include "pack/format/content_hash.h"
#include "pack/format/directory.h"
#include "pack/reader/container_reader.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr uint64_t kChunkBytes = 16_MiB;  // one of two in memory
constexpr uint64_t kPieceBytes = 1_MiB;   // of one read
constexpr uint64_t kNowhere = UINT64_MAX;

// Fills in the padding between regions as they are added.
class RegionList {
 public:
  void Add(uint64_t begin_bytes, uint64_t bytes, RegionCheck check, uint32_t crc, uint64_t id) {
    PadTo(begin_bytes);
    if (bytes == 0) return;
    regions_.push_back({.begin_bytes = begin_bytes,
                        .end_bytes = begin_bytes + bytes,
                        .check = check,
                        .crc32c = crc,
                        .id = id});
    end_bytes_ = begin_bytes + bytes;
  }
  void PadTo(uint64_t offset_bytes) {
    if (offset_bytes <= end_bytes_) return;
    regions_.push_back(
        {.begin_bytes = end_bytes_, .end_bytes = offset_bytes, .check = RegionCheck::kZero});
    end_bytes_ = offset_bytes;
  }
  std::vector<FileRegion> Take() { return std::move(regions_); }

 private:
  std::vector<FileRegion> regions_;
  uint64_t end_bytes_ = 0;
};

absl::StatusOr<RegionNamer> AddTensors(const OpenedContainer& opened, RegionList& list) {
  HEARTH_ASSIGN_OR_RETURN(
      auto tensors, DecodeTensorDirectory(opened.directory, opened.header, opened.file.path()));
  for (uint64_t i = 0; i < tensors.size(); ++i) {
    list.Add(tensors[i].offset_bytes, tensors[i].bytes, RegionCheck::kCrc, tensors[i].crc32c, i);
  }
  return RegionNamer(
      [held = std::make_shared<std::vector<TensorInfo>>(std::move(tensors))](const FileRegion& r) {
        return absl::StrCat("tensor ", (*held)[r.id].name);
      });
}

absl::StatusOr<RegionNamer> AddExperts(const OpenedContainer& opened, RegionList& list) {
  HEARTH_ASSIGN_OR_RETURN(
      const ExpertDirectory directory,
      DecodeExpertDirectory(opened.directory, opened.header, opened.file.path()));
  const uint32_t experts = directory.expert_count;
  for (uint64_t i = 0; i < directory.crcs.size(); ++i) {
    const ExpertLayout& layout = directory.layouts[i / experts];
    list.Add(directory.layer_offsets_bytes[i / experts] + i % experts * layout.stride_bytes(),
             layout.blob_bytes(), RegionCheck::kCrc, directory.crcs[i], i);
  }
  return RegionNamer([experts](const FileRegion& r) {
    return absl::StrCat("layer ", r.id / experts, " expert ", r.id % experts);
  });
}

absl::StatusOr<RegionNamer> AddNgramChunks(const OpenedContainer& opened, RegionList& list) {
  HEARTH_ASSIGN_OR_RETURN(
      const NgramDirectory table,
      DecodeNgramDirectory(opened.directory, opened.header, opened.file.path()));
  HEARTH_ASSIGN_OR_RETURN(const uint64_t row_bytes, NgramRowBytes(table.format, table.row_dim));
  const auto rows_of = [rows = table.row_count](uint64_t chunk) {
    return std::min<uint64_t>(kNgramRowsPerChunk, rows - chunk * kNgramRowsPerChunk);
  };
  for (uint64_t i = 0; i < table.crcs.size(); ++i) {
    list.Add(opened.header.data_offset_bytes + i * kNgramRowsPerChunk * row_bytes,
             rows_of(i) * row_bytes, RegionCheck::kCrc, table.crcs[i], i);
  }
  return RegionNamer([rows_of](const FileRegion& r) {
    const uint64_t first = r.id * kNgramRowsPerChunk;
    return absl::StrCat("rows ", first, " to ", first + rows_of(r.id) - 1);
  });
}

// What is known of one region while its file goes by.
struct RegionState {
  uint32_t crc32c = 0;
  uint64_t nonzero_bytes = kNowhere;  // where a zero was expected first
};

void CheckPart(const FileRegion& region, std::span<const std::byte> part, uint64_t offset_bytes,
               RegionState& state) {
  switch (region.check) {
    case RegionCheck::kHashOnly:
      return;
    case RegionCheck::kCrc:
      state.crc32c = Crc32c(part, state.crc32c);
      return;
    case RegionCheck::kZero: {
      const auto it =
          std::find_if(part.begin(), part.end(), [](std::byte b) { return b != std::byte{0}; });
      if (it != part.end() && state.nonzero_bytes == kNowhere) {
        state.nonzero_bytes = offset_bytes + static_cast<uint64_t>(it - part.begin());
      }
      return;
    }
  }
}

std::vector<RegionFault> Judge(std::span<const FileRegion> regions,
                               std::span<const RegionState> states) {
  std::vector<RegionFault> faults;
  for (size_t i = 0; i < regions.size(); ++i) {
    if (regions[i].check == RegionCheck::kCrc && states[i].crc32c != regions[i].crc32c) {
      faults.push_back({i, absl::StrCat("checksum ", absl::Hex(states[i].crc32c), ", expected ",
                                        absl::Hex(regions[i].crc32c))});
    }
    if (states[i].nonzero_bytes != kNowhere) {
      faults.push_back({i, absl::StrCat("byte ", states[i].nonzero_bytes, " is not zero")});
    }
  }
  return faults;
}

struct Chunk {
  std::vector<std::byte> bytes;
  uint64_t begin_bytes = 0;
  uint64_t end_bytes() const { return begin_bytes + bytes.size(); }
};

}  // namespace

absl::StatusOr<FileRegions> MapFile(const std::string& dir, const std::string& name) {
  static constexpr struct {
    std::string_view name;
    ContainerKind kind;
  } kContainers[] = {{"dense.bin", ContainerKind::kTensors},
                     {"mtp.bin", ContainerKind::kTensors},
                     {"experts.bin", ContainerKind::kExperts},
                     {"ngram.bin", ContainerKind::kNgram}};
  const std::string path = JoinPath(dir, name);
  const auto* known =
      std::find_if(std::begin(kContainers), std::end(kContainers),
                   [&name](const auto& container) { return container.name == name; });
  RegionList list;
  if (known == std::end(kContainers)) {
    HEARTH_ASSIGN_OR_RETURN(RandomAccessFile file, RandomAccessFile::Open(path));
    list.Add(0, file.bytes(), RegionCheck::kHashOnly, 0, 0);
    return FileRegions{std::move(file), list.Take(), nullptr};
  }
  HEARTH_ASSIGN_OR_RETURN(OpenedContainer opened, OpenContainer(path, known->kind));
  list.Add(0, sizeof(FileHeader), RegionCheck::kHashOnly, 0, 0);
  RegionNamer namer;
  switch (known->kind) {
    case ContainerKind::kTensors: {
      HEARTH_ASSIGN_OR_RETURN(namer, AddTensors(opened, list));
      break;
    }
    case ContainerKind::kExperts: {
      HEARTH_ASSIGN_OR_RETURN(namer, AddExperts(opened, list));
      break;
    }
    case ContainerKind::kNgram: {
      HEARTH_ASSIGN_OR_RETURN(namer, AddNgramChunks(opened, list));
      break;
    }
  }
  list.Add(opened.header.directory_offset_bytes, opened.header.directory_bytes,
           RegionCheck::kHashOnly, 0, 0);
  return FileRegions{std::move(opened.file), list.Take(), std::move(namer)};
}

absl::StatusOr<RegionScan> ScanRegions(const FileRegions& map, WorkerTeam& team,
                                       const std::function<void(uint64_t)>& progress) {
  std::vector<RegionState> states(map.regions.size());
  std::array<Chunk, 2> chunks;
  ContentHasher hasher;
  size_t first = 0;  // region of the first byte that has not been checked
  for (uint32_t turn = 0;; ++turn) {
    Chunk& reading = chunks[turn % 2];
    const Chunk& full = chunks[(turn + 1) % 2];
    reading.begin_bytes = full.end_bytes();
    reading.bytes.resize(std::min(kChunkBytes, map.file.bytes() - reading.begin_bytes));
    if (reading.bytes.empty() && full.bytes.empty()) break;

    size_t last = first;  // one past the regions that the full chunk touches
    while (last < map.regions.size() && map.regions[last].begin_bytes < full.end_bytes()) ++last;
    const auto pieces =
        static_cast<uint32_t>((reading.bytes.size() + kPieceBytes - 1) / kPieceBytes);
    std::vector<absl::Status> reads(pieces);
    team.ForEach(1 + pieces + static_cast<uint32_t>(last - first), [&](uint32_t, uint32_t task) {
      if (task == 0) {
        hasher.Update(full.bytes);
      } else if (task <= pieces) {
        const uint64_t begin = (task - 1) * kPieceBytes;
        const uint64_t bytes = std::min(kPieceBytes, reading.bytes.size() - begin);
        reads[task - 1] = map.file.ReadAt(reading.begin_bytes + begin,
                                          std::span(reading.bytes).subspan(begin, bytes));
      } else {
        const size_t i = first + task - 1 - pieces;
        const uint64_t begin = std::max(map.regions[i].begin_bytes, full.begin_bytes);
        const uint64_t end = std::min(map.regions[i].end_bytes, full.end_bytes());
        CheckPart(map.regions[i],
                  std::span(full.bytes).subspan(begin - full.begin_bytes, end - begin), begin,
                  states[i]);
      }
    });
    for (const absl::Status& status : reads) HEARTH_RETURN_IF_ERROR(status);
    while (first < last && map.regions[first].end_bytes <= full.end_bytes()) ++first;
    progress(reading.end_bytes());
  }
  return RegionScan{.faults = Judge(map.regions, states), .xxh3_128 = hasher.HexDigest()};
}

}  // namespace hearth
