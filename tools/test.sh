#!/usr/bin/env bash
# Installs what the tests need, then runs them. Flags are those of tests/run.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

setup_flag=--test
for flag in "$@"; do
  [ "$flag" != --full ] || setup_flag=--full
done
bash tools/setup.sh "$setup_flag"
exec bash tests/run.sh "$@"
