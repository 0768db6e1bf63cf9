// LaunchGatedMix against the launches that it stands for, bit by bit.
#include "gpu_kernels/ops/mixer/gated_mix.h"

#include "gpu_kernels/ops/mixer/activate_quantize.h"
#include "gpu_kernels/ops/mixer/hyper_connection.h"
#include "tests/gpu_kernels/dense/dense_case.h"
#include "tests/gpu_kernels/gpu_fixture.h"
#include "tests/gpu_kernels/mixer/device_array.h"

namespace hearth {
namespace {

struct MixShape {
  uint32_t streams;
  uint32_t hidden;
  uint32_t rank;
};
constexpr MixShape kShapes[] = {
    {4, 2560, 320}, {4, 256, 32}, {2, 64, 512}, {1, 32, 64}, {8, 96, 96}};

class GatedMix : public OnGpu {
 protected:
  // u of the three launches.
  std::vector<float> Separately(const GpuGatedMixArgs& args) {
    const uint32_t width = args.streams * args.hidden;
    const DeviceQuantized low_q(stream(), args.rows, args.up.cols);
    const DeviceArray<float> gate(stream(), size_t{args.rows} * width);
    const DeviceArray<float> u(stream(), size_t{args.rows} * args.hidden);
    absl::Status status = LaunchActivateQuantize({.function = RowFunction::kNone,
                                                  .x = args.low,
                                                  .x_stride = args.up.cols,
                                                  .quantized = low_q.out(),
                                                  .rows = args.rows,
                                                  .cols = args.up.cols},
                                                 stream().view());
    EXPECT_TRUE(status.ok()) << status;
    DenseMatmulArgs product;
    product.x = {.q = low_q.q.data(), .scale = low_q.scale.data(), .sum16 = low_q.sum16.data()};
    product.rows = args.rows;
    product.cols = args.up.cols;
    product.outputs[0] = {.w = args.up, .y = gate.data(), .y_stride = width};
    product.output_count = 1;
    status = LaunchDenseMatmul(product, stream().view());
    EXPECT_TRUE(status.ok()) << status;
    status = LaunchStreamMix({.gate = gate.data(),
                              .hn = args.hn,
                              .u = u.data(),
                              .rows = args.rows,
                              .streams = args.streams,
                              .hidden = args.hidden},
                             stream().view());
    EXPECT_TRUE(status.ok()) << status;
    return u.Read();
  }
};

TEST_F(GatedMix, HasTheBitsOfItsParts) {
  Prng prng(71);
  for (const MixShape& shape : kShapes) {
    const uint32_t width = shape.streams * shape.hidden;
    const HostMatrix up = HostMatrix::Random(&prng, MatrixFormat::kQ8, width, shape.rank);
    const DeviceArray<std::byte> weights(stream(), up.bytes);
    for (const uint32_t rows : {1u, 3u, 4u, 5u, 8u, 9u, 16u}) {
      const DeviceArray<float> low(stream(), RandomFloats(&prng, size_t{rows} * shape.rank, 5));
      const DeviceArray<float> hn(stream(), RandomFloats(&prng, size_t{rows} * width, 2));
      const DeviceArray<float> u(stream(), size_t{rows} * shape.hidden);
      const DeviceQuantized quantized(stream(), rows, shape.hidden);
      const GpuGatedMixArgs args = {.up = {up.format, up.rows, up.cols, weights.data()},
                                    .low = low.data(),
                                    .hn = hn.data(),
                                    .u = u.data(),
                                    .u_quantized = quantized.out(),
                                    .rows = rows,
                                    .streams = shape.streams,
                                    .hidden = shape.hidden};
      const absl::Status status = LaunchGatedMix(args, stream().view());
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(SameBits(Separately(args), u.Read()));
      quantized.ExpectFormOf(u.Read());
      ASSERT_FALSE(HasFailure()) << "hidden " << shape.hidden << " streams " << shape.streams
                                 << " rank " << shape.rank << " rows " << rows;
    }
  }
}

TEST_F(GatedMix, RefusesWhatDoesNotFit) {
  const DeviceMatrix up = {.format = MatrixFormat::kQ8, .rows = 256, .cols = 32};
  EXPECT_TRUE(TakesGatedMix(up, 4));
  EXPECT_FALSE(TakesGatedMix(up, 0));
  EXPECT_FALSE(TakesGatedMix(up, 16));
  EXPECT_FALSE(TakesGatedMix({.format = MatrixFormat::kBf16, .rows = 256, .cols = 32}, 4));
  EXPECT_FALSE(TakesGatedMix({.format = MatrixFormat::kQ8, .rows = 256, .cols = 544}, 4));
  EXPECT_FALSE(TakesGatedMix({.format = MatrixFormat::kQ8, .rows = 240, .cols = 32}, 4));
  EXPECT_EQ(
      LaunchGatedMix({.up = up, .rows = 17, .streams = 4, .hidden = 64}, stream().view()).code(),
      absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace hearth
