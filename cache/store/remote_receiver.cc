// The receiver's thread of RemoteStore: what the daemon says, what happens when it says nothing any
// more, and reading in process meanwhile.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "cache/store/remote_store.h"
#include "cache/store/remote_ticket.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"
#include "runtime/base/units.h"

namespace hearth {
namespace {

constexpr int64_t kLookNs = 1'000'000'000;          // how often waits are looked at
constexpr int64_t kWelcomeAgainNs = 1'000'000'000;  // reading in process stands still meanwhile
constexpr size_t kNotesMax = 32;

}  // namespace

void RemoteStore::Wake() const {
  const uint64_t one = 1;
  // A full counter is a wake-up already.
  [[maybe_unused]] const ssize_t n = ::write(wake_.get(), &one, sizeof(one));
}

int RemoteStore::WaitMs() {
  const std::lock_guard lock(mutex_);
  if (!private_asks_.empty() && !private_blocked_) return 0;
  int64_t wait_ns = kLookNs;
  if (!connected_) wait_ns = std::min(wait_ns, retry_at_ns_ - clock_.NowNs());
  return PollTimeoutMs(std::max<int64_t>(wait_ns, 0), 0);
}

void RemoteStore::ReceiverMain() {
  for (;;) {
    pollfd fds[2] = {{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                     {.fd = -1, .events = POLLIN, .revents = 0}};
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
      if (connected_) fds[1].fd = links_.back().remote->socket().fd();
    }
    ::poll(fds, 2, WaitMs());
    if (fds[0].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t n = ::read(wake_.get(), &count, sizeof(count));
    }
    if (fds[1].revents != 0) ReceiveAll();
    CheckAnswers();
    if (!connected()) TryConnectAgain();
    UnmapReleased();
    ReadOneInProcess();
  }
  CancelAll();
}

void RemoteStore::ReceiveAll() {
  for (;;) {
    // Only this thread replaces or closes the socket; sending at the same time is allowed.
    const absl::StatusOr<Received> received = links_.back().remote->socket().Receive(buffer_);
    if (!received.ok()) return LoseDaemon(received.status());
    if (*received == Received::kNothing) return;
    if (*received == Received::kClosed) {
      return LoseDaemon(absl::UnavailableError("it closed the connection"));
    }
    if (const absl::Status status = HandlePacket(buffer_.packet()); !status.ok()) {
      return LoseDaemon(status);
    }
  }
}

absl::Status RemoteStore::HandlePacket(std::span<const std::byte> packet) {
  HEARTH_ASSIGN_OR_RETURN(const Frame frame, DecodeFrame(packet));
  if (frame.version != kProtocolVersion) return absl::InternalError("it changed its version");
  if (frame.type == MessageType::kArrived) {
    HEARTH_ASSIGN_OR_RETURN(const ArrivedMessage arrived, DecodeArrived(frame.payload));
    return HandleArrived(arrived);
  }
  if (frame.type == MessageType::kError && frame.request == 0) {
    HEARTH_ASSIGN_OR_RETURN(const ErrorMessage error, DecodeError(frame.payload));
    return absl::UnavailableError(absl::StrCat("it says ", error.text));
  }
  const std::lock_guard lock(mutex_);
  if (frame.request == question_ && question_ != 0) {  // else: too late to be waited for
    answer_.emplace(packet.begin(), packet.end());
    answered_.notify_all();
  }
  return absl::OkStatus();
}

absl::Status RemoteStore::HandleArrived(const ArrivedMessage& arrived) {
  for (const ArrivedEntry& entry : arrived.entries) {
    Ask ask;
    std::optional<ExpertLease> lease;
    {
      const std::lock_guard lock(mutex_);
      if (entry.hazard >= asks_.size() || asks_[entry.hazard].sink == nullptr) {
        return absl::InternalError("it sent an expert that nobody asked for");
      }
      ask = asks_[entry.hazard];
      Link& link = links_.back();
      if (entry.code == WireCode::kBusy && options_.on_loss == DaemonLoss::kReadInProcess) {
        TurnPrivate(entry.hazard);
        continue;
      }
      if (entry.code == WireCode::kNone) {
        const auto bytes =
            link.remote->BytesAt(entry.arena_page, experts_.layout(ask.key.layer).blob_bytes());
        if (!bytes.has_value()) return absl::InternalError("it named a place beyond its arena");
        ++link.lease_count;
        lease = MakeLease(RemoteTicket{.epoch = link.epoch, .index = entry.hazard}.value(), *bytes);
      } else {
        link.remote->ReturnWord(entry.hazard);
      }
      asks_[entry.hazard] = Ask();
      --ask_count_;
    }
    if (lease.has_value()) {
      ask.sink->OnArrival(ask.index, *std::move(lease));
    } else {
      ask.sink->OnArrival(ask.index, absl::DataLossError(absl::StrCat("hearthd: ", arrived.text)));
    }
  }
  return absl::OkStatus();
}

// What is on its way is read in process from here on, or fails. The arena stays as it is: nobody
// writes to it any more, or, if the daemon lives, it honours the leases as long as this process.
void RemoteStore::LoseDaemon(const absl::Status& why) {
  std::vector<Ask> failed;
  {
    const std::lock_guard lock(mutex_);
    if (!connected_) return;
    connected_ = false;
    links_.back().remote->socket().Close();
    // The words of these asks are not used again: a daemon that lives may still set them.
    for (Ask& ask : asks_) {
      if (ask.sink == nullptr) continue;
      if (options_.on_loss == DaemonLoss::kReadInProcess) {
        private_asks_.push_back(ask);
      } else {
        failed.push_back(ask);
      }
      ask = Ask();
    }
    ask_count_ = 0;
    retry_ns_ = options_.retry_min_ns;
    retry_at_ns_ = clock_.NowNs() + retry_ns_;
    const std::string then =
        options_.on_loss == DaemonLoss::kFail
            ? "experts that have to be read are errors from now on"
            : absl::StrCat("what it had in RAM stays readable, the rest is read in process into ",
                           "at most ", FormatBytes(private_reads_.bytes_max()),
                           " until a hearthd answers there again");
    Note(absl::StrCat("the hearthd at ", options_.socket_path, " is gone (", why.message(),
                      "): ", then));
    answered_.notify_all();
  }
  for (const Ask& ask : failed) ask.sink->OnArrival(ask.index, LostError(ask.key));
}

// With the lock held.
void RemoteStore::Note(std::string line) {
  if (notes_.size() < kNotesMax) notes_.push_back(std::move(line));
}

void RemoteStore::CheckAnswers() {
  std::vector<Ask> late;
  bool daemon_is_late = false;
  {
    const std::lock_guard lock(mutex_);
    const int64_t now_ns = clock_.NowNs();
    if (ask_count_ > 0) {
      daemon_is_late = std::any_of(asks_.begin(), asks_.end(), [&](const Ask& ask) {
        return ask.sink != nullptr && now_ns - ask.since_ns > options_.answer_wait_ns;
      });
    }
    // Those that waited for the daemon before have waited long enough in all after twice that.
    while (!private_asks_.empty() &&
           now_ns - private_asks_.front().since_ns > 2 * options_.answer_wait_ns) {
      late.push_back(private_asks_.front());
      private_asks_.pop_front();
    }
  }
  if (daemon_is_late) LoseDaemon(absl::DeadlineExceededError("it does not answer"));
  for (const Ask& ask : late) {
    ask.sink->OnArrival(ask.index,
                        absl::DeadlineExceededError(absl::StrCat(
                            experts_.file().path(), ": layer ", ask.key.layer.value, " expert ",
                            ask.key.expert.value, ": all ", options_.private_block_count,
                            " blocks of the engine's own reader are leased")));
  }
}

void RemoteStore::TryConnectAgain() {
  if (clock_.NowNs() < retry_at_ns_) return;
  {
    const std::lock_guard lock(mutex_);
    // An arena before the last one is still leased: a third would be one too many.
    if (stopping_ || links_.size() > 1) return;
  }
  absl::StatusOr<std::unique_ptr<RemoteLink>> link =
      RemoteLink::Connect(pack_,
                          {.socket_path = options_.socket_path,
                           .name = options_.name,
                           .connect_wait_ns = 0,
                           .welcome_wait_ns = kWelcomeAgainNs},
                          clock_);
  const std::lock_guard lock(mutex_);
  if (!link.ok()) {
    retry_ns_ = std::min(retry_ns_ * 2, options_.retry_max_ns);
    retry_at_ns_ = clock_.NowNs() + retry_ns_;
    if (!absl::IsUnavailable(link.status()) && link.status().message() != last_refusal_) {
      last_refusal_ = std::string(link.status().message());
      Note(absl::StrCat("not connected again: ", last_refusal_));
    }
    return;
  }
  asks_.assign((*link)->welcome().hazard_count, Ask());
  links_.push_back({.remote = *std::move(link), .epoch = links_.back().epoch + 1});
  connected_ = true;
  private_reads_.Shrink();
  Note(absl::StrCat("a hearthd answers at ", options_.socket_path, " again, with ",
                    links_.back().remote->welcome().resident_count, " experts in RAM"));
}

// Arenas of daemons before, once nothing of them is leased.
void RemoteStore::UnmapReleased() {
  std::vector<Link> released;
  const std::lock_guard lock(mutex_);
  while (links_.size() > 1 && links_.front().lease_count == 0) {
    released.push_back(std::move(links_.front()));
    links_.erase(links_.begin());
  }
}

void RemoteStore::ReadOneInProcess() {
  Ask ask;
  std::optional<PrivateReads::Lease> into;
  std::optional<ExpertLease> lease;
  absl::Status status;
  const auto lease_of = [&](const PrivateReads::Lease& read) {
    const uint64_t blob_bytes = experts_.layout(ask.key.layer).blob_bytes();
    return MakeLease(RemoteTicket{.is_private = true, .index = read.block}.value(),
                     read.bytes.first(blob_bytes));
  };
  {
    const std::lock_guard lock(mutex_);
    if (private_asks_.empty() || private_blocked_) return;
    ask = private_asks_.front();
    lease = TryLease(ask.key);  // read by an ask before, or in the arena by now
    if (!lease.has_value()) {
      absl::StatusOr<std::optional<PrivateReads::Lease>> taken = private_reads_.Take();
      status = taken.status();
      if (status.ok()) into = *taken;
      private_blocked_ = status.ok() && !into.has_value();
      if (private_blocked_) return;
    }
    private_asks_.pop_front();
  }
  if (into.has_value()) {
    status = experts_.Read(ask.key, into->bytes);
    const std::lock_guard lock(mutex_);
    if (status.ok()) {
      private_reads_.Filled(into->block, ask.key);
      lease = lease_of(*into);
    } else {
      private_reads_.Release(into->block);
    }
  }
  if (lease.has_value()) {
    ask.sink->OnArrival(ask.index, *std::move(lease));
  } else {
    ask.sink->OnArrival(ask.index, status);
  }
}

void RemoteStore::CancelAll() {
  std::vector<Ask> cancelled;
  {
    const std::lock_guard lock(mutex_);
    if (connected_) {
      // Best effort: the end of the socket says the same.
      (void)links_.back().remote->socket().Send(EncodeEmpty(MessageType::kGoodbye, 0));
    }
    for (Ask& ask : asks_) {
      if (ask.sink != nullptr) cancelled.push_back(std::exchange(ask, Ask()));
    }
    cancelled.insert(cancelled.end(), private_asks_.begin(), private_asks_.end());
    private_asks_.clear();
    ask_count_ = 0;
  }
  for (const Ask& ask : cancelled) {
    ask.sink->OnArrival(ask.index, absl::CancelledError("the RAM tier is closing"));
  }
}

}  // namespace hearth
