"""What packs of one model cost in quality: mean KL and top-1 agreement against a reference.

usage: xt_quality.py HEARTH REFERENCE TEXTS PACK...
  HEARTH     the program
  REFERENCE  pack that the others are held against, such as one with bf16 experts
  TEXTS      folder of *.txt; the first 12,000 bytes of each are read
  PACK       packs of the same model

Prints a Markdown table, one row for each pack, all texts' positions together.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

TEXT_BYTES = 12_000


def run_json(command):
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return json.loads(done.stdout)


def measure(hearth, reference, texts, pack):
    """Totals over the texts: positions, KL, agreement, log-likelihoods."""
    total = {"positions": 0, "kl": 0.0, "same": 0.0, "nll": 0.0, "reference_nll": 0.0}
    for text in texts:
        score = run_json([hearth, "score", "--pack", pack, "--against", reference, "--text", text])
        count = score["positions"]
        total["positions"] += count
        total["kl"] += score["mean_kl"] * count
        total["same"] += score["top1_agreement"] * count
        total["nll"] += score["mean_nll"] * count
        total["reference_nll"] += score["reference_mean_nll"] * count
    return total


def bits_of(hearth, pack):
    """Format of the trunk's experts and their bits per weight, scales included."""
    summary = run_json([hearth, "pack", "inspect", "--pack", pack])
    name = summary["expert_format"]
    share = summary["experts"][name]
    return name, 8 * share["bytes"] / share["values"]


def main(arguments):
    if len(arguments) < 4:
        sys.exit(__doc__)
    hearth, reference, texts_dir, *packs = arguments
    with tempfile.TemporaryDirectory() as scratch:
        texts = []
        for source in sorted(pathlib.Path(texts_dir).glob("*.txt")):
            cut = pathlib.Path(scratch) / source.name
            part = source.read_bytes()[:TEXT_BYTES].decode("utf-8", errors="ignore")
            cut.write_text(part, encoding="utf-8")
            texts.append(str(cut))
        if not texts:
            sys.exit(f"{texts_dir}: no *.txt there")
        print("| pack | experts | bits/weight | mean KL (nats) | top-1 agreement | mean NLL "
              "| reference |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for pack in packs:
            name, bits = bits_of(hearth, pack)
            t = measure(hearth, reference, texts, pack)
            n = t["positions"]
            print(f"| {pathlib.Path(pack).name} | {name} | {bits:.2f} | {t['kl'] / n:.5f} | "
                  f"{t['same'] / n:.2%} | {t['nll'] / n:.4f} | {t['reference_nll'] / n:.4f} |",
                  flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
