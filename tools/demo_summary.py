"""Prints the answer of one `hearth run --json`, and its speed beside the floor: bytes / bandwidth.

usage: demo_summary.py ANSWER.json
"""

import json
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        answer = json.load(file)
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
