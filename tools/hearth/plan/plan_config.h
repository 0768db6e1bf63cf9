// What `hearth plan` is asked: its flags, and what they say.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "pack/format/expert_layout.h"
#include "pack/format/geometry.h"
#include "runtime/config/field.h"

namespace hearth::cli {

struct PlanConfig {
  std::string pack;
  std::string model = "flash-next";
  std::string quant = "nvfp4,xt4,xt3,xt2";
  std::string profile;
  std::string device = "auto";
  std::string drive;
  std::optional<uint64_t> ram_budget;
  std::optional<uint64_t> vram_reserve;
  uint32_t context_tokens = 8192;
  uint32_t threads = 0;
  std::string cpus;

  template <class Visitor>
  void Visit(Visitor&& v) {
    v("pack", pack, "plan for this pack, in its own formats", {.metavar = "DIR"});
    v("model", model, "its shape, without a pack", {.metavar = "flash-next|flashlet|small"});
    v("quant", quant, "of its experts", {.metavar = "nvfp4,xt3,.."});
    v("profile", profile, "of routing: how often experts are chosen", {.metavar = "FILE"});
    v("device", device, "cpu leaves a card out", {.metavar = "auto|cpu"});
    v("drive", drive, "to measure: a large file, or a folder, where 256 MiB are written",
      {.metavar = "FILE|DIR"});
    v("ram_budget", ram_budget, "of RAM; none: all that is free", {.metavar = "SIZE"});
    v("vram_reserve", vram_reserve, "of the card's memory that slots leave free",
      {.metavar = "SIZE"});
    v("context_tokens", context_tokens, "of one sequence", {.minimum = 1, .maximum = 1 << 20});
    v("threads", threads, "workers, 0 = one per core", {.minimum = 0, .maximum = 1024});
    v("cpus", cpus, "one worker on each instead, as 0-3,8", {.metavar = "LIST"});
  }

  // Forms, and fields without effect.
  absl::Status Validate(const GivenFields& given) const;
};

struct Quantisation {
  ExpertFormat format = ExpertFormat::kNvfp4;
  XtBits bits;
};

// "nvfp4,xt3"; InvalidArgument says what is accepted.
absl::StatusOr<std::vector<Quantisation>> ParseQuantisations(const std::string& text);
absl::StatusOr<ModelGeometry> GeometryOf(const std::string& model);

}  // namespace hearth::cli
