#!/usr/bin/env python3
"""Compares Hearth's tokenizer with the package `tokenizers`, id for id, over variants of one file.

usage: tokenizer_oracle.py DUMP [--tokenizer FILE] [--eval DIR] [--strings COUNT] [--seed SEED]
                           [--variant NAME]...
DUMP is the built tests/runtime/model/tokenizer/tokenizer_dump. Without the package it says so and
succeeds. The texts: whole evaluation texts, COUNT random Unicode strings and COUNT random byte
strings, long runs, and, once for each split pattern, every code point between letters, digits,
spaces and quotation marks."""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import tokenizer_texts as texts

ROOT = pathlib.Path(__file__).resolve().parents[2]


def every_code_point():
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for begin in range(0, len(points), 64):
        group = [chr(c) for c in points[begin : begin + 64]]
        yield "".join(group)
        yield "".join(
            "a" + c + "b1" + c + " " + c + " '" + c + "q\u0323" + c + "\u0301" for c in group
        )


def all_texts(arguments):
    """Yields (label, bytes)."""
    folder = pathlib.Path(arguments.eval)
    for path in sorted(folder.glob("*.txt")) if folder.is_dir() else []:
        yield path.name, path.read_bytes()
    for text in texts.edge_texts():
        yield "edge", text.encode()
    for unit, count in texts.run_texts():
        yield "run", (unit * count).encode()
    rng = texts.new_rng(arguments.seed)
    by_category = texts.code_points_by_category()
    for _ in range(arguments.strings):
        yield "unicode", texts.random_unicode(rng, by_category).encode()
    for _ in range(arguments.strings):
        yield "bytes", texts.random_bytes(rng)
    for text in every_code_point():
        yield "code points", text.encode()


def compare(name, variant, mode, inputs, dump):
    from tokenizers import Tokenizer

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(variant, file)
        file.flush()
        command = [dump, file.name] + (["text"] if mode == "text" else [])
        lines = "".join(data.hex() + "\n" for _, data in inputs)
        result = subprocess.run(command, input=lines, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        print(f"{name}: tokenizer_dump failed: {result.stderr.strip()}")
        return 1
    if mode == "text":
        variant = dict(variant, added_tokens=[])
    oracle = Tokenizer.from_str(json.dumps(variant))
    mapped_contents = any(not t["content"].isascii() for t in variant["added_tokens"])
    wrong = 0
    answers = result.stdout.splitlines()
    if len(answers) != len(inputs):
        print(f"{name}: {len(inputs)} texts, {len(answers)} answers")
        return 1
    for (label, data), answer in zip(inputs, answers):
        got = json.loads(answer)
        text = data.decode("utf-8", errors="replace")
        want = oracle.encode(text, add_special_tokens=False).ids
        same = got["ids"] == want
        # The reference decodes an added token through the byte alphabet too; Hearth gives its
        # content.
        if not mapped_contents:
            whole = oracle.decode(want, skip_special_tokens=False)
            plain = oracle.decode(want, skip_special_tokens=True)
            same &= bytes.fromhex(got["text"]).decode() == whole
            if mode == "parse":
                same &= bytes.fromhex(got["plain"]).decode() == plain
        if not same:
            wrong += 1
            if wrong <= 3:
                print(
                    f"{name}: {label}: {text[:80]!a}\n  want {want[:40]}\n  got  {got['ids'][:40]}"
                )
    return wrong


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dump")
    parser.add_argument("--tokenizer", default=str(ROOT / "profiles/flashlet/tokenizer.json"))
    parser.add_argument("--eval", default="/work/shared/flashlet/eval")
    parser.add_argument("--strings", type=int, default=10000)
    parser.add_argument("--variant", action="append", help="only this one; may come several times")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        import tokenizers
    except ImportError:
        print("skipped: tokenizers not installed")
        return 0
    base = json.loads(pathlib.Path(arguments.tokenizer).read_text(encoding="utf-8"))
    inputs = list(all_texts(arguments))
    total = 0
    for name, (variant, mode) in texts.variants(base).items():
        if arguments.variant and name not in arguments.variant:
            continue
        chosen = inputs
        if name not in ("flashlet", "qwen", "gpt2"):  # the three split patterns
            chosen = [i for i in chosen if i[0] != "code points"]
        if name.startswith("whole"):  # one piece of a long text takes the reference minutes
            chosen = [i for i in chosen if len(i[1]) < 3000]
        wrong = compare(name, variant, mode, chosen, arguments.dump)
        print(
            f"{name}: {len(chosen)} texts, {wrong} differences "
            f"(tokenizers {tokenizers.__version__})",
            flush=True,
        )
        total += wrong
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
