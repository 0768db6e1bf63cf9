// The GPU's XT encoder: kernels of gpu_kernels/ops/xt_encode.h and the order they run in.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gpu_kernels/device/cuda_status.cuh"
#include "gpu_kernels/device/stream.h"
#include "gpu_kernels/ops/xt_encode.h"
#include "gpu_kernels/ops/xt_search_kernel.cuh"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kRowsPerWarp = 4;

struct BlockArgs {
  XtShape shape;
  uint32_t matrix_count = 0;
  uint32_t block = 0;
  const float* weights = nullptr;         // (matrices, rows, cols)
  float* errors = nullptr;                // same
  const float* const* factors = nullptr;  // (matrices): factor of block 0, or null
  float* targets = nullptr;               // (streams, kXtGpuStepsMax)
  float* least = nullptr;
  const uint8_t* symbols = nullptr;
  const float* level = nullptr;
  uint8_t* codes = nullptr;  // (matrices, code_bytes)
  uint8_t column[8][kXtGpuAgesMax][4] = {};
};

__device__ uint32_t GroupEdge(const XtShape& shape, uint32_t groups, uint32_t group) {
  return static_cast<uint32_t>(uint64_t{(shape.rows + 15) / 16} * group / groups);
}

struct WeightPlace {
  uint32_t stream = 0;
  uint32_t step = 0;
};
__device__ WeightPlace PlaceOf(const XtShape& shape, uint32_t matrix, uint32_t padded_row,
                               uint32_t col) {
  const uint32_t bands = (shape.rows + 15) / 16;
  const uint32_t groups = (bands + kXtGroupBandsMax - 1) / kXtGroupBandsMax;
  const uint32_t band = padded_row / 16;
  uint32_t group = static_cast<uint32_t>(uint64_t{band} * groups / bands);
  while (band >= GroupEdge(shape, groups, group + 1)) ++group;
  const uint32_t lane = padded_row % 16 * 4 + col % 4;
  return {.stream = (matrix * groups + group) * kXtLaneCount + lane,
          .step = (band - GroupEdge(shape, groups, group)) * kXtStepsPerChunk + col / 4};
}

// Targets of the block's weights, in the order of the streams. One warp takes kRowsPerWarp rows,
// lane = column. Sums run over the later columns in order, each product and sum rounded.
__global__ void GatherKernel(const __grid_constant__ BlockArgs args) {
  const XtShape& shape = args.shape;
  const uint32_t padded_rows = (shape.rows + 15) / 16 * 16;
  const uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  const uint32_t lane = threadIdx.x % 32;
  const uint32_t warps_per_matrix = padded_rows / kRowsPerWarp;
  const uint32_t matrix = warp / warps_per_matrix;
  if (matrix >= args.matrix_count) return;
  const uint32_t first_row = warp % warps_per_matrix * kRowsPerWarp;
  const uint32_t col = args.block * kXtBlockCols + lane;
  const uint32_t after = (args.block + 1) * kXtBlockCols;
  float sum[kRowsPerWarp];
  const float* errors[kRowsPerWarp];
#pragma unroll
  for (uint32_t r = 0; r < kRowsPerWarp; ++r) {
    const bool real = first_row + r < shape.rows;
    const size_t row = size_t{matrix} * shape.rows + (real ? first_row + r : 0);
    sum[r] = real ? args.weights[row * shape.cols + col] : 0.0f;
    errors[r] = args.errors + row * shape.cols;
  }
  const float* factor = args.factors[matrix];
  if (factor != nullptr) {
    // Blocks 0..k-1 have (cols - 32 * (j + 1)) * 32 values each.
    factor += size_t{args.block} * (shape.cols - 16 * (args.block + 1)) * kXtBlockCols;
    for (uint32_t c = after; c < shape.cols; c += 32) {
      float chunk[kRowsPerWarp];
#pragma unroll
      for (uint32_t r = 0; r < kRowsPerWarp; ++r) chunk[r] = errors[r][c + lane];
      for (uint32_t j = 0; j < 32; ++j) {
        const float f = factor[size_t{c + j - after} * kXtBlockCols + lane];
#pragma unroll
        for (uint32_t r = 0; r < kRowsPerWarp; ++r) {
          sum[r] = __fadd_rn(sum[r], __fmul_rn(__shfl_sync(0xFFFFFFFFu, chunk[r], j), f));
        }
      }
    }
  }
#pragma unroll
  for (uint32_t r = 0; r < kRowsPerWarp; ++r) {
    const WeightPlace place = PlaceOf(shape, matrix, first_row + r, lane);
    const size_t at = size_t{place.stream} * kXtGpuStepsMax + place.step;
    const float target = first_row + r < shape.rows ? sum[r] : 0.0f;
    args.targets[at] = target;
  }
}

__device__ uint32_t PhaseCount(uint32_t bits) { return bits == 2 ? 4 : (bits == 3 ? 8 : 2); }

// Least squared error of any level, for every target of the streams.
__global__ void LeastKernel(const __grid_constant__ BlockArgs args, uint32_t stream_count) {
  const size_t at = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= size_t{stream_count} * kXtGpuStepsMax) return;
  const uint32_t step = at % kXtGpuStepsMax;
  const float* const level = args.level + step % PhaseCount(args.shape.bits) * 256;
  const float target = args.targets[at];
  float least = INFINITY;
  for (uint32_t hash = 0; hash < 256; ++hash) {
    const float difference = __fsub_rn(target, __ldg(level + hash));
    least = fminf(least, __fmul_rn(difference, difference));
  }
  args.least[at] = least;
}

// What the symbols of the block leave as errors, and their bytes. One thread per (stream, band).
__global__ void ScatterKernel(const __grid_constant__ BlockArgs args, uint32_t stream_count) {
  const XtShape& shape = args.shape;
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const uint32_t stream = thread / kXtGroupBandsMax;
  const uint32_t band_of_group = thread % kXtGroupBandsMax;
  if (stream >= stream_count) return;
  const uint32_t bands = (shape.rows + 15) / 16;
  const uint32_t groups = (bands + kXtGroupBandsMax - 1) / kXtGroupBandsMax;
  const uint32_t group = stream / kXtLaneCount % groups;
  const uint32_t matrix = stream / kXtLaneCount / groups;
  const uint32_t lane = stream % kXtLaneCount;
  const uint32_t begin = GroupEdge(shape, groups, group);
  const uint32_t group_bands = GroupEdge(shape, groups, group + 1) - begin;
  if (band_of_group >= group_bands) return;
  const uint32_t count = group_bands * kXtStepsPerChunk;
  const uint8_t* const symbols = args.symbols + size_t{stream} * kXtGpuStepsMax;
  const uint32_t phases = PhaseCount(shape.bits);

  uint32_t window[kXtGpuAgesMax + kXtStepsPerChunk];  // [kXtGpuAgesMax + i] is step i of the band
  for (uint32_t i = 0; i < kXtGpuAgesMax + kXtStepsPerChunk; ++i) {
    const uint32_t at = band_of_group * kXtStepsPerChunk + i + count - kXtGpuAgesMax;
    window[i] = symbols[at % count];
  }
  const uint32_t row = (begin + band_of_group) * 16 + lane / 4;
  for (uint32_t i = 0; i < kXtStepsPerChunk; ++i) {
    const uint32_t phase = i % phases;
    uint32_t hash = 0;
    for (uint32_t age = 0; age < kXtGpuAgesMax; ++age) {
      for (uint32_t bit = 0; bit < shape.bits; ++bit) {
        if ((window[kXtGpuAgesMax + i - age] >> bit & 1) != 0) {
          hash ^= args.column[phase][age][bit];
        }
      }
    }
    if (row >= shape.rows) continue;
    const uint32_t col = args.block * kXtBlockCols + 4 * i + lane % 4;
    const size_t at = (size_t{matrix} * shape.rows + row) * shape.cols + col;
    args.errors[at] = __fsub_rn(args.weights[at], args.level[phase * 256 + hash]);
  }
  const uint64_t chunk_bytes = uint64_t{kXtLaneCount} * shape.bits;
  const uint64_t blocks = shape.cols / kXtBlockCols;
  const uint64_t chunk =
      uint64_t{begin} * blocks + uint64_t{args.block} * group_bands + band_of_group;
  uint8_t* const to =
      args.codes + matrix * (chunk_bytes * bands * blocks) + chunk * chunk_bytes + lane;
  const uint32_t* const c = window + kXtGpuAgesMax;
  if (shape.bits == 4) {
    for (uint32_t l = 0; l < 4; ++l) {
      to[l * kXtLaneCount] = static_cast<uint8_t>(c[2 * l] | c[2 * l + 1] << 4);
    }
    return;
  }
  uint32_t high = 0;
  for (uint32_t l = 0; l < 2; ++l) {
    uint32_t byte = 0;
    for (uint32_t i = 0; i < 4; ++i) byte |= (c[4 * l + i] & 3) << (2 * i);
    to[l * kXtLaneCount] = static_cast<uint8_t>(byte);
  }
  for (uint32_t i = 0; i < kXtStepsPerChunk; ++i) high |= (c[i] >> 2 & 1) << i;
  if (shape.bits == 3) to[2 * kXtLaneCount] = static_cast<uint8_t>(high);
}

// Squared errors by row; one warp per row.
__global__ void RowErrorKernel(const float* errors, uint32_t row_count, uint32_t cols, float* out) {
  const uint32_t row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
  if (row >= row_count) return;
  float sum = 0;
  for (uint32_t c = threadIdx.x % 32; c < cols; c += 32) {
    const float e = errors[size_t{row} * cols + c];
    sum += e * e;
  }
  for (uint32_t offset = 16; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, offset);
  }
  if (threadIdx.x % 32 == 0) out[row] = sum;
}

uint32_t BlocksFor(uint64_t threads, uint32_t per_block) {
  return static_cast<uint32_t>((threads + per_block - 1) / per_block);
}

template <int kBits>
struct SearchLaunch {
  static constexpr size_t kSharedBytes = sizeof(typename XtSearch<kBits>::Shared);
  static uint64_t BackBytes(uint32_t blocks) {
    return uint64_t{blocks} * kXtGpuRunSteps * XtSearch<kBits>::kRows * sizeof(uint2);
  }
  static absl::Status Run(const XtSearchArgs& args, uint32_t blocks, CudaStreamView stream) {
    HEARTH_RETURN_IF_ERROR(
        CudaStatus(cudaFuncSetAttribute(XtSearchKernel<kBits>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
                   "shared memory of the XT search"));
    XtSearchKernel<kBits>
        <<<blocks, XtTrellisShape<kBits>::kThreads, kSharedBytes, stream.get()>>>(args);
    return CudaStatus(cudaGetLastError(), "launch of the XT search");
  }
};

class CudaXtEncoder final : public XtGpuEncoder {
 public:
  CudaXtEncoder(const XtShape& shape, uint32_t matrices_max, UniqueStream stream)
      : shape_(shape), matrices_max_(matrices_max), stream_(std::move(stream)) {}

  absl::Status Allocate(const GpuInfo& gpu, const XtGpuTables& tables) {
    tables_ = tables;
    gpu_ = gpu.id;
    const uint32_t streams = matrices_max_ * shape_.group_count() * kXtLaneCount;
    const uint32_t per_multiprocessor = shape_.bits == 3 ? 1 : 2;
    search_blocks_ =
        std::min(streams, std::max(1u, gpu.limits.multiprocessor_count) * per_multiprocessor);
    const uint64_t values = uint64_t{matrices_max_} * shape_.rows * shape_.cols;
    const uint64_t steps = uint64_t{streams} * kXtGpuStepsMax;
    const uint64_t back = shape_.bits == 2   ? SearchLaunch<2>::BackBytes(search_blocks_)
                          : shape_.bits == 3 ? SearchLaunch<3>::BackBytes(search_blocks_)
                                             : SearchLaunch<4>::BackBytes(search_blocks_);
    const uint64_t bytes[] = {values * 4,
                              values * 4,
                              steps * 4,
                              steps * 4,
                              steps,
                              back,
                              uint64_t{matrices_max_} * shape_.code_bytes(),
                              tables.level.size() * 4,
                              tables.row_hash.size(),
                              matrices_max_ * sizeof(float*),
                              uint64_t{matrices_max_} * shape_.rows * 4};
    for (const uint64_t b : bytes) {
      HEARTH_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Create(gpu.id, b));
      buffers_.push_back(std::move(buffer));
    }
    HEARTH_RETURN_IF_ERROR(FillBytes(buffers_[kSteps], std::byte{0}, stream_.view()));
    HEARTH_RETURN_IF_ERROR(
        CopyToDevice(std::as_bytes(std::span(tables.level)), buffers_[kLevel], 0, stream_.view()));
    HEARTH_RETURN_IF_ERROR(CopyToDevice(std::as_bytes(std::span(tables.row_hash)),
                                        buffers_[kRowHash], 0, stream_.view()));
    return stream_.Synchronize();
  }

  absl::Status Encode(std::span<const Job> jobs) override {
    if (jobs.size() > matrices_max_) {
      return absl::InvalidArgumentError(
          absl::StrCat(jobs.size(), " matrices for an XT encoder of ", matrices_max_));
    }
    HEARTH_RETURN_IF_ERROR(SelectGpu(gpu_));
    HEARTH_RETURN_IF_ERROR(Upload(jobs));
    const uint32_t matrices = static_cast<uint32_t>(jobs.size());
    for (uint32_t block = shape_.block_count(); block-- > 0;) {
      HEARTH_RETURN_IF_ERROR(RunBlock(block, matrices));
    }
    RowErrorKernel<<<BlocksFor(uint64_t{matrices} * shape_.rows * 32, 256), 256, 0,
                     stream_.view().get()>>>(Floats(kErrors), matrices * shape_.rows, shape_.cols,
                                             Floats(kRowErrors));
    HEARTH_RETURN_IF_ERROR(CudaStatus(cudaGetLastError(), "launch of the XT row errors"));
    for (size_t m = 0; m < jobs.size(); ++m) {
      HEARTH_RETURN_IF_ERROR(
          CopyToHost(buffers_[kCodes], m * shape_.code_bytes(), jobs[m].codes, stream_.view()));
      HEARTH_RETURN_IF_ERROR(CopyToHost(buffers_[kRowErrors], m * shape_.rows * sizeof(float),
                                        std::as_writable_bytes(jobs[m].row_errors),
                                        stream_.view()));
    }
    return stream_.Synchronize();
  }

 private:
  enum Buffer {
    kWeights,
    kErrors,
    kTargets,
    kLeast,
    kSteps,
    kBack,
    kCodes,
    kLevel,
    kRowHash,
    kFactors,
    kRowErrors
  };
  float* Floats(Buffer buffer) const { return reinterpret_cast<float*>(buffers_[buffer].data()); }
  uint8_t* Bytes(Buffer buffer) const {
    return reinterpret_cast<uint8_t*>(buffers_[buffer].data());
  }

  absl::Status Upload(std::span<const Job> jobs) {
    feedback_.clear();
    std::map<const float*, const float*> copies;
    std::vector<const float*> factors;
    const uint64_t values = uint64_t{shape_.rows} * shape_.cols;
    for (size_t m = 0; m < jobs.size(); ++m) {
      const Job& job = jobs[m];
      const uint64_t factor_values = uint64_t{shape_.block_count()} * (shape_.block_count() - 1) /
                                     2 * kXtBlockCols * kXtBlockCols;
      if (job.targets.size() != values || job.codes.size() != shape_.code_bytes() ||
          job.row_errors.size() != shape_.rows ||
          (!job.feedback.empty() && job.feedback.size() != factor_values)) {
        return absl::InvalidArgumentError(
            absl::StrCat("XT matrix ", m, " of ", jobs.size(), ": its spans do not fit the shape"));
      }
      HEARTH_RETURN_IF_ERROR(CopyToDevice(std::as_bytes(job.targets), buffers_[kWeights],
                                          m * values * sizeof(float), stream_.view()));
      const float* factor = nullptr;
      if (!job.feedback.empty()) {
        const float*& copy = copies[job.feedback.data()];
        if (copy == nullptr) {
          HEARTH_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                                  DeviceBuffer::Create(gpu_, job.feedback.size_bytes()));
          HEARTH_RETURN_IF_ERROR(
              CopyToDevice(std::as_bytes(job.feedback), buffer, 0, stream_.view()));
          copy = reinterpret_cast<const float*>(buffer.data());
          feedback_.push_back(std::move(buffer));
        }
        factor = copy;
      }
      factors.push_back(factor);
    }
    return CopyToDevice(std::as_bytes(std::span<const float* const>(factors)), buffers_[kFactors],
                        0, stream_.view());
  }

  absl::Status RunBlock(uint32_t block, uint32_t matrices) {
    BlockArgs args = {.shape = shape_,
                      .matrix_count = matrices,
                      .block = block,
                      .weights = Floats(kWeights),
                      .errors = Floats(kErrors),
                      .factors = reinterpret_cast<const float* const*>(buffers_[kFactors].data()),
                      .targets = Floats(kTargets),
                      .least = Floats(kLeast),
                      .symbols = Bytes(kSteps),
                      .level = Floats(kLevel),
                      .codes = Bytes(kCodes)};
    for (uint32_t p = 0; p < 8; ++p) {
      for (uint32_t age = 0; age < kXtGpuAgesMax; ++age) {
        std::copy_n(tables_.column[p][age].begin(), 4, args.column[p][age]);
      }
    }
    XtSearchArgs search = {.targets = args.targets,
                           .least = args.least,
                           .symbols = Bytes(kSteps),
                           .level = args.level,
                           .row_hash = Bytes(kRowHash),
                           .back = reinterpret_cast<uint2*>(buffers_[kBack].data()),
                           .stream_count = matrices * shape_.group_count() * kXtLaneCount,
                           .group_count = shape_.group_count(),
                           .band_count = shape_.band_count(),
                           .units = XtUnitsPerSquareLevel(XtCodeOf(shape_.bits))};
    for (uint32_t p = 0; p < 8; ++p) {
      std::copy_n(tables_.dropped_hash[p].begin(), 16, search.dropped_hash[p]);
      std::copy_n(tables_.lane_hash[p].begin(), 16, search.lane_hash[p]);
    }
    cudaStream_t stream = stream_.view().get();
    const uint64_t warps = uint64_t{matrices} * shape_.band_count() * 16 / kRowsPerWarp;
    GatherKernel<<<BlocksFor(warps * 32, 256), 256, 0, stream>>>(args);
    const uint32_t streams = search.stream_count;
    LeastKernel<<<BlocksFor(uint64_t{streams} * kXtGpuStepsMax, 256), 256, 0, stream>>>(args,
                                                                                        streams);
    HEARTH_RETURN_IF_ERROR(CudaStatus(cudaGetLastError(), "launch of the XT targets"));
    const uint32_t blocks = std::min(search_blocks_, streams);
    HEARTH_RETURN_IF_ERROR(shape_.bits == 2 ? SearchLaunch<2>::Run(search, blocks, stream_.view())
                           : shape_.bits == 3
                               ? SearchLaunch<3>::Run(search, blocks, stream_.view())
                               : SearchLaunch<4>::Run(search, blocks, stream_.view()));
    ScatterKernel<<<BlocksFor(uint64_t{streams} * kXtGroupBandsMax, 256), 256, 0, stream>>>(
        args, streams);
    return CudaStatus(cudaGetLastError(), "launch of the XT symbols");
  }

  const XtShape shape_;
  const uint32_t matrices_max_;
  UniqueStream stream_;
  XtGpuTables tables_;
  GpuId gpu_;
  uint32_t search_blocks_ = 0;
  std::vector<DeviceBuffer> buffers_;   // by Buffer
  std::vector<DeviceBuffer> feedback_;  // of the jobs at hand
};

}  // namespace

absl::StatusOr<std::unique_ptr<XtGpuEncoder>> XtGpuEncoder::Create(const GpuInfo& gpu,
                                                                   const XtShape& shape,
                                                                   uint32_t matrices_max) {
  const uint32_t steps_least =
      shape.band_count() / std::max(1u, shape.group_count()) * kXtStepsPerChunk;
  if (steps_least < kXtShortSteps || shape.cols % kXtBlockCols != 0 || matrices_max == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "XT matrices of (", shape.rows, ", ", shape.cols, "): the GPU encoder takes streams of ",
        kXtShortSteps, " steps or more, these have ", steps_least, "; encode them on the CPU"));
  }
  HEARTH_ASSIGN_OR_RETURN(const XtGpuTables tables, MakeXtGpuTables(XtCodeOf(shape.bits)));
  HEARTH_ASSIGN_OR_RETURN(UniqueStream stream, UniqueStream::Create(gpu.id));
  auto encoder = std::make_unique<CudaXtEncoder>(shape, matrices_max, std::move(stream));
  HEARTH_RETURN_IF_ERROR(encoder->Allocate(gpu, tables));
  return encoder;
}

}  // namespace hearth
