// Records which experts a model chooses: counts for a routing profile and, where asked for, the
// choices themselves as a trace. Used by one thread, the one that runs the passes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

#include "cache/policy/route_trace.h"
#include "cache/policy/routing_profile.h"
#include "runtime/engine/model_runner.h"

namespace hearth {

inline constexpr uint32_t kStatWindowMax = 8;  // tokens

struct RouteRecorderOptions {
  // Tokens that the trace may hold, two bytes for each layer and rank of each; those beyond are
  // counted and not traced. 0: no trace.
  uint64_t trace_tokens_max = 0;
};

class RouteRecorder final : public PassObserver {
 public:
  RouteRecorder(const RoutingIdentity& identity, const RouteRecorderOptions& options);

  // What comes now is a text of its own, of this domain; several texts of one domain add up.
  // ResourceExhausted beyond kProfileDomainsMax domains.
  absl::Status BeginText(std::string_view domain);

  // Rows of a trunk pass count once its last layer has come: a pass that failed leaves no trace.
  // Rows of the MTP layer count up to the number of rows that the trunk has had in this domain
  // (chained drafts would be more). All rows of a pass belong to the text begun last.
  void OnRoutes(LayerId layer, const Routes& routes) override;
  void OnResidual(LayerId, std::span<const float>) override {}

  // Of the domains that have tokens. Valid as long as any has.
  RoutingProfile profile() const;
  const RouteTrace& trace() const { return trace_; }
  uint64_t untraced_token_count() const { return untraced_tokens_; }

  // Distinct experts of a layer in `window` (1 to kStatWindowMax) successive tokens of a pass, on
  // average over the trunk's layers and the domain's windows, which do not overlap; 0 without any.
  double DistinctPerWindow(std::string_view domain, uint32_t window) const;

 private:
  struct Domain {
    ProfileDomain counts;
    uint64_t draft_rows = 0;
    std::array<uint64_t, kStatWindowMax + 1> distinct{};  // by window: summed over layers
    std::array<uint64_t, kStatWindowMax + 1> windows{};   // of one layer
  };
  void AddDrafts(const Routes& routes);
  void EndPass();
  void CountWindows(Domain& domain);
  uint64_t DistinctIn(uint32_t layer, uint32_t row_begin, uint32_t row_count);

  const RoutingIdentity identity_;
  const RouteRecorderOptions options_;
  std::vector<Domain> domains_;
  size_t domain_ = 0;
  bool text_begins_ = false;  // the next traced token does
  RouteTrace trace_;
  uint64_t untraced_tokens_ = 0;
  std::vector<uint16_t> pass_;  // (rows, layers, ranks) of the pass at hand
  uint32_t pass_rows_ = 0;
  uint32_t pass_layers_ = 0;    // how many of its layers have come
  std::vector<uint32_t> seen_;  // (experts): the number of the window that saw it last
  uint32_t window_number_ = 0;
};

struct RecordOptions {
  uint32_t context_tokens_max = 8192;  // longer texts are read in parts that begin afresh
  std::function<void(uint64_t done_tokens)> progress;
};

// Reads `tokens` as a text of `domain`, through the trunk and the MTP layer if there is one, as a
// prompt is read. Takes the runner's observer for that time.
absl::Status RecordText(ModelRunner& runner, RouteRecorder& recorder, std::string_view domain,
                        std::span<const TokenId> tokens, const RecordOptions& options);

}  // namespace hearth
