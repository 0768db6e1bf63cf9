#!/usr/bin/env python3
"""Hit rates of the VRAM slots on the texts of a folder, each with a profile of all other texts and
without one: of the first 250 tokens and of those after 2,000. Prints a Markdown table.

usage: flashlet_hits.py HEARTH PACK TEXT_DIR [--slots 40%] [--window 4] [--policy NAME]
"""

import argparse
import json
import pathlib
import subprocess
import tempfile


def hearth(binary, *args):
    done = subprocess.run([binary, *map(str, args)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    return done.stdout


def rate(hits, begin, end):
    """Of the experts between two token counts, the share that was in a slot."""
    steps = [h for h in hits if begin < h["tokens"] <= end]
    distinct = sum(h["distinct"] for h in steps)
    return sum(h["distinct"] * h["hit_rate"] for h in steps) / distinct if distinct else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("hearth")
    parser.add_argument("pack")
    parser.add_argument("text_dir", type=pathlib.Path)
    parser.add_argument("--slots", default="40%")
    parser.add_argument("--window", default=4, type=int)
    parser.add_argument("--policy", default="forecast")
    args = parser.parse_args()
    texts = sorted(args.text_dir.glob("*.txt"))
    with tempfile.TemporaryDirectory() as temp:
        temp = pathlib.Path(temp)
        for text in texts:
            hearth(args.hearth, "profile", "--pack", args.pack, "--text", text, "--out",
                   temp / f"{text.stem}.json")
        print("| text | first 250 tokens | after 2,000 | with a profile: first 250 | after 2,000 |")
        print("| --- | --- | --- | --- | --- |")
        for text in texts:
            others = [f"--profile={temp / (t.stem + '.json')}" for t in texts if t != text]
            merged = temp / "others.json"
            merged.unlink(missing_ok=True)
            hearth(args.hearth, "profile", "merge", *others, "--out", merged)
            cells = []
            for profile in ((), ("--profile", merged)):
                score = json.loads(hearth(
                    args.hearth, "score", "--pack", args.pack, "--text", text, "--window",
                    args.window, "--slots", args.slots, "--policy", args.policy, "--stats",
                    "--tokens-max", 4000, "--json", *profile))
                # The step that ends just past a multiple of 250 belongs to it.
                for begin, end in ((0, 260), (2000, 1 << 60)):
                    value = rate(score["hits"], begin, end)
                    cells.append("" if value is None else f"{100 * value:.1f}%")
            print(f"| {text.stem} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
