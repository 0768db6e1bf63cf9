#!/usr/bin/env bash
# Installs what the tests need, then runs them. Flags are those of tests/run.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

setup_flag=--test
for flag in "$@"; do
  [ "$flag" != --full ] || setup_flag=--full
done
bash tools/setup.sh "$setup_flag"
if ! bash tools/setup.sh --clients; then
  echo "test.sh: PyPI gave no clients of OpenAI and Anthropic: their test is skipped, by name" >&2
fi
exec bash tests/run.sh "$@"
