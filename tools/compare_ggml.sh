#!/usr/bin/env bash
# Compares Hearth's NVFP4 kernels with ggml-cpu's on this machine: fetches the source package that
# contains ggml from PyPI into FOLDER (outside this tree), builds it there for this processor and
# prints the ratios. Needs the network once; nothing of ggml comes into the tree.
# usage: tools/compare_ggml.sh FOLDER [TURNS]
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

folder=${1:?usage: tools/compare_ggml.sh FOLDER [TURNS]}
turns=${2:-301}
version=0.3.36
package=llama_cpp_python-$version
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
if [[ ! -d $folder/$package ]]; then
  pip download --quiet --no-binary :all: --no-deps --dest "$folder" "llama-cpp-python==$version"
  tar -xzf "$folder/$package.tar.gz" -C "$folder"
fi
cmake -S "$repository/cpu_kernels/bench/compare_ggml" -B "$folder/build" -G Ninja \
  -DCMAKE_BUILD_TYPE=Release "-DGGML_DIR=$folder/$package/vendor/llama.cpp/ggml" \
  >"$folder/cmake.log"
cmake --build "$folder/build" --target compare_ggml >"$folder/build.log"
core=$(taskset -pc $$ | sed 's/.*[ ,-]//')  # the last of the allowed ones
taskset -c "$core" "$folder/build/compare_ggml" "$turns"
