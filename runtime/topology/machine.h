// The machine as hwloc sees it: its cores, and where threads are to stay.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "runtime/topology/topology.h"

struct hwloc_topology;

namespace hearth {

// Keeps a thread on a set of CPUs.
class ThreadBinder {
 public:
  virtual ~ThreadBinder() = default;
  virtual absl::Status Bind(std::thread::native_handle_type thread,
                            std::span<const uint32_t> cpus) = 0;
};

class Machine final : public ThreadBinder {
 public:
  // The one at hand. hwloc reads /sys itself; what this class adds to it is read below `root`.
  static absl::StatusOr<std::unique_ptr<Machine>> Read(const std::string& root = "/");
  // Machines that are made up: hwloc's synthetic notation ("numa:2 core:4 pu:2") and its XML.
  // Binding to them does nothing.
  static absl::StatusOr<std::unique_ptr<Machine>> FromSynthetic(const std::string& description);
  static absl::StatusOr<std::unique_ptr<Machine>> FromXml(const std::string& xml);

  // CPUs outside this process's cpuset and CPUs that are offline are not listed. What the system
  // does not tell is taken as equal: one tier, one cache, one memory node.
  const Topology& topology() const { return topology_; }

  absl::Status Bind(std::thread::native_handle_type thread,
                    std::span<const uint32_t> cpus) override;

 private:
  struct Destroy {
    void operator()(hwloc_topology* hwloc) const;
  };
  using Handle = std::unique_ptr<hwloc_topology, Destroy>;
  explicit Machine(Handle hwloc) : hwloc_(std::move(hwloc)) {}
  static absl::StatusOr<Handle> Start();
  static absl::StatusOr<std::unique_ptr<Machine>> Finish(Handle hwloc,
                                                         std::span<const uint32_t> small_cpus);
  void ReadCores(std::span<const uint32_t> small_cpus);

  Handle hwloc_;
  Topology topology_;
};

}  // namespace hearth
