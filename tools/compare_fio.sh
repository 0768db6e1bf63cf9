#!/usr/bin/env bash
# Reads the same file with Hearth's io_uring reader and with fio, taking turns, and prints the ratio
# of what both read: same request size, depth, pattern (random multiples of the request size),
# O_DIRECT, registered buffers and file.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: tools/compare_fio.sh --bench FILE [--file FILE] [--bytes N,N] [--depths N,N] [--rounds N]
                            [--seconds N] [--engine io_uring|libaio] [--prefix WORDS]
  --bench    the program cache_io_bench of a build folder
  --file     what is read; without it the bench's own 2 GiB of random bytes under /tmp
  --bytes    request sizes; one expert, a half and a quarter of one by default
  --rounds   turns that each of the two gets, 7 by default; the table has medians of all turns
  --prefix   put before both programs, such as "chrt -f 10" on a machine with other work
fio's memory asks for huge pages, as ours does.
USAGE
}

bench="" file=/tmp/hearth_io_bench.bin sizes=2768896,1384448,692224 depths=1,2,4,8,16,32
rounds=7 seconds=1 engine=io_uring prefix=""
while [ $# -gt 0 ]; do
  case "$1" in
    --bench) bench=$2 ;;
    --file) file=$2 ;;
    --bytes) sizes=$2 ;;
    --depths) depths=$2 ;;
    --rounds) rounds=$2 ;;
    --seconds) seconds=$2 ;;
    --engine) engine=$2 ;;
    --prefix) prefix=$2 ;;
    -h | --help) usage; exit 0 ;;
    *) echo "compare_fio.sh: unknown flag '$1'" >&2; usage >&2; exit 2 ;;
  esac
  shift 2
done
[ -x "$bench" ] || { echo "compare_fio.sh: --bench names no program: '$bench'" >&2; exit 2; }
command -v fio > /dev/null || { echo "compare_fio.sh: fio is missing: install it" >&2; exit 2; }

# The bench writes its own file where there is none.
[ -e "$file" ] || "$bench" --io pread --split 1 --depth 1 --rounds 1 --ms 1 --plain > /dev/null
[ -e "$file" ] || { echo "compare_fio.sh: no file '$file'" >&2; exit 2; }

# GB/s of one run each.
read_with_fio() {
  local uring=()
  [ "$engine" != io_uring ] || uring=(--fixedbufs=1 --registerfiles=1)
  # shellcheck disable=SC2086  # words
  GLIBC_TUNABLES=glibc.malloc.hugetlb=1 $prefix fio --name=read --filename="$file" --readonly \
    --rw=randread --bs="$1" --iodepth="$2" --direct=1 --ioengine="$engine" "${uring[@]}" \
    --norandommap --randrepeat=0 --time_based --runtime="$seconds" --output-format=json |
    python3 -c 'import json, sys
print(json.load(sys.stdin)["jobs"][0]["read"]["bw_bytes"] / 1e9)'
}
read_with_bench() {
  # shellcheck disable=SC2086  # words
  $prefix "$bench" --file "$file" --io uring --split 1 --blob "$1" --depth "$2" --rounds 1 \
    --ms "$((seconds * 1000))" --plain
}

summarise() {
  python3 -c '
import statistics, sys
size, depth, *values = sys.argv[1:]
ours, theirs = [[float(v) for v in values[i::2]] for i in (0, 1)]
turns = [a / b for a, b in zip(ours, theirs)]
print(f"| {int(size):>9,} | {depth:>5} | {statistics.median(ours):6.2f} "
      f"| {statistics.median(theirs):6.2f} | {statistics.median(turns):6.2f} "
      f"| {max(ours):6.2f} | {max(theirs):6.2f} | {max(ours) / max(theirs):6.2f} |")' "$@"
}

echo "| bytes     | depth | Hearth | fio    | ratio  | best   | fio    | ratio  |"
echo "|-----------|-------|--------|--------|--------|--------|--------|--------|"
for size in ${sizes//,/ }; do
  for depth in ${depths//,/ }; do
    values=()
    for _ in $(seq "$rounds"); do
      values+=("$(read_with_bench "$size" "$depth")" "$(read_with_fio "$size" "$depth")")
    done
    summarise "$size" "$depth" "${values[@]}"
  done
done
