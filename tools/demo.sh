#!/usr/bin/env bash
# From a clone to an answer: sets up, builds, packs the model that ships with the project, verifies
# the pack and answers a prompt, with the speed beside what the memory's bandwidth would allow.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

model=profiles/flashlet
pack=build/demo/flashlet.pack
answer=build/demo/answer.json
cached=build/demo/cached.json
prompt="Write a Python function named \`is_empty\`. Return True if the queue is empty."
hearth=build/release/tools/hearth/hearth

step() { printf '\n--- %s\n' "$*"; }

step "setting up"
bash tools/setup.sh

step "building hearth"
mkdir -p build/demo
if ! cmake --preset release >build/demo/configure.log 2>&1; then
  cat build/demo/configure.log >&2
  exit 1
fi
cmake --build --preset release -j "$(nproc)" --target hearth

# A pack is current while nothing of the model, of the packing code or of this script is newer.
pack_is_current() {
  [ -f "$pack/manifest.json" ] || return 1
  [ -z "$(find "$model" pack tools/demo.sh -newer "$pack/manifest.json" -type f -print -quit)" ]
}

if pack_is_current; then
  step "packing $model: $pack is up to date"
else
  step "packing $model"
  rm -rf "$pack"
  "$hearth" pack build --from "$model" --out "$pack"
fi

step "verifying every byte of the pack"
"$hearth" pack verify --pack "$pack"

step "asking: $prompt"
"$hearth" run --pack "$pack" --chat --prompt "$prompt" --max-tokens 160 --json >"$answer"
python3 tools/demo_summary.py "$answer"

step "asking again with 40% of the experts in slots and a third of them in RAM"
"$hearth" run --pack "$pack" --chat --prompt "$prompt" --max-tokens 160 --slots 40% \
  --ram-budget 6MiB --json >"$cached"
python3 tools/demo_summary.py "$answer" --cached "$cached"
