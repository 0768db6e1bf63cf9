#include "cache/store/remote_store.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/store/pack_identity.h"
#include "cache/store/remote_ticket.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr size_t kTrafficPacketBytes = 48 * 1024;  // from here on a packet is sent before it grows
constexpr int64_t kWelcomeWaitNs = 2'000'000'000;
constexpr int64_t kStatsWaitNs = 200'000'000;
constexpr int64_t kQuestionWaitNs = 5'000'000'000;

uint64_t LargestStride(const ExpertFile& experts) {
  uint64_t bytes = 0;
  for (uint32_t l = 0; l < experts.layer_count(); ++l) {
    bytes = std::max(bytes, experts.layout(LayerId(l)).stride_bytes());
  }
  return bytes;
}

// Waits for one arrival. Its owner waits for as long as the arrival takes, which is bounded.
class OneArrival final : public ArrivalSink {
 public:
  void OnArrival(uint32_t, absl::StatusOr<ExpertLease> lease) override {
    const std::lock_guard lock(mutex_);
    lease_ = std::move(lease);
    arrived_ = true;
    changed_.notify_all();  // with the lock: the waiter may go once it has it
  }
  absl::StatusOr<ExpertLease> Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return arrived_; });
    return std::move(lease_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool arrived_ = false;
  absl::StatusOr<ExpertLease> lease_ = absl::UnknownError("not arrived");
};

}  // namespace

absl::StatusOr<std::unique_ptr<RemoteStore>> RemoteStore::Connect(const Manifest& manifest,
                                                                  const ExpertFile& experts,
                                                                  const RemoteStoreOptions& options,
                                                                  Clock& clock) {
  HEARTH_ASSIGN_OR_RETURN(PackIdentity pack, PackIdentityOf(manifest, experts));
  HEARTH_ASSIGN_OR_RETURN(std::unique_ptr<RemoteLink> link,
                          RemoteLink::Connect(pack,
                                              {.socket_path = options.socket_path,
                                               .name = options.name,
                                               .connect_wait_ns = options.connect_wait_ns,
                                               .welcome_wait_ns = kWelcomeWaitNs},
                                              clock));
  std::unique_ptr<RemoteStore> store(
      new RemoteStore(experts, std::move(pack), options, clock, std::move(link)));
  if (!store->wake_.valid()) return ErrnoStatus(errno, "eventfd");
  store->receiver_ = std::thread([s = store.get()] { s->ReceiverMain(); });
  return store;
}

RemoteStore::RemoteStore(const ExpertFile& experts, PackIdentity pack,
                         const RemoteStoreOptions& options, Clock& clock,
                         std::unique_ptr<RemoteLink> link)
    : experts_(experts),
      pack_(std::move(pack)),
      options_(options),
      clock_(clock),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      asks_(link->welcome().hazard_count),
      private_reads_(LargestStride(experts), std::max(options.private_block_count, 1u)) {
  links_.push_back({.remote = std::move(link)});
  fetch_entries_.reserve(kFetchEntriesMax);
  held_.changes.reserve(kHeldChangesMax);
}

RemoteStore::~RemoteStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  Wake();
  if (receiver_.joinable()) receiver_.join();
  for (const Link& link : links_) HEARTH_CHECK(link.lease_count == 0);
}

absl::Status RemoteStore::CheckKey(ExpertKey key) const {
  if (key.layer.value < experts_.layer_count() && key.expert.value < experts_.expert_count()) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat(experts_.file().path(), ": no expert ", key.expert.value,
                                          " in layer ", key.layer.value));
}

// With the lock held: the expert where it is in the arena, or among what was read in process.
std::optional<ExpertLease> RemoteStore::TryLease(ExpertKey key) {
  const uint64_t blob_bytes = experts_.layout(key.layer).blob_bytes();
  Link& link = links_.back();
  if (const std::optional<uint32_t> word = link.remote->TakeWord(); word.has_value()) {
    const auto bytes = link.remote->TryHold(*word, key, blob_bytes);
    if (bytes.has_value()) {
      ++link.lease_count;
      return MakeLease(RemoteTicket{.epoch = link.epoch, .index = *word}.value(), *bytes);
    }
    link.remote->ReturnWord(*word);
  }
  const std::optional<PrivateReads::Lease> read = private_reads_.Find(key);
  if (!read.has_value()) return std::nullopt;
  return MakeLease(RemoteTicket{.is_private = true, .index = read->block}.value(),
                   read->bytes.first(blob_bytes));
}

std::optional<ExpertLease> RemoteStore::TryAcquire(ExpertKey key) {
  if (!CheckKey(key).ok()) return std::nullopt;
  const std::lock_guard lock(mutex_);
  return TryLease(key);
}

absl::StatusOr<ExpertLease> RemoteStore::Acquire(ExpertKey key) {
  HEARTH_RETURN_IF_ERROR(CheckKey(key));
  if (std::optional<ExpertLease> lease = TryAcquire(key); lease.has_value()) {
    return *std::move(lease);
  }
  OneArrival arrival;
  Fetch(key.layer, {&key.expert, 1}, arrival);
  return arrival.Wait();
}

void RemoteStore::Release(uint64_t ticket) {
  const RemoteTicket t = RemoteTicket::FromValue(ticket);
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (t.is_private) {
      private_reads_.Release(t.index);
      if (connected_) private_reads_.Shrink();
      wake = std::exchange(private_blocked_, false);
    } else {
      const auto link = std::find_if(links_.begin(), links_.end(),
                                     [&](const Link& l) { return l.epoch == t.epoch; });
      HEARTH_CHECK(link != links_.end() && link->lease_count > 0);
      link->remote->ReturnWord(t.index);
      --link->lease_count;
      wake = link->lease_count == 0 && link + 1 != links_.end();  // to be unmapped
    }
  }
  if (wake) Wake();
}

void RemoteStore::Fetch(LayerId layer, std::span<const ExpertId> experts, ArrivalSink& sink) {
  std::array<uint32_t, kFetchEntriesMax> missing;
  for (uint32_t begin = 0; begin < experts.size(); begin += kFetchEntriesMax) {
    const auto end =
        static_cast<uint32_t>(std::min<size_t>(experts.size(), begin + kFetchEntriesMax));
    uint32_t missing_count = 0;
    for (uint32_t i = begin; i < end; ++i) {
      const ExpertKey key{layer, experts[i]};
      if (const absl::Status known = CheckKey(key); !known.ok()) {
        sink.OnArrival(i, known);
      } else if (std::optional<ExpertLease> lease = TryAcquire(key); lease.has_value()) {
        sink.OnArrival(i, *std::move(lease));
      } else {
        missing[missing_count++] = i;
      }
    }
    if (missing_count > 0) {
      FetchMissing(layer, experts, std::span(missing).first(missing_count), sink);
    }
  }
}

void RemoteStore::FetchMissing(LayerId layer, std::span<const ExpertId> experts,
                               std::span<const uint32_t> missing, ArrivalSink& sink) {
  bool wake = false, lost = false;
  {
    const std::lock_guard lock(mutex_);
    const int64_t now_ns = clock_.NowNs();
    lost = !connected_ && options_.on_loss == DaemonLoss::kFail;
    fetch_entries_.clear();
    for (const uint32_t i : missing) {
      if (lost) break;
      const Ask ask{{layer, experts[i]}, i, &sink, now_ns};
      const std::optional<uint32_t> word =
          connected_ ? links_.back().remote->TakeWord() : std::nullopt;
      if (word.has_value()) {
        asks_[*word] = ask;
        ++ask_count_;
        fetch_entries_.push_back({experts[i], *word});
      } else {
        private_asks_.push_back(ask);
        wake = true;
      }
    }
    if (!fetch_entries_.empty()) {
      EncodeFetch(layer, fetch_entries_, ++request_, fetch_packet_);
      const absl::StatusOr<bool> sent = links_.back().remote->socket().Send(fetch_packet_);
      // An error is the end of the socket: the receiver finds it and sees to the asks.
      if (sent.ok() && !*sent) {
        for (const FetchEntry& entry : fetch_entries_) TurnPrivate(entry.hazard);
        wake = true;
      }
    }
  }
  if (wake) Wake();
  if (!lost) return;
  for (const uint32_t i : missing) sink.OnArrival(i, LostError({layer, experts[i]}));
}

// With the lock held: a FETCH that the daemon has not seen, or has refused, is read in process.
void RemoteStore::TurnPrivate(uint32_t word) {
  private_asks_.push_back(asks_[word]);
  asks_[word] = Ask();
  --ask_count_;
  links_.back().remote->ReturnWord(word);
}

absl::Status RemoteStore::LostError(ExpertKey key) const {
  return absl::UnavailableError(
      absl::StrCat(experts_.file().path(), ": layer ", key.layer.value, " expert ",
                   key.expert.value, ": the hearthd at ", options_.socket_path,
                   " is gone: start it again, or let the engine read in process"));
}

void RemoteStore::SendOrDrop(std::span<const std::byte> packet) {
  const std::lock_guard lock(mutex_);
  if (!connected_) return;
  const absl::StatusOr<bool> sent = links_.back().remote->socket().Send(packet);
  if (!sent.ok() || !*sent) ++dropped_count_;
}

void RemoteStore::LookAhead(LayerId layer, std::span<const ExpertId> experts) {
  LookAheadMessage ahead{.layer = layer, .experts = {}};
  for (const ExpertId expert : experts) {
    if (!CheckKey({layer, expert}).ok() || ahead.experts.size() >= kLookAheadEntriesMax) continue;
    ahead.experts.push_back(expert);
  }
  if (!ahead.experts.empty()) SendOrDrop(Encode(ahead, 0));
}

void RemoteStore::Observe(const LayerTraffic& traffic) {
  if (traffic.layer.value >= experts_.layer_count()) return;
  const size_t layer_bytes = TrafficPacket::LayerBytes(traffic.experts.size());
  if (!traffic_.empty() && traffic_.bytes() + layer_bytes > kTrafficPacketBytes) {
    SendOrDrop(traffic_.Finish(false, 0));
    traffic_.Clear();
  }
  // A layer of more than this does not exist in any model of ours; it would not fit a packet.
  constexpr size_t kSightingsMax = (kTrafficPacketBytes - 64) / sizeof(WireSighting);
  traffic_.BeginLayer(traffic.layer, static_cast<uint8_t>(traffic.kind));
  for (const ExpertSighting& s :
       traffic.experts.first(std::min(traffic.experts.size(), kSightingsMax))) {
    if (s.expert.value < experts_.expert_count()) traffic_.Add(s.expert, s.entry_count);
  }
}

void RemoteStore::EndWindow(uint32_t token_count) {
  SendOrDrop(traffic_.Finish(true, token_count));
  traffic_.Clear();
  FlushHeld();
}

void RemoteStore::FlushHeld() {
  if (held_.changes.empty()) return;
  SendOrDrop(Encode(held_, 0));
  held_.changes.clear();
}

void RemoteStore::Exchange(ExpertKey in, ExpertKey out, std::span<const std::byte>) {
  if (held_.changes.size() + 2 > kHeldChangesMax) FlushHeld();
  if (CheckKey(in).ok()) held_.changes.push_back({in, true});
  if (CheckKey(out).ok()) held_.changes.push_back({out, false});
}

void RemoteStore::Seed(LayerId layer, std::span<const float> sightings) {
  if (layer.value >= experts_.layer_count()) return;
  const size_t count = std::min<size_t>(sightings.size(), experts_.expert_count());
  for (size_t begin = 0; begin < count; begin += kHeatValuesMax) {
    HeatMessage seed{.layer = layer, .first_expert = static_cast<uint32_t>(begin), .values = {}};
    for (size_t i = begin; i < std::min<size_t>(count, begin + kHeatValuesMax); ++i) {
      const float value = sightings[i];
      seed.values.push_back(std::isfinite(value) && value > 0 ? value : 0.0f);
    }
    SendOrDrop(Encode(MessageType::kSeed, seed, 0));
  }
}

absl::StatusOr<std::vector<std::byte>> RemoteStore::AskDaemon(std::vector<std::byte> packet,
                                                              uint64_t request, MessageType answer,
                                                              int64_t wait_ns) const {
  std::unique_lock lock(mutex_);
  if (!connected_) return absl::UnavailableError("no hearthd is connected");
  question_ = request;
  answer_.reset();
  const absl::StatusOr<bool> sent = links_.back().remote->socket().Send(packet);
  if (!sent.ok()) return sent.status();
  if (*sent) {
    answered_.wait_for(lock, std::chrono::nanoseconds(wait_ns),
                       [this] { return answer_.has_value() || !connected_; });
  }
  question_ = 0;
  if (!answer_.has_value()) {
    return absl::UnavailableError(absl::StrCat(options_.socket_path, ": hearthd does not answer"));
  }
  std::vector<std::byte> reply = *std::move(answer_);
  answer_.reset();
  HEARTH_ASSIGN_OR_RETURN(const Frame frame, DecodeFrame(reply));
  if (frame.type == MessageType::kError) {
    HEARTH_ASSIGN_OR_RETURN(const ErrorMessage error, DecodeError(frame.payload));
    return absl::FailedPreconditionError(absl::StrCat("hearthd: ", error.text));
  }
  if (frame.type != answer) {
    return absl::InternalError(absl::StrCat("hearthd answered with ", MessageTypeName(frame.type)));
  }
  return reply;
}

uint64_t RemoteStore::NextRequest() const {
  const std::lock_guard lock(mutex_);
  return ++request_;
}

StoreStats RemoteStore::stats() const {
  const std::lock_guard question(question_mutex_);
  const uint64_t request = NextRequest();
  const absl::StatusOr<std::vector<std::byte>> reply = AskDaemon(
      EncodeEmpty(MessageType::kStatsAsk, request), request, MessageType::kStatsAre, kStatsWaitNs);
  if (!reply.ok()) return last_stats_;
  const absl::StatusOr<StatsMessage> m = DecodeStats(std::span(*reply).subspan(kFrameHeaderBytes));
  if (!m.ok()) return last_stats_;
  last_stats_ = {.capacity_bytes = m->capacity_bytes,
                 .resident_count = m->resident_count,
                 .read_count = m->read_count,
                 .read_bytes = m->read_bytes,
                 .lookahead_read_count = m->lookahead_read_count,
                 .lookahead_used_count = m->lookahead_used_count,
                 .exchange_count = m->exchange_count,
                 .read_busy_ns = m->read_busy_ns};
  return last_stats_;
}

absl::Status RemoteStore::Heat(LayerId layer, std::span<float> out) {
  const std::lock_guard question(question_mutex_);
  HEARTH_CHECK(out.size() == experts_.expert_count());
  for (size_t begin = 0; begin < out.size(); begin += kHeatValuesMax) {
    const auto count = static_cast<uint32_t>(std::min<size_t>(kHeatValuesMax, out.size() - begin));
    const HeatAskMessage ask{layer, static_cast<uint32_t>(begin), count};
    const uint64_t request = NextRequest();
    HEARTH_ASSIGN_OR_RETURN(
        const std::vector<std::byte> reply,
        AskDaemon(Encode(ask, request), request, MessageType::kHeatIs, kQuestionWaitNs));
    HEARTH_ASSIGN_OR_RETURN(const HeatMessage heat,
                            DecodeHeat(std::span(reply).subspan(kFrameHeaderBytes)));
    if (heat.values.size() != count) return absl::InternalError("HEAT_IS: another count");
    std::copy(heat.values.begin(), heat.values.end(), out.begin() + static_cast<ptrdiff_t>(begin));
  }
  return absl::OkStatus();
}

absl::Status RemoteStore::Lower(uint64_t arena_bytes) {
  const std::lock_guard question(question_mutex_);
  const uint64_t request = NextRequest();
  return AskDaemon(Encode(LowerMessage{arena_bytes}, request), request, MessageType::kDone,
                   kQuestionWaitNs)
      .status();
}

std::vector<std::string> RemoteStore::notes() const {
  const std::lock_guard lock(mutex_);
  return notes_;
}

bool RemoteStore::connected() const {
  const std::lock_guard lock(mutex_);
  return connected_;
}

std::shared_ptr<const FileMapping> RemoteStore::arena() const {
  const std::lock_guard lock(mutex_);
  return links_.back().remote->arena();
}

std::vector<StoreMemory> RemoteStore::memory() const {
  std::shared_ptr<const FileMapping> mapped = arena();
  const std::span<const std::byte> bytes = mapped->data();
  return {{.bytes = bytes, .writable = false, .keep_mapped = std::move(mapped)}};
}

uint64_t RemoteStore::dropped_message_count() const {
  const std::lock_guard lock(mutex_);
  return dropped_count_;
}

}  // namespace hearth
