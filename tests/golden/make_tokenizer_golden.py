#!/usr/bin/env python3
"""Writes tests/golden/tokenizer/*.json: texts with the ids that the package `tokenizers` gives.

usage: make_tokenizer_golden.py [--eval DIR]   (needs `pip install tokenizers`; stated in the files)
Each case has its text ("text", "hex" or "repeat": [unit, count]) and answers: for a list of
variants (tests/oracle/tokenizer_texts.py) the ids, or, for long runs, their count and FNV-1a
hash."""
import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/oracle"))
import tokenizer_texts as texts  # noqa: E402

EVAL_CHARACTERS = {"ja": 1300, "zh": 1300, "ru": 2200}  # about 4 KB of each text


def fnv1a(ids):
    value = 0xCBF29CE484222325
    for token in ids:
        for byte in token.to_bytes(4, "little"):
            value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


class Oracle:
    def __init__(self, base):
        from tokenizers import Tokenizer

        self.by_name = {}
        for name, (variant, mode) in texts.variants(base).items():
            if mode == "text":
                variant = dict(variant, added_tokens=[])
            self.by_name[name] = Tokenizer.from_str(json.dumps(variant))

    def answers(self, data, variants, hashed=False):
        text = data.decode("utf-8", errors="replace")
        groups = []
        for name in variants:
            ids = self.by_name[name].encode(text, add_special_tokens=False).ids
            same = [g for g in groups if g[0] == ids]
            same[0][1].append(name) if same else groups.append((ids, [name]))
        if hashed:
            return [
                {"variants": names, "count": len(ids), "fnv1a": fnv1a(ids)} for ids, names in groups
            ]
        return [{"variants": names, "ids": ids} for ids, names in groups]


def write(name, version, cases):
    path = ROOT / "tests/golden/tokenizer" / name
    lines = ",\n".join(
        json.dumps(case, ensure_ascii=False, separators=(",", ":")) for case in cases
    )
    path.write_text(
        '{"made_by":"tests/golden/make_tokenizer_golden.py, tokenizers '
        + version
        + '",\n"cases":[\n'
        + lines
        + "\n]}\n",
        encoding="utf-8",
    )
    print(f"{path.name}: {len(cases)} cases, {path.stat().st_size} bytes")


def main():
    import tokenizers

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--eval", default="/work/shared/flashlet/eval")
    arguments = parser.parse_args()
    base = json.loads((ROOT / "profiles/flashlet/tokenizer.json").read_text(encoding="utf-8"))
    oracle = Oracle(base)
    version = tokenizers.__version__
    every = list(oracle.by_name)

    cases = []
    for path in sorted(pathlib.Path(arguments.eval).glob("*.txt")):
        text = path.read_text(encoding="utf-8")[: EVAL_CHARACTERS.get(path.stem, 4000)]
        answers = oracle.answers(text.encode(), ["flashlet", "qwen"])
        cases.append({"name": path.name, "text": text, "answers": answers})
    write("eval.json", version, cases)

    cases = [
        {"name": f"edge {i}", "text": text, "answers": oracle.answers(text.encode(), every)}
        for i, text in enumerate(texts.edge_texts())
    ]
    write("edge.json", version, cases)

    rng = texts.new_rng(20)
    by_category = texts.code_points_by_category()
    cases = []
    for category, points in sorted(by_category.items()):
        text = "a".join(chr(rng.choice(points)) for _ in range(8))
        answers = oracle.answers(text.encode(), ["flashlet", "qwen", "gpt2"])
        cases.append({"name": f"category {category}", "text": text, "answers": answers})
    for i in range(300):
        text = texts.random_unicode(rng, by_category)
        answers = oracle.answers(text.encode(), ["flashlet", "qwen", "overlapping", "as_text"])
        cases.append({"name": f"unicode {i}", "text": text, "answers": answers})
    for i in range(300):
        data = texts.random_bytes(rng)
        answers = oracle.answers(data, ["flashlet", "qwen"])
        cases.append({"name": f"bytes {i}", "hex": data.hex(), "answers": answers})
    write("random.json", version, cases)

    cases = []
    for unit, count in texts.run_texts():
        answers = oracle.answers((unit * count).encode(), ["flashlet", "qwen"], hashed=True)
        cases.append(
            {"name": f"{count} times {unit!a}", "repeat": [unit, count], "answers": answers}
        )
    write("runs.json", version, cases)
    return 0


if __name__ == "__main__":
    sys.exit(main())
