#include "pack/quant/xt_encoder.h"

#include <tbb/enumerable_thread_specific.h>
#include <tbb/parallel_for.h>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"

#include "pack/format/float_codes.h"
#include "pack/format/xt_matrix.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

constexpr uint32_t kStreamsPerRow = 4;  // lanes of a band row: columns 4 * i + j, j = 0..3
constexpr uint32_t kStepsMax = kXtGroupBandsMax * kXtStepsPerChunk;
// What the largest row scale of a matrix is stored as: high enough that rows a million times
// smaller are still normal fp16 numbers.
constexpr float kLargestRowScale = 1024.0f;
// Streams this short leave so much error that smaller units are better: the least error on
// Gaussians in streams of 16 and 32 steps lies at 0.94 to 0.97, of 64 to 320 steps at 0.97 to 1.0,
// within 1%.
constexpr uint32_t kShortSteps = 48;
constexpr float kShortFactor = 0.97f;

// A matrix on its way: rotated rows in level units.
struct Prepared {
  XtMatrixJob* job = nullptr;
  std::vector<float> targets;  // (rows, cols)
  std::vector<float> unit;     // weight of one level, by row; 0 for a row of zeros
  uint32_t task_begin = 0;     // of its (group, row of a band)
  bool encoded = false;        // by a device
};

// The rows of one (group, row of a band) and what their streams need.
struct RowSet {
  const Prepared& matrix;
  uint32_t band_begin = 0;
  uint32_t bands = 0;
  uint32_t row_of_band = 0;

  uint32_t row(uint32_t band) const { return (band_begin + band) * kBandRows + row_of_band; }
};

struct Scratch {
  std::vector<float> errors;    // (bands, cols) in level units
  std::vector<float> adjusted;  // (bands, 32)
  std::array<float, kStepsMax> targets;
  std::array<uint8_t, kStepsMax> symbols;
  std::array<float, kStepsMax> levels;
};

absl::Status CheckFinite(const XtMatrixJob& job) {
  for (size_t i = 0; i < job.values.size(); ++i) {
    if (std::isfinite(job.values[i])) continue;
    return absl::DataLossError(absl::StrCat("row ", i / job.shape.cols, ", column ",
                                            i % job.shape.cols, ": value ", job.values[i],
                                            " is not finite"));
  }
  return absl::OkStatus();
}

// Rotates the rows and measures them: unit = root mean square / deviation.
void Rotate(Prepared& prepared) {
  const XtMatrixJob& job = *prepared.job;
  const uint32_t cols = job.shape.cols;
  prepared.targets.assign(job.values.begin(), job.values.end());
  prepared.unit.resize(job.shape.rows);
  const float deviation = XtCodeOf(job.shape.bits).level_deviation;
  for (uint32_t r = 0; r < job.shape.rows; ++r) {
    const std::span<float> row = std::span(prepared.targets).subspan(size_t{r} * cols, cols);
    RotateXt(row);
    double sum = 0;
    for (const float v : row) sum += double{v} * v;
    prepared.unit[r] = static_cast<float>(std::sqrt(sum / cols) / deviation);
  }
}

// Rounds the units to the fp16 scales that are stored and divides the rows by them.
void Scale(Prepared& prepared) {
  XtMatrixJob& job = *prepared.job;
  const uint32_t cols = job.shape.cols;
  const uint32_t steps = job.shape.group_begin(1) * kXtStepsPerChunk;
  const float factor = steps < kShortSteps ? kShortFactor : 1.0f;
  float largest = 0;
  for (float& unit : prepared.unit) {
    unit *= factor;
    largest = std::max(largest, unit);
  }
  job.multiplier = std::max(largest / kLargestRowScale, std::numeric_limits<float>::min());
  std::byte* const scales = job.matrix.data() + job.shape.scale_offset_bytes();
  for (uint32_t r = 0; r < job.shape.rows; ++r) {
    const uint16_t code = EncodeFp16(prepared.unit[r] / job.multiplier);
    std::memcpy(scales + size_t{r} * sizeof(code), &code, sizeof(code));
    prepared.unit[r] = DecodeFp16(code) * job.multiplier;
    const float inverse = prepared.unit[r] > 0 ? 1.0f / prepared.unit[r] : 0.0f;
    float* const row = prepared.targets.data() + size_t{r} * cols;
    for (uint32_t c = 0; c < cols; ++c) row[c] *= inverse;
  }
}

// Adds to each row what the errors of later columns ask of this block.
void AddFeedback(std::span<const float> factor, const float* errors, float* target) {
  std::array<float, kXtBlockCols> sum;
  std::copy_n(target, kXtBlockCols, sum.begin());
  const size_t count = factor.size() / kXtBlockCols;
  for (size_t c = 0; c < count; ++c) {
    const float error = errors[c];
    const float* const row = factor.data() + c * kXtBlockCols;
    for (uint32_t i = 0; i < kXtBlockCols; ++i) sum[i] += error * row[i];
  }
  std::copy_n(sum.begin(), kXtBlockCols, target);
}

// The stream of column offset j of a block: targets in the order of its symbols.
void GatherTargets(const Scratch& scratch, uint32_t bands, uint32_t j, std::span<float> targets) {
  for (uint32_t band = 0; band < bands; ++band) {
    for (uint32_t i = 0; i < kXtStepsPerChunk; ++i) {
      targets[band * kXtStepsPerChunk + i] = scratch.adjusted[band * kXtBlockCols + 4 * i + j];
    }
  }
}

void EncodeBlock(const RowSet& rows, uint32_t block, XtStreamEncoder& encoder, Scratch& scratch) {
  const XtMatrixJob& job = *rows.matrix.job;
  const uint32_t cols = job.shape.cols;
  const uint32_t first_col = block * kXtBlockCols;
  const uint32_t after = first_col + kXtBlockCols;
  const auto target_row = [&](uint32_t band) {
    return rows.matrix.targets.data() + size_t{rows.row(band)} * cols;
  };
  for (uint32_t band = 0; band < rows.bands; ++band) {
    float* const adjusted = scratch.adjusted.data() + size_t{band} * kXtBlockCols;
    if (rows.row(band) >= job.shape.rows) {
      std::fill_n(adjusted, kXtBlockCols, 0.0f);
      continue;
    }
    std::copy_n(target_row(band) + first_col, kXtBlockCols, adjusted);
    if (job.feedback != nullptr) {
      AddFeedback(job.feedback->OfBlock(block), scratch.errors.data() + size_t{band} * cols + after,
                  adjusted);
    }
  }
  const uint32_t steps = rows.bands * kXtStepsPerChunk;
  const std::span<float> targets = std::span(scratch.targets).first(steps);
  const std::span<uint8_t> symbols = std::span(scratch.symbols).first(steps);
  const std::span<float> levels = std::span(scratch.levels).first(steps);
  for (uint32_t j = 0; j < kStreamsPerRow; ++j) {
    GatherTargets(scratch, rows.bands, j, targets);
    (void)encoder.Encode(targets, symbols, levels);
    StoreXtStream(job.shape.bits, symbols,
                  job.matrix.data() + job.shape.chunk_offset_bytes(block, rows.band_begin) +
                      rows.row_of_band * kStreamsPerRow + j);
    for (uint32_t t = 0; t < steps; ++t) {
      const uint32_t band = t / kXtStepsPerChunk;
      const uint32_t col = first_col + 4 * (t % kXtStepsPerChunk) + j;
      const bool padding = rows.row(band) >= job.shape.rows;
      scratch.errors[size_t{band} * cols + col] =
          padding ? 0.0f : target_row(band)[col] - levels[t];
    }
  }
}

// All blocks of the rows; returns the weights' squared error.
double EncodeRows(const RowSet& rows, XtStreamEncoder& encoder, Scratch& scratch) {
  const XtShape& shape = rows.matrix.job->shape;
  scratch.errors.assign(size_t{rows.bands} * shape.cols, 0.0f);
  scratch.adjusted.resize(size_t{rows.bands} * kXtBlockCols);
  for (uint32_t block = shape.block_count(); block-- > 0;) {
    EncodeBlock(rows, block, encoder, scratch);
  }
  double total = 0;
  for (uint32_t band = 0; band < rows.bands; ++band) {
    if (rows.row(band) >= shape.rows) continue;
    double sum = 0;
    for (const float e : std::span(scratch.errors).subspan(size_t{band} * shape.cols, shape.cols)) {
      sum += double{e} * e;
    }
    const double unit = rows.matrix.unit[rows.row(band)];
    total += sum * unit * unit;
  }
  return total;
}

// Encodes what the device takes, all matrices of one shape in one call.
absl::Status EncodeOnDevice(XtMatrixDevice& device, std::span<Prepared> matrices) {
  for (size_t first = 0; first < matrices.size(); ++first) {
    const XtShape shape = matrices[first].job->shape;
    if (matrices[first].encoded || !device.Takes(shape)) continue;
    std::vector<Prepared*> of_shape;
    for (Prepared& prepared : matrices.subspan(first)) {
      if (prepared.job->shape == shape) of_shape.push_back(&prepared);
    }
    std::vector<float> row_errors(of_shape.size() * shape.rows);
    std::vector<XtMatrixDevice::Job> jobs;
    for (const Prepared* prepared : of_shape) {
      const XtFeedback* const feedback = prepared->job->feedback;
      jobs.push_back(
          {.targets = prepared->targets,
           .feedback = feedback == nullptr ? std::span<const float>() : feedback->All(),
           .codes = prepared->job->matrix.first(shape.code_bytes()),
           .row_errors = std::span(row_errors).subspan(jobs.size() * shape.rows, shape.rows)});
    }
    HEARTH_RETURN_IF_ERROR(device.Encode(shape, jobs));
    for (size_t m = 0; m < of_shape.size(); ++m) {
      of_shape[m]->encoded = true;
      for (uint32_t r = 0; r < shape.rows; ++r) {
        const double unit = of_shape[m]->unit[r];
        of_shape[m]->job->stats.error.squared_error += double{jobs[m].row_errors[r]} * unit * unit;
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

struct XtEncoder::Threads {
  explicit Threads(XtIsa chosen) : isa(chosen) {}

  struct OfThread {
    std::array<std::unique_ptr<XtStreamEncoder>, 5> encoders;  // by bits
    Scratch scratch;
  };
  XtStreamEncoder& EncoderOf(OfThread& thread, uint32_t bits) {
    std::unique_ptr<XtStreamEncoder>& encoder = thread.encoders[bits];
    if (encoder == nullptr) {
      encoder = std::make_unique<XtStreamEncoder>(trellises[bits - 2], kStepsMax, isa);
    }
    return *encoder;
  }

  // Those that no device has encoded, by (matrix, group, row of a band).
  void EncodeTasks(std::span<Prepared> matrices) {
    uint32_t task_count = 0;
    for (Prepared& prepared : matrices) {
      prepared.task_begin = task_count;
      if (!prepared.encoded) task_count += prepared.job->shape.group_count() * kBandRows;
    }
    std::vector<double> errors(task_count);
    tbb::parallel_for(0u, task_count, [&](uint32_t task) {
      // The last that begins at the task or before; one that a device encoded has no tasks.
      auto of_task = std::upper_bound(matrices.begin(), matrices.end(), task,
                                      [](uint32_t t, const Prepared& prepared) {
                                        return t < prepared.task_begin;
                                      }) -
                     1;
      while (of_task->encoded) --of_task;
      const Prepared& prepared = *of_task;
      const XtShape& shape = prepared.job->shape;
      const uint32_t group = (task - prepared.task_begin) / kBandRows;
      const RowSet rows = {.matrix = prepared,
                           .band_begin = shape.group_begin(group),
                           .bands = shape.group_begin(group + 1) - shape.group_begin(group),
                           .row_of_band = (task - prepared.task_begin) % kBandRows};
      OfThread& thread = of_thread.local();
      errors[task] = EncodeRows(rows, EncoderOf(thread, shape.bits), thread.scratch);
    });
    for (const Prepared& prepared : matrices) {
      if (prepared.encoded) continue;
      const uint32_t tasks = prepared.job->shape.group_count() * kBandRows;
      for (uint32_t t = 0; t < tasks; ++t) {
        prepared.job->stats.error.squared_error += errors[prepared.task_begin + t];
      }
    }
  }

  const XtIsa isa;
  const std::array<XtTrellis, 3> trellises = {XtTrellis(XtCodeOf(2)), XtTrellis(XtCodeOf(3)),
                                              XtTrellis(XtCodeOf(4))};
  tbb::enumerable_thread_specific<OfThread> of_thread;
};

void XtEncodeStats::Add(const XtEncodeStats& other) {
  weights += other.weights;
  error.Add(other.error);
}

XtEncoder::XtEncoder(XtIsa isa, XtMatrixDevice* device)
    : threads_(std::make_unique<Threads>(isa)), device_(device) {}
XtEncoder::~XtEncoder() = default;

absl::Status XtEncoder::Encode(std::span<XtMatrixJob> jobs) const {
  std::vector<Prepared> matrices(jobs.size());
  for (size_t m = 0; m < jobs.size(); ++m) {
    XtMatrixJob& job = jobs[m];
    HEARTH_CHECK(job.values.size() == size_t{job.shape.rows} * job.shape.cols);
    HEARTH_CHECK(job.matrix.size() == job.shape.bytes());
    HEARTH_CHECK(job.feedback == nullptr || job.feedback->cols() == job.shape.cols);
    HEARTH_RETURN_IF_ERROR(CheckFinite(job));
    matrices[m].job = &job;
  }
  try {
    tbb::parallel_for(size_t{0}, matrices.size(), [&](size_t m) {
      Prepared& prepared = matrices[m];
      std::fill(prepared.job->matrix.begin(), prepared.job->matrix.end(), std::byte{0});
      Rotate(prepared);
      Scale(prepared);
      prepared.job->stats = {.weights = prepared.job->values.size()};
      for (const float v : prepared.job->values) {
        prepared.job->stats.error.squared_values += double{v} * v;
      }
    });
    if (device_ != nullptr) HEARTH_RETURN_IF_ERROR(EncodeOnDevice(*device_, matrices));
    threads_->EncodeTasks(matrices);
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("XT encoder: ", e.what()));
  }
  return absl::OkStatus();
}

void StoreXtStream(uint32_t bits, std::span<const uint8_t> symbols, std::byte* first) {
  HEARTH_CHECK(symbols.size() % kXtStepsPerChunk == 0);
  const size_t chunk_bytes = size_t{kXtLaneCount} * bits;
  for (size_t chunk = 0; chunk < symbols.size() / kXtStepsPerChunk; ++chunk) {
    const uint8_t* const c = symbols.data() + chunk * kXtStepsPerChunk;
    std::byte* const to = first + chunk * chunk_bytes;
    const auto store = [to](uint32_t line, uint32_t value) {
      to[line * kXtLaneCount] = static_cast<std::byte>(value);
    };
    if (bits == 4) {
      for (uint32_t l = 0; l < 4; ++l) store(l, c[2 * l] | c[2 * l + 1] << 4);
      continue;
    }
    for (uint32_t l = 0; l < 2; ++l) {
      uint32_t byte = 0;
      for (uint32_t i = 0; i < 4; ++i) byte |= (c[4 * l + i] & 3u) << (2 * i);
      store(l, byte);
    }
    if (bits == 2) continue;
    uint32_t high = 0;
    for (uint32_t i = 0; i < 8; ++i) high |= (c[i] >> 2 & 1u) << i;
    store(2, high);
  }
}

void DecodeXtMatrix(const XtShape& shape, std::span<const std::byte> matrix, float multiplier,
                    std::span<float> values) {
  HEARTH_CHECK(matrix.size() >= shape.bytes());
  HEARTH_CHECK(values.size() == size_t{shape.rows} * shape.cols);
  XtLevels levels;
  for (uint32_t band = 0; band < shape.band_count(); ++band) {
    for (uint32_t block = 0; block < shape.block_count(); ++block) {
      DecodeXtChunk(shape, matrix.data(), block, band, &levels);
      for (uint32_t lane = 0; lane < kXtLaneCount; ++lane) {
        const uint32_t row = band * kBandRows + lane / 4;
        if (row >= shape.rows) continue;
        uint16_t code;
        std::memcpy(&code, matrix.data() + shape.scale_offset_bytes() + row * sizeof(code),
                    sizeof(code));
        const float unit = DecodeFp16(code) * multiplier;
        for (uint32_t i = 0; i < kXtStepsPerChunk; ++i) {
          values[size_t{row} * shape.cols + block * kXtBlockCols + 4 * i + lane % 4] =
              static_cast<float>(levels[i][lane]) * unit;
        }
      }
    }
  }
  for (uint32_t row = 0; row < shape.rows; ++row) {
    UnrotateXt(values.subspan(size_t{row} * shape.cols, shape.cols));
  }
}

}  // namespace hearth
