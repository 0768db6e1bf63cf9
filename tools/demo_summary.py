"""Prints the answer of one `hearth run --json`, and its speed beside the floor: bytes / bandwidth.
With --cached: who served the experts of the second run, and that its logits are the first one's.

usage: demo_summary.py ANSWER.json [--cached ANSWER.json]
"""

import json
import sys


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def print_ledger(answer, cached):
    total = cached["ledger"]["total"]
    for service in ("vram", "pcie", "cpu", "ssd"):
        served = cached["ledger"][service]
        share = served["distinct"] / total["distinct"]
        print(f"{service:5} {served['distinct']:7,} experts {share:6.1%} "
              f"{served['bytes'] / 1e6:9,.1f} MB")
    same = answer["logits_xxh3"] == cached["logits_xxh3"]
    print(f"logits {cached['logits_xxh3']}: {'the same' if same else 'NOT THE SAME'} as before")
    if not same:
        sys.exit(1)


def main():
    answer = load(sys.argv[1])
    if sys.argv[2:3] == ["--cached"]:
        print_ledger(answer, load(sys.argv[3]))
        return
    timings = answer["timings"]
    print(answer["text"])
    print()
    print(f"prompt      {len(answer['prompt_tokens'])} tokens, "
          f"{timings['prompt_tokens_per_sec']:,.0f} tokens/s")
    print(f"output      {len(answer['output_tokens'])} tokens ({answer['finish_reason']}), "
          f"{timings['decode_tokens_per_sec']:,.0f} tokens/s")
    acceptance = answer["acceptance"]
    if acceptance["drafted"] > 0:
        print(f"acceptance  {acceptance['accepted']} of {acceptance['drafted']} drafts "
              f"({acceptance['accepted'] / acceptance['drafted']:.0%}), "
              f"{acceptance['tokens_per_window']:.2f} tokens per window")
    seconds = timings["decode_sec"]
    floor = timings["decode_bytes"] / timings["read_bytes_per_sec"]
    print(f"bytes       {timings['decode_bytes'] / 1e6:,.1f} MB read by decoding: "
          f"{floor * 1e3:.1f} ms at the {timings['read_bytes_per_sec'] / 1e9:.1f} GB/s measured; "
          f"took {seconds * 1e3:.1f} ms, {seconds / floor:.1f} x that floor")


if __name__ == "__main__":
    main()
