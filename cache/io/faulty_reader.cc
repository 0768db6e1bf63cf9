#include "cache/io/faulty_reader.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

#include "runtime/base/prng.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

// Parts are cut at blocks, whatever the inner reader asks for.
constexpr uint64_t kPartAlignBytes = 4096;

}  // namespace

FaultyReader::FaultyReader(std::unique_ptr<Reader> inner, uint64_t seed, const FaultRates& rates,
                           Clock& clock)
    : HoldingReader(std::move(inner), /*in_flight_max=*/0, rates.reorder_count, clock),
      seed_(seed),
      rates_(rates) {}

void FaultyReader::Plan(Held& held) {
  // The draws stand in a fixed order, so that changing one rate leaves the other faults alone.
  Prng prng(SplitMix64(seed_) ^ SplitMix64(~held.number));
  const bool fails = prng.Uniform() < rates_.io_error;
  const bool is_short = prng.Uniform() < rates_.short_read;
  const uint64_t cut_draw = prng.Next();
  const bool is_late = prng.Uniform() < rates_.delay;
  const double delay = prng.Uniform();
  const uint64_t order_draw = prng.Next();
  held.order_key = rates_.reorder_count > 1 ? order_draw : held.number;
  const uint64_t length_bytes = held.request.into.size();
  if (is_late) {
    held.due_ns =
        held.submitted_ns + static_cast<int64_t>(delay * static_cast<double>(rates_.delay_ns_max));
  }
  if (fails) {
    held.status =
        ErrnoStatus(EIO, absl::StrCat("injected fault: read at ", held.request.offset_bytes,
                                      ": wanted ", length_bytes, " bytes, got 0"));
  } else if (is_short && length_bytes > kPartAlignBytes) {
    const uint64_t block_count = (length_bytes - 1) / kPartAlignBytes;
    held.part_bytes = (1 + cut_draw % block_count) * kPartAlignBytes;
  }
}

void FaultyReader::OnLanded(Held& held) {
  const std::span<std::byte> into = held.request.into;
  Prng prng(SplitMix64(seed_ + 1) ^ SplitMix64(~held.number));
  if (into.empty() || prng.Uniform() >= rates_.bit_flip) return;
  const uint64_t bit = prng.Below(into.size() * 8);
  into[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
}

}  // namespace hearth
