// The RAM tier of an engine that shares hearthd's (`--daemon SOCKET`): leases by shared memory,
// reads by message. When the daemon dies, what it had in RAM stays readable and the rest is read in
// process, until a daemon answers again. The bytes are the same throughout.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "cache/protocol/messages.h"
#include "cache/store/expert_store.h"
#include "cache/store/private_reads.h"
#include "cache/store/remote_link.h"
#include "pack/reader/pack.h"
#include "runtime/base/clock.h"
#include "runtime/base/unique_handle.h"

namespace hearth {

enum class DaemonLoss {
  kReadInProcess,  // carry on with a small reader of its own, and connect again when it can
  kFail,           // every expert that has to be read is an error
};

struct RemoteStoreOptions {
  std::string socket_path;
  std::string name = "hearth";  // in the daemon's messages
  DaemonLoss on_loss = DaemonLoss::kReadInProcess;
  int64_t connect_wait_ns = 5'000'000'000;  // for a daemon that is starting
  int64_t answer_wait_ns = 60'000'000'000;  // a FETCH unanswered for longer: the daemon is lost
  // Blocks of its own reader, taken only when there is something to read in process: 64 experts of
  // 2.77 MB are 177 MB.
  uint32_t private_block_count = 64;
  int64_t retry_min_ns = 250'000'000;    // between attempts to connect again: doubled
  int64_t retry_max_ns = 8'000'000'000;  // until this
};

class RemoteStore final : public ExpertStore {
 public:
  // Connects and maps; reads nothing. `experts` and `clock` outlive the store. Unavailable: no
  // daemon answers in time. FailedPrecondition: it serves another pack or speaks another version.
  static absl::StatusOr<std::unique_ptr<RemoteStore>> Connect(const Manifest& manifest,
                                                              const ExpertFile& experts,
                                                              const RemoteStoreOptions& options,
                                                              Clock& clock);
  ~RemoteStore() override;

  uint32_t layer_count() const override { return experts_.layer_count(); }
  uint32_t expert_count() const override { return experts_.expert_count(); }
  const ExpertLayout& layout(LayerId layer) const override { return experts_.layout(layer); }
  absl::StatusOr<ExpertLease> Acquire(ExpertKey key) override;
  std::optional<ExpertLease> TryAcquire(ExpertKey key) override;
  void Fetch(LayerId layer, std::span<const ExpertId> experts, ArrivalSink& sink) override;
  void LookAhead(LayerId layer, std::span<const ExpertId> experts) override;
  void Observe(const LayerTraffic& traffic) override;
  void EndWindow(uint32_t token_count) override;
  void Seed(LayerId layer, std::span<const float> sightings) override;
  // Tells the daemon what VRAM holds; the bytes are not sent.
  void Exchange(ExpertKey in, ExpertKey out, std::span<const std::byte> out_bytes) override;
  // The daemon's, for all its engines; the last known when it does not answer.
  StoreStats stats() const override;
  // The daemon's arena as it is mapped now; a later one is memory like any other.
  std::vector<StoreMemory> memory() const override;
  std::vector<std::string> notes() const override;

  // The daemon's heat of a layer's experts, (expert_count()): what VRAM should hold first.
  absl::Status Heat(LayerId layer, std::span<float> out);
  // Lowers the daemon's budget, for all its engines.
  absl::Status Lower(uint64_t arena_bytes);
  bool connected() const;
  // What is mapped now; stays mapped while the result lives. Changes when the store connects again.
  std::shared_ptr<const FileMapping> arena() const;
  uint64_t dropped_message_count() const;  // TRAFFIC, LOOKAHEAD, HELD that found no room

 private:
  struct Ask {  // a FETCH on its way; one for each hazard word
    ExpertKey key;
    uint32_t index = 0;
    ArrivalSink* sink = nullptr;  // null: nothing is on its way
    int64_t since_ns = 0;
  };

  RemoteStore(const ExpertFile& experts, PackIdentity pack, const RemoteStoreOptions& options,
              Clock& clock, std::unique_ptr<RemoteLink> link);

  // remote_store.cc
  void Release(uint64_t ticket) override;
  std::optional<ExpertLease> TryLease(ExpertKey key);
  absl::Status CheckKey(ExpertKey key) const;
  void FetchMissing(LayerId layer, std::span<const ExpertId> experts,
                    std::span<const uint32_t> missing, ArrivalSink& sink);
  void TurnPrivate(uint32_t word);
  absl::Status LostError(ExpertKey key) const;
  uint64_t NextRequest() const;
  void SendOrDrop(std::span<const std::byte> packet);
  absl::StatusOr<std::vector<std::byte>> AskDaemon(std::vector<std::byte> packet, uint64_t request,
                                                   MessageType answer, int64_t wait_ns) const;
  void FlushHeld();

  // remote_receiver.cc: on the receiver's thread.
  void ReceiverMain();
  void ReceiveAll();
  absl::Status HandlePacket(std::span<const std::byte> packet);
  absl::Status HandleArrived(const ArrivedMessage& arrived);
  void LoseDaemon(const absl::Status& why);
  void CheckAnswers();
  void TryConnectAgain();
  void UnmapReleased();
  void ReadOneInProcess();
  void CancelAll();
  void Note(std::string line);
  int WaitMs();
  void Wake() const;

  const ExpertFile& experts_;
  const PackIdentity pack_;
  const RemoteStoreOptions options_;
  Clock& clock_;
  UniqueFd wake_;  // an eventfd

  mutable std::mutex mutex_;  // guards what follows, and sending
  // The last one is the current one, connected or not; those before it live for their leases.
  struct Link {
    std::unique_ptr<RemoteLink> remote;
    uint32_t epoch = 0;
    uint32_t lease_count = 0;
  };
  std::vector<Link> links_;
  bool connected_ = true;
  bool stopping_ = false;
  std::vector<Ask> asks_;  // by hazard word of the current link
  uint32_t ask_count_ = 0;
  std::deque<Ask> private_asks_;  // to be read in process
  PrivateReads private_reads_;
  bool private_blocked_ = false;  // all private blocks are leased
  std::vector<std::byte> fetch_packet_;
  std::vector<FetchEntry> fetch_entries_;
  std::vector<std::string> notes_;
  mutable uint64_t request_ = 1;
  uint64_t dropped_count_ = 0;
  // One question at a time.
  mutable std::mutex question_mutex_;  // before mutex_
  mutable std::condition_variable answered_;
  mutable uint64_t question_ = 0;  // 0: none
  mutable std::optional<std::vector<std::byte>> answer_;
  mutable StoreStats last_stats_;

  // The receiver's own.
  PacketBuffer buffer_;
  int64_t retry_at_ns_ = 0;
  int64_t retry_ns_ = 0;
  std::string last_refusal_;

  // The engine's thread's own.
  TrafficPacket traffic_;
  HeldMessage held_;

  std::thread receiver_;  // last: uses all of the above
};

}  // namespace hearth
