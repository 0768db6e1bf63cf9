// Host and card through the exchange, with the waits in a captured graph and a thread of the host
// beside it: nothing is lost in thousands of windows, and a stalled host ends the window within its
// bound, with an error that names the layer.
#include "gpu_kernels/ops/exchange/window_exchange.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gpu_kernels/device/graph.h"
#include "tests/gpu_kernels/exchange/play_host.h"
#include "tests/gpu_kernels/exchange/play_layer.h"
#include "tests/gpu_kernels/gpu_fixture.h"

namespace hearth {
namespace {

TEST(WindowExchange, NeedsAGpu) {
  const absl::StatusOr<GpuList> list = ListGpus();
  if (list.ok() && !list->gpus.empty()) GTEST_SKIP() << "this machine has a GPU";
  SteadyClock clock;
  const ExchangeShape shape = {.layer_count = 1, .rows_max = 1, .ranks = 1, .hidden = 32};
  EXPECT_EQ(WindowExchange::Create(GpuId(0), shape, 1000, clock).status().code(),
            absl::StatusCode::kUnavailable);
}

// What a layer publishes, in device memory.
class Published {
 public:
  static absl::StatusOr<Published> Create(GpuId gpu, const ExchangeShape& shape, uint32_t rows) {
    std::vector<DeviceBuffer> buffers;
    const uint32_t blocks = shape.hidden / 32;
    for (const uint32_t words :
         {2u, rows * shape.ranks, rows * shape.ranks, rows * shape.hidden / 4, rows * blocks,
          rows * blocks * 2, rows * shape.hidden / 4, rows, rows, rows * shape.hidden}) {
      HEARTH_ASSIGN_OR_RETURN(DeviceBuffer buffer, DeviceBuffer::Create(gpu, uint64_t{words} * 4));
      buffers.push_back(std::move(buffer));
    }
    return Published(std::move(buffers), shape.hidden, rows);
  }
  PlayBuffers play() const {
    return {.args = {.expert = At<uint32_t>(1),
                     .weight = At<float>(2),
                     .u = {.q = At<int8_t>(3),
                           .scale = At<float>(4),
                           .sum16 = At<int32_t>(5),
                           .rows = rows_,
                           .cols = hidden_},
                     .u_rotated = {.q = At<int8_t>(6),
                                   .scale = At<float>(7),
                                   .sum = At<int32_t>(8),
                                   .rows = rows_,
                                   .cols = hidden_},
                     .x = At<float>(9),
                     .rows = rows_},
            .digest = At<uint64_t>(0)};
  }

 private:
  Published(std::vector<DeviceBuffer> buffers, uint32_t hidden, uint32_t rows)
      : buffers_(std::move(buffers)), hidden_(hidden), rows_(rows) {}
  template <class T>
  T* At(size_t i) const {
    return reinterpret_cast<T*>(buffers_[i].data());
  }
  std::vector<DeviceBuffer> buffers_;
  uint32_t hidden_;
  uint32_t rows_;
};

class WindowExchangeOnGpu : public OnGpu {
 protected:
  void Make(const ExchangeShape& shape, uint32_t rows, uint64_t wait_ns_max) {
    absl::StatusOr<std::unique_ptr<WindowExchange>> exchange =
        WindowExchange::Create(gpu().id, shape, wait_ns_max, clock_);
    ASSERT_TRUE(exchange.ok()) << exchange.status();
    exchange_ = std::move(*exchange);
    absl::StatusOr<Published> published = Published::Create(gpu().id, shape, rows);
    ASSERT_TRUE(published.ok()) << published.status();
    published_.emplace(std::move(*published));
    absl::StatusOr<UniqueStream> beside = UniqueStream::Create(gpu().id);
    ASSERT_TRUE(beside.ok()) << beside.status();
    beside_.emplace(std::move(*beside));
    for (std::optional<UniqueEvent>* event : {&routed_, &published_rows_}) {
      absl::StatusOr<UniqueEvent> made = UniqueEvent::Create(gpu().id, EventKind::kUntimed);
      ASSERT_TRUE(made.ok()) << made.status();
      event->emplace(std::move(*made));
    }
    absl::StatusOr<UniqueGraph> graph = UniqueGraph::Capture(
        stream().view(), [&](CudaStreamView on) { return EnqueueWindow(rows, on); });
    ASSERT_TRUE(graph.ok()) << graph.status();
    const bool one_less = shape.expert_count != 0 && !two_streams_;
    EXPECT_EQ(graph->node_count(), 3 + (one_less ? 5 : 6) * shape.layer_count);
    graph_.emplace(std::move(*graph));
  }

  absl::Status EnqueueWindow(uint32_t rows, CudaStreamView on) {
    const PlayBuffers buffers = published_->play();
    HEARTH_RETURN_IF_ERROR(LaunchBeginWindow(*exchange_, on));
    HEARTH_RETURN_IF_ERROR(LaunchPlayStart(*exchange_, buffers, on));
    for (uint32_t i = 0; i < exchange_->layout().shape.layer_count; ++i) {
      const LayerId layer(i);
      if (exchange_->layout().shape.expert_count == 0) {
        HEARTH_RETURN_IF_ERROR(LaunchPublish(*exchange_, layer, buffers.args, on));
        HEARTH_RETURN_IF_ERROR(LaunchTakeHits(*exchange_, layer, rows, on));
        HEARTH_RETURN_IF_ERROR(LaunchTakeLate(*exchange_, layer, rows, on));
      } else if (two_streams_) {
        HEARTH_RETURN_IF_ERROR(EnqueueOnTwoStreams(layer, rows, on));
      } else {
        HEARTH_RETURN_IF_ERROR(LaunchPublish(*exchange_, layer, buffers.args, on));
        HEARTH_RETURN_IF_ERROR(LaunchTakeLate(*exchange_, layer, rows, on));
      }
      HEARTH_RETURN_IF_ERROR(LaunchAwaitOutputs(*exchange_, layer, on));
      HEARTH_RETURN_IF_ERROR(LaunchPlayLayer(*exchange_, layer, buffers, on));
      const LayerId next((i + 1) % exchange_->layout().shape.layer_count);
      HEARTH_RETURN_IF_ERROR(LaunchPublishAhead(*exchange_, next, buffers.args.expert, rows, on));
    }
    return LaunchEndWindow(*exchange_, on);
  }

  // The card finds the hits, and the rows go to the host beside what it does with them.
  absl::Status EnqueueOnTwoStreams(LayerId layer, uint32_t rows, CudaStreamView on) {
    const PlayBuffers buffers = published_->play();
    HEARTH_RETURN_IF_ERROR(routed_->Record(on));
    HEARTH_RETURN_IF_ERROR(routed_->HoldBack(beside_->view()));
    HEARTH_RETURN_IF_ERROR(LaunchPublishRows(*exchange_, layer, buffers.args, beside_->view()));
    HEARTH_RETURN_IF_ERROR(published_rows_->Record(beside_->view()));
    HEARTH_RETURN_IF_ERROR(
        LaunchPublishRoutes(*exchange_, layer, buffers.args.expert, buffers.args.weight, rows, on));
    HEARTH_RETURN_IF_ERROR(published_rows_->HoldBack(on));
    return LaunchTakeLate(*exchange_, layer, rows, on);
  }

  void PlayWindows(uint32_t window_count, uint32_t rows, bool check_rows) {
    PlayHost player(exchange_->host(), clock_, 5, check_rows);
    for (uint32_t window = 0; window < window_count; ++window) {
      if (exchange_->layout().shape.expert_count != 0) {
        player.ChangeTable(window % 7 == 0 ? 3000 : window % 5 * 20, window % 6);
      }
      exchange_->host().BeginWindow();
      ASSERT_TRUE(graph_->Launch(stream().view()).ok());
      const absl::Status status = player.PlayWindow(rows);
      if (!status.ok()) exchange_->host().Abort();
      const absl::Status ended = exchange_->host().AwaitEnd(clock_.NowNs() + 3'000'000'000);
      if (window % 100 == 0 || !ended.ok()) {
        const absl::Status ran = stream().Synchronize();
        ASSERT_TRUE(ran.ok()) << ran;
      }
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_TRUE(ended.ok()) << ended;
    }
  }

  static ExchangeShape ShapeWithTable(uint32_t layers, uint32_t hidden) {
    ExchangeShape shape = Shape(layers, hidden);
    shape.expert_count = kPlayExperts;
    return shape;
  }
  static ExchangeShape Shape(uint32_t layers, uint32_t hidden) {
    return {.layer_count = layers,
            .rows_max = 9,
            .ranks = 10,
            .hidden = hidden,
            .forms = {.quantized = true, .rotated = true, .fp32 = true}};
  }

  SteadyClock clock_;
  std::unique_ptr<WindowExchange> exchange_;
  std::optional<Published> published_;
  std::optional<UniqueStream> beside_;
  std::optional<UniqueEvent> routed_;
  std::optional<UniqueEvent> published_rows_;
  std::optional<UniqueGraph> graph_;
  bool two_streams_ = false;
};

constexpr uint64_t kLongWaitNs = 5'000'000'000;

TEST_F(WindowExchangeOnGpu, EveryWordOfEveryRowArrives) {
  for (const uint32_t rows : {1u, 4u, 9u}) {
    Make(Shape(6, rows == 4 ? 2560 : 256), rows, kLongWaitNs);
    if (HasFatalFailure()) return;
    PlayWindows(20, rows, true);
    if (HasFatalFailure()) return;
  }
}

TEST_F(WindowExchangeOnGpu, TakesListsOfMoreWordsThanThreads) {
  ExchangeShape shape = Shape(4, 32);
  shape.rows_max = 16;
  shape.ranks = 32;
  Make(shape, 16, kLongWaitNs);
  if (HasFatalFailure()) return;
  PlayWindows(8, 16, true);
}

TEST_F(WindowExchangeOnGpu, FindsHitsOfSixteenRowsInItsTable) {
  ExchangeShape shape = ShapeWithTable(6, 256);
  shape.rows_max = 16;
  Make(shape, 16, kLongWaitNs);
  if (HasFatalFailure()) return;
  PlayWindows(5, 16, true);
}

TEST_F(WindowExchangeOnGpu, FindsHitsOfFewRowsInItsTable) {
  for (const bool two_streams : {false, true}) {
    two_streams_ = two_streams;
    for (const uint32_t rows : {1u, 4u, 9u}) {
      Make(ShapeWithTable(6, 256), rows, kLongWaitNs);
      if (HasFatalFailure()) return;
      PlayWindows(40, rows, true);
      if (HasFatalFailure()) return;
    }
  }
}

TEST_F(WindowExchangeOnGpu, TenThousandWindowsWithATable) {
  Make(ShapeWithTable(48, 256), 4, kLongWaitNs);
  if (HasFatalFailure()) return;
  PlayWindows(10000, 4, false);
}

TEST_F(WindowExchangeOnGpu, TenThousandWindowsWithoutALostWord) {
  constexpr uint32_t kWindows = 10000;
  Make(Shape(48, 256), 4, kLongWaitNs);
  if (HasFatalFailure()) return;
  PlayWindows(kWindows, 4, false);
}

// The host answers until `stage` of layer 2 and then no more.
class StalledHost : public WindowExchangeOnGpu {
 protected:
  static constexpr uint64_t kWaitNs = 50'000'000;

  void StallAt(ExchangeStage stage, const char* expected) {
    ExchangeHost& host = exchange_->host();
    host.BeginWindow();
    const int64_t start_ns = clock_.NowNs();
    ASSERT_TRUE(graph_->Launch(stream().view()).ok());
    const ExchangeFollows follows = {.late = stage == ExchangeStage::kLate,
                                     .outputs = stage != ExchangeStage::kLate};
    for (uint32_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(host.AwaitRoutes(LayerId(i), 4, clock_.NowNs() + 1'000'000'000).ok());
      ASSERT_TRUE(host.PostHits(LayerId(i), {}, {.outputs = true}).ok());
      host.PostOutputs(LayerId(i));
    }
    ASSERT_TRUE(host.AwaitRoutes(LayerId(2), 4, clock_.NowNs() + 1'000'000'000).ok());
    if (stage != ExchangeStage::kHits) {
      ASSERT_TRUE(host.PostHits(LayerId(2), {}, follows).ok());
    }
    ASSERT_TRUE(stream().Synchronize().ok());
    const int64_t took_ns = clock_.NowNs() - start_ns;
    EXPECT_GE(took_ns, int64_t{kWaitNs});
    EXPECT_LT(took_ns, int64_t{4 * kWaitNs});  // one wait, although 4 layers follow
    const absl::Status error = host.CardError();
    EXPECT_EQ(error.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_NE(error.message().find(expected), std::string::npos) << error;
  }
};

TEST_F(StalledHost, EndsTheWindowWithinTheBoundAndNamesTheLayer) {
  Make(Shape(6, 256), 4, kWaitNs);
  if (HasFatalFailure()) return;
  StallAt(ExchangeStage::kHits, "layer 2: the GPU has waited in vain for the list of experts in");
  if (HasFatalFailure()) return;
  StallAt(ExchangeStage::kLate, "layer 2: the GPU has waited in vain for the list of uploaded");
  if (HasFatalFailure()) return;
  StallAt(ExchangeStage::kOutputs, "layer 2: the GPU has waited in vain for the CPU's outputs");
  if (HasFatalFailure()) return;
  PlayWindows(20, 4, true);  // and the next windows are as if nothing had been
}

TEST_F(StalledHost, AbortEndsTheWindowAtOnce) {
  Make(Shape(6, 256), 4, kLongWaitNs);
  if (HasFatalFailure()) return;
  ExchangeHost& host = exchange_->host();
  host.BeginWindow();
  ASSERT_TRUE(graph_->Launch(stream().view()).ok());
  ASSERT_TRUE(host.AwaitRoutes(LayerId(0), 4, clock_.NowNs() + 1'000'000'000).ok());
  const int64_t start_ns = clock_.NowNs();
  host.Abort();
  ASSERT_TRUE(stream().Synchronize().ok());
  EXPECT_LT(clock_.NowNs() - start_ns, 1'000'000'000);
  EXPECT_TRUE(host.CardError().ok());
  PlayWindows(20, 4, true);
}

TEST_F(WindowExchangeOnGpu, StampsRiseFromPointToPoint) {
  Make(Shape(6, 256), 4, kLongWaitNs);
  if (HasFatalFailure()) return;
  PlayWindows(6, 4, true);
  if (HasFatalFailure()) return;
  for (uint32_t sequence = 3; sequence <= 6; ++sequence) {
    uint64_t before_ns = exchange_->host().Stamp(sequence, WindowStamp::kBegin);
    EXPECT_NE(before_ns, 0u);
    for (uint32_t layer = 0; layer < 6; ++layer) {
      const auto stamps = exchange_->host().Stamps(sequence, LayerId(layer));
      for (size_t i = 0; i < stamps.size(); ++i) {
        EXPECT_GE(stamps[i], before_ns) << "window " << sequence << " layer " << layer << " " << i;
        EXPECT_NE(stamps[i], 0u);
        before_ns = stamps[i];
      }
    }
    EXPECT_GE(exchange_->host().Stamp(sequence, WindowStamp::kEnd), before_ns);
  }
}

TEST_F(WindowExchangeOnGpu, RefusesLayersAndRowsThatItDoesNotHave) {
  Make(Shape(2, 256), 4, kLongWaitNs);
  if (HasFatalFailure()) return;
  const CudaStreamView on = stream().view();
  const absl::Status layer = LaunchTakeHits(*exchange_, LayerId(2), 4, on);
  EXPECT_EQ(layer.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(layer.message().find("layer 2"), std::string::npos) << layer;
  EXPECT_FALSE(LaunchTakeLate(*exchange_, LayerId(0), 10, on).ok());
  PublishArgs args = published_->play().args;
  EXPECT_FALSE(LaunchPublishRoutes(*exchange_, LayerId(0), nullptr, args.weight, 4, on).ok());
  args.x = nullptr;
  EXPECT_NE(LaunchPublish(*exchange_, LayerId(0), args, on).message().find("missing"),
            std::string::npos);
}

}  // namespace
}  // namespace hearth
