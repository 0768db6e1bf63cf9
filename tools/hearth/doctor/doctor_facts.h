// What `hearth doctor` knows of a machine and a pack: plain values, so that tests can make up any
// machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "cache/io/process_limits.h"
#include "gpu_kernels/device/gpu_info.h"
#include "runtime/base/memory_limits.h"
#include "runtime/topology/cpu_quota.h"

namespace hearth::cli {

struct CpuFacts {
  std::string isa;  // that auto chooses: "avx512vbmi", "avx512", "avx2", "scalar"
  uint32_t allowed_cpu_count = 0;
  uint32_t core_count = 0;  // physical, with an allowed CPU
  uint32_t worker_count = 0;
  std::optional<CpuQuota> quota;
  bool pinned = false;
  std::string pin_trouble;        // why not
  double read_bytes_per_sec = 0;  // of DRAM by all workers; 0: not measured
};

struct MemoryFacts {
  std::optional<MemoryLimit> available;
  std::string huge_pages;         // /sys/kernel/mm/transparent_hugepage/enabled: what is chosen
  std::string shared_huge_pages;  // .../shmem_enabled: of the daemon's memory
  LimitValues locked;             // RLIMIT_MEMLOCK
  LimitValues descriptors;        // RLIMIT_NOFILE
};

struct GpuFacts {
  bool in_build = false;  // this program was built with CUDA
  std::string no_gpus;    // why there are none
  uint32_t driver_version = 0;
  uint32_t runtime_version = 0;
  std::vector<GpuInfo> gpus;
  absl::Status pinning;  // of a little memory for the first card; OK too where there is none
};

struct IoFacts {
  absl::Status uring;      // whether a ring can be made
  std::string uring_note;  // why it cannot have its buffers registered
};

struct PackFacts {
  std::string dir;
  absl::Status open;           // sizes, headers and directories
  uint64_t bytes = 0;          // of all files
  uint64_t experts_bytes = 0;  // of experts.bin
  std::string file_system;     // "ext4", "nfs", "0x1234" for one that is not known by name
  bool reads_directly = false;
  std::string not_direct;  // why
  // Where all bytes were read (--deep).
  struct Deep {
    uint64_t bytes_read = 0;
    uint64_t fault_count = 0;
    std::string first_fault;
  };
  std::optional<Deep> deep;
  double read_bytes_per_sec = 0;  // of experts, past the page cache; 0: not measured
};

struct DoctorFacts {
  CpuFacts cpu;
  MemoryFacts memory;
  GpuFacts gpu;
  IoFacts io;
  std::optional<PackFacts> pack;
};

}  // namespace hearth::cli
