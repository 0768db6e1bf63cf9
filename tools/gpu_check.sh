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
cmake --preset cuda -B "$build" "-DCMAKE_CUDA_ARCHITECTURES=${architecture}-real" >"build/gpu-check.log"
cmake --build "$build" --target gpu_kernels_test gpu_experts_bench hearth

mkdir -p "$carry/lib"
for program in tests/gpu_kernels/gpu_kernels_test tests/gpu_kernels/gpu_experts_bench tools/hearth/hearth; do
  cp "$build/$program" "$carry/"
  strip "$carry/$(basename "$program")"
  # The C library and its parts belong to the machine that runs the program.
  ldd "$build/$program" | awk '/=> \// {print $3}' |
    grep -vE '/(libc|libm|libdl|libpthread|librt)\.so' |
    while read -r library; do cp -L "$library" "$carry/lib/"; done
done
du -sh "$carry"
echo "carry $carry and run there:"
echo "  LD_LIBRARY_PATH=$carry/lib $carry/gpu_kernels_test"
echo "  LD_LIBRARY_PATH=$carry/lib $carry/gpu_experts_bench"
echo "  LD_LIBRARY_PATH=$carry/lib $carry/hearth devices"
