#!/usr/bin/env bash
# Builds hearth, the GPU tests and benchmarks for one architecture (default 90), with the libraries
# that they need beside them, into build/gpu-carry; then prints how to run them on a machine that
# has the GPU but not this one's packages.
# usage: tools/gpu_check.sh [ARCHITECTURE]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

architecture=${1:-90}
build=build/gpu-check
carry=build/gpu-carry
parts=(attention dense exchange kernels mixer prompt slots xt)
targets=(hearth backend_cuda_test)
for part in "${parts[@]}"; do targets+=("gpu_${part}_test"); done
for bench in attention dense exchange experts mixer prompt slots xt; do
  targets+=("gpu_${bench}_bench")
done
rm -rf "$carry"
mkdir -p "$carry/lib"
cmake --preset release -B "$build" "-DCMAKE_CUDA_ARCHITECTURES=${architecture}-real"
cmake --build "$build" --target "${targets[@]}"

for target in "${targets[@]}"; do
  program=$(find "$build" -name "$target" -type f -perm -u+x)
  strip -o "$carry/$target" "$program"
  # The C library and its parts belong to the machine that runs the program.
  ldd "$carry/$target" | awk '/=> \// {print $3}' |
    grep -vE '/(libc|libm|libdl|libpthread|librt)\.so' |
    while read -r library; do cp -nL "$library" "$carry/lib/"; done
done
du -sh "$carry"
echo "Carry $carry and the repository (some tests read profiles/flashlet) and run there:"
echo "  export LD_LIBRARY_PATH=\$PWD/$carry/lib"
echo "  for program in $carry/*_test; do \$program; done"
echo "  for program in $carry/*_bench; do \$program; done"
echo "  for tool in memcheck racecheck; do"
echo "    compute-sanitizer --tool \$tool --error-exitcode 1 $carry/gpu_kernels_test"
echo "  done"
