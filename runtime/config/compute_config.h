// How the model is computed, whatever for: arithmetic, instruction set, threads, chunks.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/base/arithmetic.h"
#include "runtime/config/field.h"

namespace hearth {

constexpr std::array<EnumEntry<Arithmetic>, 2> EnumEntriesOf(Arithmetic) {
  return {{{Arithmetic::kReference, "reference"}, {Arithmetic::kFast, "fast"}}};
}

enum class CpuIsaChoice { kAuto, kScalar, kAvx2, kAvx512, kAvx512Vbmi };

constexpr std::array<EnumEntry<CpuIsaChoice>, 5> EnumEntriesOf(CpuIsaChoice) {
  return {{{CpuIsaChoice::kAuto, "auto"},
           {CpuIsaChoice::kScalar, "scalar"},
           {CpuIsaChoice::kAvx2, "avx2"},
           {CpuIsaChoice::kAvx512, "avx512"},
           {CpuIsaChoice::kAvx512Vbmi, "avx512vbmi"}}};
}

enum class KvChoice { kBf16, kInt8 };

constexpr std::array<EnumEntry<KvChoice>, 2> EnumEntriesOf(KvChoice) {
  return {{{KvChoice::kBf16, "bf16"}, {KvChoice::kInt8, "int8"}}};
}

// Where the dense path runs.
struct DeviceSetting {
  enum class Kind : uint8_t {
    kAuto,  // a card that will do, else the CPU
    kCpu,
    kCuda  // a card, or an error
  };
  Kind kind = Kind::kAuto;
  std::optional<uint32_t> index;  // of the card in CUDA's order; none: the one with most memory
};
// "auto", "cpu", "cuda" or "cuda:1".
absl::StatusOr<DeviceSetting> ParseDevice(std::string_view text);

// How many workers and where: one way of saying it.
absl::Status ValidateWorkers(const GivenFields& given, std::string_view cpus);

struct ComputeConfig {
  std::string device = "auto";  // read by ParseDevice
  KvChoice kv = KvChoice::kBf16;
  Arithmetic arithmetic = Arithmetic::kFast;
  CpuIsaChoice cpu_isa = CpuIsaChoice::kAuto;
  uint32_t threads = 0;
  std::string cpus;
  uint32_t prompt_chunk_tokens = 0;  // 0: as the device likes
  bool ngram_in_memory = false;      // a token reads 16 rows of it: the file serves well

  template <class Visitor>
  void Visit(Visitor&& v) {
    v.Group("compute");
    v("device", device, "where the dense path runs", {.metavar = "auto|cpu|cuda[:N]"});
    v("kv", kv, "keys and values on a card; int8 is lossy");
    v("arithmetic", arithmetic, "fp32 for checking, or int8 activations");
    v("cpu_isa", cpu_isa, "same answer");
    v("threads", threads, "workers, 0 = one per core", {.minimum = 0, .maximum = 1024});
    v("cpus", cpus, "one worker on each instead, as 0-3,8", {.metavar = "LIST"});
    v("prompt_chunk_tokens", prompt_chunk_tokens, "tokens read at once, 0 = as the device likes",
      {.minimum = 0, .maximum = 4096});
    v("ngram_in_memory", ngram_in_memory, "load the n-gram table whole");
  }

  // Forms, workers named twice, and fields without effect on the device asked for.
  absl::Status Validate(const GivenFields& given) const;
};

}  // namespace hearth
