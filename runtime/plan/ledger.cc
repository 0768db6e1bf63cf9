#include "runtime/plan/ledger.h"

#include "runtime/base/check.h"

namespace hearth {

std::string_view ServiceName(Service service) {
  switch (service) {
    case Service::kVram:
      return "vram";
    case Service::kPcie:
      return "pcie";
    case Service::kCpu:
      return "cpu";
    case Service::kSsd:
      return "ssd";
  }
  HEARTH_CHECK(false);
}

ServiceTotals& ServiceTotals::operator+=(const ServiceTotals& other) {
  distinct += other.distinct;
  entries += other.entries;
  bytes += other.bytes;
  ns += other.ns;
  return *this;
}

ServiceTotals& ServiceTotals::operator-=(const ServiceTotals& other) {
  distinct -= other.distinct;
  entries -= other.entries;
  bytes -= other.bytes;
  ns -= other.ns;
  return *this;
}

ServiceTotals LedgerCounts::total() const {
  ServiceTotals sum;
  for (const ServiceTotals& s : services) sum += s;
  return sum;
}

double LedgerCounts::share(Service service) const {
  const uint64_t all = total().distinct;
  return all == 0 ? 0 : static_cast<double>(of(service).distinct) / static_cast<double>(all);
}

LedgerCounts& LedgerCounts::operator+=(const LedgerCounts& other) {
  for (uint32_t s = 0; s < kServiceCount; ++s) services[s] += other.services[s];
  wait_ns += other.wait_ns;
  passes += other.passes;
  return *this;
}

LedgerCounts& LedgerCounts::operator-=(const LedgerCounts& other) {
  for (uint32_t s = 0; s < kServiceCount; ++s) services[s] -= other.services[s];
  wait_ns -= other.wait_ns;
  passes -= other.passes;
  return *this;
}

void Ledger::Add(LayerId layer, const WindowPlan& plan, const LedgerCounts& counts) {
  HEARTH_CHECK(layer.value < layers_.size());
  const ServiceTotals all = counts.total();
  HEARTH_CHECK(all.distinct == plan.experts.size());
  HEARTH_CHECK(all.entries == plan.entries.size());
  for (const ServiceTotals& s : counts.services) {
    HEARTH_CHECK(s.entries >= s.distinct);  // an expert without an entry is not in the plan
  }
  LedgerCounts& sum = layers_[layer.value];
  const uint64_t passes = sum.passes + 1;
  sum += counts;
  sum.passes = passes;
}

LedgerCounts Ledger::total() const {
  LedgerCounts sum;
  for (const LedgerCounts& layer : layers_) sum += layer;
  return sum;
}

}  // namespace hearth
