#!/usr/bin/env bash
# Builds and runs the tests. The last line says "N passed, N failed" and, when any, "N skipped";
# the exit code is 0 only when nothing failed.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'EOT'
usage: tests/run.sh [--full] [--stage NAME]...
  (no flag)     stages release, lint, asan
  --full        and clang, tsan, fuzz (60 seconds of every fuzzer)
  --stage NAME  only this one; may be given several times
EOT
}

known_stages=(release lint asan clang tsan fuzz)
stages=(release lint asan)
chosen=()
while [ "$#" -gt 0 ]; do
  case "$1" in
    --full) stages=("${known_stages[@]}") ;;
    --stage)
      shift
      if [[ " ${known_stages[*]} " != *" ${1-} "* ]]; then
        echo "run.sh: unknown stage '${1-}', expected one of: ${known_stages[*]}" >&2
        exit 2
      fi
      chosen+=("$1")
      ;;
    -h | --help) usage; exit 0 ;;
    *) echo "run.sh: unknown flag '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift
done
[ "${#chosen[@]}" -eq 0 ] || stages=("${chosen[@]}")

jobs=$(nproc)
fuzz_seconds=60
results="$PWD/build/test-results"  # one file per stage, for tests/sum_results.py
rm -rf "$results"
mkdir -p "$results"
export CTEST_OUTPUT_ON_FAILURE=1
export GLIBC_TUNABLES=glibc.malloc.hugetlb=1  # first touches of 4 KiB pages are dear on small VMs
export UBSAN_OPTIONS=print_stacktrace=1
export GTEST_COLOR=no

# report NAME passed|failed TEXT: one result that no test program counts by itself.
report() { printf '%s\t%s\n' "$2" "$3" >>"$results/$1.txt"; }

build() {  # build PRESET [TARGET]...
  local preset=$1
  shift
  if ! cmake --preset "$preset" >"build/$preset-configure.log" 2>&1; then
    tail -n 20 "build/$preset-configure.log" >&2
  elif cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"}; then
    report "$preset" passed "build $preset"
    return 0
  fi
  report "$preset" failed "build $preset"
  return 1
}

run_ctest() {  # run_ctest PRESET [ctest flags]
  local preset=$1
  shift
  ctest --preset "$preset" -j "$jobs" --output-junit "$results/$preset.xml" --no-tests=error \
    --test-output-size-passed 33554432 --test-output-size-failed 33554432 "$@"
  [ -s "$results/$preset.xml" ] || report "$preset" failed "ctest $preset wrote no results"
}

stage_release() { build release && run_ctest release; }
stage_asan() { build asan && run_ctest asan -L unit; }
stage_clang() { build clang && run_ctest clang; }
stage_tsan() { build tsan && run_ctest tsan -L unit; }
stage_lint() { python3 tests/lint/lint.py --summary "$results/lint.json"; }

run_fuzzer() {  # run_fuzzer PROGRAM: new inputs stay below build/, crashes are named there
  local program=$1 name corpus found log
  name=$(basename "$program" _fuzz)
  corpus="$PWD/tests/fuzz/corpus/$name"
  found="$PWD/build/fuzz-found/$name"
  log="$results/fuzz-$name.log"
  mkdir -p "$found"
  local inputs=("$found")
  [ ! -d "$corpus" ] || inputs+=("$corpus")
  "$program" -max_total_time="$fuzz_seconds" -timeout=20 -rss_limit_mb=2048 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="$found/" "${inputs[@]}" >"$log" 2>&1
  local code=$?
  if [ "$name" != canary ] && [ ! -d "$corpus" ]; then
    report "fuzz-$name" failed "fuzz $name: no seeds in tests/fuzz/corpus/$name"
    return
  fi
  if [ "$name" = canary ]; then  # must crash: proves that a crash is seen
    [ "$code" -ne 0 ] && code=0 || code=1
    rm -rf "$found"
  fi
  if [ "$code" -eq 0 ]; then
    report "fuzz-$name" passed "fuzz $name"
  else
    report "fuzz-$name" failed "fuzz $name: see $log"
    tail -n 30 "$log" >&2
  fi
}

stage_fuzz() {
  build fuzz fuzzers || return
  local programs
  mapfile -t programs < <(find build/fuzz -type f -name '*_fuzz' -perm -u+x | sort)
  local program
  for program in "${programs[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n; done
    run_fuzzer "$program" &
  done
  wait
}

for stage in "${stages[@]}"; do
  echo "=== $stage"
  started=$SECONDS
  "stage_$stage"
  echo "=== $stage took $((SECONDS - started)) s"
done
echo "=== all stages took $SECONDS s"
exec python3 tests/sum_results.py "$results"
