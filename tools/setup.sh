#!/usr/bin/env bash
# Installs what Hearth builds with on Debian 12: compilers, libraries and, with --test, the oracles
# of the tests. Re-running it on a machine that has everything takes a second and asks no registry.
set -euo pipefail

usage() {
  cat <<'EOF'
usage: tools/setup.sh [--test] [--full] [--clients]
  (no flag)  what the build needs
  --test     and what tests/run.sh needs (lint and oracle packages)
  --full     and what tests/run.sh --full needs (clang 19 with sanitizers and libFuzzer)
  --clients  and the openai and anthropic packages from PyPI, into build/clients (for
             tests/tools/hearth/serve_clients_test.py)
EOF
}

packages=(
  g++ cmake ninja-build ccache pkg-config
  libabsl-dev nlohmann-json3-dev libsimdjson-dev libcli11-dev libtomlplusplus-dev
  libspdlog-dev libfmt-dev
  libxxhash-dev libpcre2-dev libutf8proc-dev libcpp-httplib-dev libncurses-dev
  libboost1.81-dev libssl-dev
  liburing-dev libhwloc-dev libtbb-dev libmimalloc-dev
  libgtest-dev libgmock-dev libbenchmark-dev python3 python3-numpy
)
test_packages=(curl openssl python3-jinja2 clang-format-14)
client_packages=("openai==3.57.0" "anthropic==2.14.0")
full_packages=(clang-19 clang-tidy-19 clang-format-19 lld-19 libclang-rt-19-dev)

clients=0
for flag in "$@"; do
  case "$flag" in
    --test) packages+=("${test_packages[@]}") ;;
    --full) packages+=("${test_packages[@]}" "${full_packages[@]}") ;;
    --clients)
      packages+=(python3-venv)
      clients=1
      ;;
    -h | --help) usage; exit 0 ;;
    *) echo "setup.sh: unknown flag '$flag'" >&2; usage >&2; exit 2 ;;
  esac
done

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null || true)
  [ "$status" = "install ok installed" ] || missing+=("$package")
done
run_as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }
if [ "${#missing[@]}" -eq 0 ]; then
  echo "setup: everything is installed" >&2
else
  echo "setup: installing ${missing[*]}" >&2
  export DEBIAN_FRONTEND=noninteractive
  run_as_root apt-get update -qq
  run_as_root apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
fi

if [ "$clients" -eq 1 ]; then
  folder="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/build/clients"
  if [ "$(cat "$folder/packages.txt" 2>/dev/null)" != "${client_packages[*]}" ]; then
    echo "setup: installing ${client_packages[*]} into $folder" >&2
    python3 -m venv --clear "$folder"
    "$folder/bin/pip" install --quiet --disable-pip-version-check "${client_packages[@]}" >&2
    echo "${client_packages[*]}" >"$folder/packages.txt"
  fi
fi
