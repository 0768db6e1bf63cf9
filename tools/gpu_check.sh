#!/usr/bin/env bash
# Builds the GPU tests and benchmark for one architecture (default 90), with the libraries that they
# need beside them, into build/gpu-carry; then prints how to run them on a machine that has the GPU
# but not this one's packages.
# usage: tools/gpu_check.sh [ARCHITECTURE]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

architecture=${1:-90}
build=build/gpu-check
carry=build/gpu-carry
rm -rf "$carry"
mkdir -p "$carry/lib"
cmake --preset cuda -B "$build" "-DCMAKE_CUDA_ARCHITECTURES=${architecture}-real"
cmake --build "$build" --target gpu_kernels_test gpu_experts_bench

for program in gpu_kernels_test gpu_experts_bench; do
  strip -o "$carry/$program" "$build/tests/gpu_kernels/$program"
  # The C library and its parts belong to the machine that runs the program.
  ldd "$carry/$program" | awk '/=> \// {print $3}' |
    grep -vE '/(libc|libm|libdl|libpthread|librt)\.so' |
    while read -r library; do cp -L "$library" "$carry/lib/"; done
done
du -sh "$carry"
echo "Carry $carry and run there:"
echo "  export LD_LIBRARY_PATH=\$PWD/$carry/lib"
echo "  $carry/gpu_kernels_test && $carry/gpu_experts_bench --benchmark_counters_tabular=true"
echo "  for tool in memcheck racecheck; do"
echo "    compute-sanitizer --tool \$tool --error-exitcode 1 $carry/gpu_kernels_test"
echo "  done"
