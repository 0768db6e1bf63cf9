// Every kernel of the CpuKernels table, as the benchmark runs it.
#pragma once

#include <vector>

#include "cpu_kernels/bench/bench_shape.h"
#include "cpu_kernels/bench/kernel_workload.h"

namespace hearth {

// All families, weights first. A kernel of the table without a family fails the tests.
std::vector<KernelFamily> AllKernelFamilies(const BenchShape& shape);

// The parts of the catalogue, each in a file of its own.
void AddWeightFamilies(const BenchShape& shape, std::vector<KernelFamily>* families);
void AddElementwiseFamilies(const BenchShape& shape, std::vector<KernelFamily>* families);
void AddMixerFamilies(const BenchShape& shape, std::vector<KernelFamily>* families);

}  // namespace hearth
