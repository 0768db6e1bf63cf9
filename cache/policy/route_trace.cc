#include "cache/policy/route_trace.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "cache/policy/trace_format.h"
#include "runtime/base/check.h"
#include "runtime/base/crc32c.h"
#include "runtime/base/load.h"
#include "runtime/base/status.h"

namespace hearth {
namespace {

using Hash = std::array<char, 32>;

Hash HashBytes(std::string_view digits) {
  Hash hash{};
  HEARTH_CHECK(digits.empty() || digits.size() == hash.size());
  std::ranges::copy(digits, hash.begin());
  return hash;
}

bool IsHexDigit(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// Empty for zeros; nullopt-like failure is `ok` false.
std::string HashText(const Hash& hash, bool& ok) {
  if (std::ranges::all_of(hash, [](char c) { return c == 0; })) return "";
  ok = ok && std::ranges::all_of(hash, IsHexDigit);
  return {hash.begin(), hash.end()};
}

// What is wrong with a field of the header, for a message.
absl::Status Wrong(const std::string& path, absl::string_view key, uint64_t found,
                   absl::string_view expected) {
  return absl::DataLossError(absl::StrCat(path, ": ", key, ": found ", found, ", expected ",
                                          expected, "; record or import the trace again"));
}

struct Range {
  absl::string_view key;
  uint64_t value;
  uint64_t minimum;
  uint64_t maximum;
};

absl::Status CheckHeader(const TraceHeader& h, const std::string& path) {
  if (h.magic != kTraceMagic) {
    return absl::DataLossError(
        absl::StrCat(path, ": is not a trace of Hearth: it does not begin ", "with HRTROUTE"));
  }
  if (h.version != kTraceVersion) {
    return Wrong(path, "version", h.version, absl::StrCat("version ", kTraceVersion));
  }
  const Range ranges[] = {
      {"flags", h.flags, 0, kTraceHasMtp},
      {"layer_count", h.layer_count, 1, kTraceLayersMax},
      {"expert_count", h.expert_count, 1, kTraceExpertsMax},
      {"ranks", h.ranks, 1, std::min(kTraceRanksMax, h.expert_count)},
      {"reserved", h.reserved, 0, 0},
      {"text_count", h.text_count, h.token_count == 0 ? 0u : 1u, h.token_count}};
  for (const Range& r : ranges) {
    if (r.value < r.minimum || r.value > r.maximum) {
      return Wrong(path, r.key, r.value, absl::StrCat(r.minimum, " to ", r.maximum));
    }
  }
  return absl::OkStatus();
}

// The length that the header announces is that of the file. Nothing overflows: a count that could
// is above what so many bytes hold.
absl::Status CheckLength(const TraceHeader& h, uint64_t file_bytes, const std::string& path) {
  const uint64_t token_bytes = uint64_t{h.layer_count} * h.ranks * sizeof(uint16_t);
  const uint64_t rest = file_bytes - sizeof(TraceHeader);
  const bool holds = h.text_count <= rest / sizeof(uint64_t) && h.token_count <= rest / token_bytes;
  const uint64_t wanted = holds ? sizeof(TraceHeader) + h.text_count * sizeof(uint64_t) +
                                      h.token_count * token_bytes + sizeof(uint32_t)
                                : 0;
  if (holds && wanted == file_bytes) return absl::OkStatus();
  return Wrong(
      path, "bytes", file_bytes,
      holds ? absl::StrCat(wanted, " for ", h.token_count, " tokens of ", h.text_count, " texts")
            : absl::StrCat("more, for ", h.token_count, " tokens of ", h.text_count, " texts"));
}

absl::Status CheckTexts(const RouteTrace& trace, uint64_t token_count, const std::string& path) {
  for (size_t i = 0; i < trace.text_begins.size(); ++i) {
    const uint64_t begin = trace.text_begins[i];
    const bool good = i == 0 ? begin == 0 : begin > trace.text_begins[i - 1] && begin < token_count;
    if (good) continue;
    return Wrong(path, absl::StrCat("text_begins[", i, "]"), begin,
                 i == 0 ? "0"
                        : absl::StrCat("more than ", trace.text_begins[i - 1], " and less than ",
                                       token_count));
  }
  return absl::OkStatus();
}

absl::Status CheckRoutes(const RouteTrace& trace, const std::string& path) {
  const uint32_t ranks = trace.identity.ranks;
  for (size_t i = 0; i < trace.routes.size(); i += ranks) {
    const std::span<const uint16_t> chosen = std::span(trace.routes).subspan(i, ranks);
    for (size_t r = 0; r < ranks; ++r) {
      const uint16_t expert = chosen[r];
      const bool again = std::ranges::find(chosen.first(r), expert) != chosen.begin() + r;
      if (expert < trace.identity.expert_count && !again) continue;
      const size_t per_token = size_t{trace.identity.layer_count} * ranks;
      return Wrong(path,
                   absl::StrFormat("routes[token %d][layer %d][rank %d]", i / per_token,
                                   i % per_token / ranks, r),
                   expert,
                   again ? "an expert that no better rank has"
                         : absl::StrCat("an expert below ", trace.identity.expert_count));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::byte> RouteTrace::Serialise() const {
  const TraceHeader header{.magic = kTraceMagic,
                           .version = kTraceVersion,
                           .flags = identity.has_mtp ? kTraceHasMtp : 0,
                           .layer_count = identity.layer_count,
                           .expert_count = identity.expert_count,
                           .ranks = identity.ranks,
                           .reserved = 0,
                           .token_count = token_count(),
                           .text_count = text_begins.size(),
                           .model_xxh3_128 = HashBytes(identity.model_xxh3_128),
                           .tokenizer_xxh3_128 = HashBytes(identity.tokenizer_xxh3_128)};
  const uint64_t body_bytes =
      sizeof(header) + text_begins.size() * sizeof(uint64_t) + routes.size() * sizeof(uint16_t);
  std::vector<std::byte> bytes(body_bytes + sizeof(uint32_t));
  std::span<std::byte> rest(bytes);
  const auto put = [&rest](std::span<const std::byte> part) {
    std::ranges::copy(part, rest.begin());
    rest = rest.subspan(part.size());
  };
  put(std::as_bytes(std::span(&header, 1)));
  put(std::as_bytes(std::span(text_begins)));
  put(std::as_bytes(std::span(routes)));
  const uint32_t crc = Crc32c(std::span(bytes).first(body_bytes));
  put(std::as_bytes(std::span(&crc, 1)));
  return bytes;
}

absl::StatusOr<RouteTrace> RouteTrace::Parse(std::span<const std::byte> bytes,
                                             const std::string& path) {
  if (bytes.size() < sizeof(TraceHeader) + sizeof(uint32_t)) {
    return Wrong(path, "bytes", bytes.size(),
                 absl::StrCat("at least ", sizeof(TraceHeader) + sizeof(uint32_t)));
  }
  const auto header = Load<TraceHeader>(bytes.data());
  HEARTH_RETURN_IF_ERROR(CheckHeader(header, path));
  HEARTH_RETURN_IF_ERROR(CheckLength(header, bytes.size(), path));
  const auto body = bytes.first(bytes.size() - sizeof(uint32_t));
  const auto expected = Load<uint32_t>(body.data() + body.size());
  if (const uint32_t found = Crc32c(body); found != expected) {
    return absl::DataLossError(absl::StrFormat(
        "%s: crc32c: found %08x, expected %08x: the file is damaged; record or import the trace "
        "again",
        path, found, expected));
  }
  RouteTrace trace;
  bool hashes_ok = true;
  trace.identity = {.model_xxh3_128 = HashText(header.model_xxh3_128, hashes_ok),
                    .tokenizer_xxh3_128 = HashText(header.tokenizer_xxh3_128, hashes_ok),
                    .layer_count = header.layer_count,
                    .has_mtp = header.flags == kTraceHasMtp,
                    .expert_count = header.expert_count,
                    .ranks = header.ranks};
  if (!hashes_ok) {
    return absl::DataLossError(absl::StrCat(
        path, ": a hash is neither 32 lower-case hex digits nor zeros; record the trace again"));
  }
  const std::byte* at = body.data() + sizeof(TraceHeader);
  trace.text_begins.resize(header.text_count);
  trace.routes.resize(header.token_count * header.layer_count * header.ranks);
  if (!trace.routes.empty()) {
    const size_t text_bytes = trace.text_begins.size() * sizeof(uint64_t);
    std::memcpy(trace.text_begins.data(), at, text_bytes);
    std::memcpy(trace.routes.data(), at + text_bytes, trace.routes.size() * sizeof(uint16_t));
  }
  HEARTH_RETURN_IF_ERROR(CheckTexts(trace, header.token_count, path));
  HEARTH_RETURN_IF_ERROR(CheckRoutes(trace, path));
  return trace;
}

}  // namespace hearth
