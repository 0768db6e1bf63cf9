"""RAM budget against page cache, on a pack that is larger than the memory that the run may take.

usage: ssd_bench.py [--hearth BINARY] [--dir FOLDER] [--experts-bytes SIZE] [--budget PERCENT]
                    [--limit SIZE] [--tokens N] [--rounds N] [--seed N] [--prefix COMMAND] [--json]
  --hearth         the program; default build/release/tools/hearth/hearth
  --dir            where the pack is made, and kept; on the drive to be measured.
                   Default build/ssd_bench
  --experts-bytes  of the pack; default 3GiB
  --budget         of the experts' bytes that RAM may hold; default 50
  --limit          of the control group; default the budget and what the rest of the run takes
  --tokens         decoded in each run; default 160
  --rounds         of both modes, in turns. The best of each counts, as other work on the machine
                   only slows a round; the median is printed too. Default 3
  --seed           of the weights and of sampling; default 1
  --prefix         what to start each run with, such as "chrt -f 10" on a busy machine

Needs root: it makes a memory control group (version 1 or 2) of its own and removes it again. Both
modes run under the same limit, from a cold page cache, after a prompt that fills it; their logits
must be equal bit for bit. What a mode reads while it decodes is the difference to a run that stops
after one token: bytes as the block layer counts them, for this process alone.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time

V1_ROOT = pathlib.Path("/sys/fs/cgroup/memory")
V2_ROOT = pathlib.Path("/sys/fs/cgroup")
GROUP_NAME = f"hearth-ssd-bench-{os.getpid()}"
EXIT_RESOURCES = 4
PROMPT_TOKENS = 192
# Beside a run's own plan: the 128 MiB over which it measures memory at its end, and what the kernel
# counts against the group.
MARGIN_BYTES = 160 << 20
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "B": 1}


def parse_bytes(text):
    for unit, factor in UNITS.items():
        if text.endswith(unit):
            return int(float(text[:-len(unit)]) * factor)
    raise argparse.ArgumentTypeError(f"{text}: a size with its unit is expected, such as 1.5GiB")


def arguments():
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ")[1], add_help=False)
    parser.add_argument("--hearth", default="build/release/tools/hearth/hearth")
    parser.add_argument("--dir", default="build/ssd_bench")
    parser.add_argument("--experts-bytes", default="3GiB")
    parser.add_argument("--budget", type=float, default=50)
    parser.add_argument("--limit", type=parse_bytes)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--prefix", type=shlex.split, default=[])
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def say(text):
    print(text, file=sys.stderr, flush=True)


class Group:
    """A memory control group with a limit, of whichever version this system has."""

    def __init__(self):
        if os.geteuid() != 0:
            sys.exit("ssd_bench: making a memory control group needs root")
        controllers = V2_ROOT / "cgroup.controllers"
        self.is_v2 = controllers.exists() and "memory" in controllers.read_text().split()
        root = V2_ROOT if self.is_v2 else V1_ROOT
        self.path = root / GROUP_NAME
        try:
            if self.is_v2:
                (root / "cgroup.subtree_control").write_text("+memory")
            elif not (root / "memory.limit_in_bytes").exists():
                sys.exit(f"ssd_bench: no memory control groups: neither {controllers} with memory "
                         f"nor {root}/memory.limit_in_bytes")
            self.path.mkdir()
        except OSError as error:
            sys.exit(f"ssd_bench: {error}: a container may make no control groups unless it is "
                     "privileged")

    def set_limit(self, limit_bytes):
        name = "memory.max" if self.is_v2 else "memory.limit_in_bytes"
        (self.path / name).write_text(str(limit_bytes))
        with contextlib.suppress(OSError):  # where there is no swap
            swap = "memory.swap.max" if self.is_v2 else "memory.memsw.limit_in_bytes"
            (self.path / swap).write_text("0" if self.is_v2 else str(limit_bytes))

    def join(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        for _ in range(50):  # until the kernel has let go of the last process
            with contextlib.suppress(OSError):
                self.path.rmdir()
                return
            time.sleep(0.1)
        say(f"ssd_bench: {self.path} could not be removed")


def drop_pages(folder):
    """Takes a pack out of the page cache, so that no other group pays for its pages."""
    for path in pathlib.Path(folder).iterdir():
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Bench:
    def __init__(self, options):
        self.options = options
        self.pack = pathlib.Path(options.dir) / f"{options.experts_bytes}-{options.seed}.pack"
        self.group = None

    def make_pack(self):
        if not (self.pack / "manifest.json").exists():
            self.pack.parent.mkdir(parents=True, exist_ok=True)
            say(f"making {self.pack}")
            subprocess.run([self.options.hearth, "pack", "synth", "--out", self.pack,
                            "--experts-bytes", self.options.experts_bytes, "--seed",
                            str(self.options.seed)], check=True, stdout=sys.stderr)
        described = subprocess.run([self.options.hearth, "pack", "inspect", "--pack", self.pack,
                                    "--json"], check=True, capture_output=True, text=True)
        summary = json.loads(described.stdout)
        return sum(share["bytes"] for share in summary["experts"].values())

    def run(self, flags, max_tokens):
        """One run under the limit from a cold page cache: its JSON, faults and bytes read."""
        drop_pages(self.pack)
        with tempfile.TemporaryFile("w+") as results, tempfile.TemporaryFile("w+") as talk:
            command = [*self.options.prefix, self.options.hearth, "run", "--pack", str(self.pack),
                       "--prompt", "x" * PROMPT_TOKENS, "--max-tokens", str(max_tokens),
                       "--temperature", "1", "--seed", str(self.options.seed), "--json", *flags]
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=results,
                                     stderr=talk, preexec_fn=self.group.join)
            try:
                _, status, usage = os.wait4(child.pid, 0)
            except BaseException:  # interrupted: nothing stays behind
                child.kill()
                child.wait()
                raise
            child.returncode = os.waitstatus_to_exitcode(status)
            results.seek(0)
            talk.seek(0)
            answer = json.loads(results.read()) if child.returncode == 0 else None
            return {"exit_code": child.returncode, "talk": talk.read(), "answer": answer,
                    "read_bytes": usage.ru_inblock * 512, "major_faults": usage.ru_majflt}

    def measured(self, flags, max_tokens):
        run = self.run(flags, max_tokens)
        if run["exit_code"] != 0:
            sys.exit(f"ssd_bench: {' '.join(flags)}: exit code {run['exit_code']}\n{run['talk']}")
        return run

    def check_refusal(self, limit_bytes):
        """All experts in RAM do not fit: said before anything is loaded, naming the limit."""
        refused = self.run([], 1)
        if refused["exit_code"] != EXIT_RESOURCES or str(self.group.path) not in refused["talk"]:
            sys.exit(f"ssd_bench: a pack beyond {limit_bytes} bytes was not refused: exit code "
                     f"{refused['exit_code']}\n{refused['talk']}")
        return refused["talk"].strip().splitlines()[-1]


def fixed_bytes(bench, budget_bytes):
    """What a run takes besides its expert budget, by its own plan."""
    bench.group.set_limit(1 << 50)
    plan = bench.measured(["--ram-budget", f"{budget_bytes}B"], 1)["answer"]["memory"]
    return plan["ram_bytes"] - budget_bytes


def figures(first, whole, tokens):
    """Of one round and mode: rates, and what a decoded token costs."""
    per_token = tokens - 1
    read_bytes = (whole["read_bytes"] - first["read_bytes"]) / per_token
    ledger, before = (run["answer"]["ledger"] for run in (whole, first))
    asked = (ledger["total"]["bytes"] - before["total"]["bytes"]) / per_token
    missed = (ledger["ssd"]["bytes"] - before["ssd"]["bytes"]) / per_token
    return {"tokens_per_sec": whole["answer"]["timings"]["decode_tokens_per_sec"],
            "prompt_tokens_per_sec": whole["answer"]["timings"]["prompt_tokens_per_sec"],
            "load_sec": whole["answer"]["timings"]["load_sec"],
            "read_bytes_per_token": read_bytes,
            "asked_bytes_per_token": asked,
            "missed_bytes_per_token": missed,
            "read_amplification": read_bytes / missed if missed > 0 else 0.0,
            "major_faults_per_token": (whole["major_faults"] - first["major_faults"]) / per_token}


def best_of(rounds):
    best = dict(max(rounds, key=lambda r: r["tokens_per_sec"]))
    best["median_tokens_per_sec"] = statistics.median(r["tokens_per_sec"] for r in rounds)
    return best


def compare(bench, budget_bytes, limit_bytes):
    options = bench.options
    modes = {"ram-budget": ["--ram-budget", f"{budget_bytes}B"], "mmap": ["--mmap-experts"]}
    rounds = {mode: [] for mode in modes}
    logits = set()
    for number in range(options.rounds):
        for mode, flags in modes.items():
            first = bench.measured(flags, 1)
            whole = bench.measured(flags, options.tokens)
            logits.add(whole["answer"]["logits_xxh3"])
            rounds[mode].append(figures(first, whole, options.tokens))
            say(f"round {number + 1}: {mode} {rounds[mode][-1]['tokens_per_sec']:.2f} tok/s")
    if len(logits) != 1:
        sys.exit(f"ssd_bench: the modes gave different logits: {sorted(logits)}")
    result = {mode: best_of(r) for mode, r in rounds.items()}

    def ratio(key):
        return result["ram-budget"][key] / result["mmap"][key]

    return {"limit_bytes": limit_bytes, "budget_bytes": budget_bytes, "tokens": options.tokens,
            "rounds": options.rounds, "logits_xxh3": logits.pop(), "modes": result,
            "ratio": ratio("tokens_per_sec"), "median_ratio": ratio("median_tokens_per_sec")}


def print_table(result):
    rows = (("decode, tok/s", "tokens_per_sec", 1, "{:.2f}"),
            ("median of the rounds, tok/s", "median_tokens_per_sec", 1, "{:.2f}"),
            ("prompt, tok/s", "prompt_tokens_per_sec", 1, "{:.1f}"),
            ("load, s", "load_sec", 1, "{:.1f}"),
            ("experts asked for, MB per token", "asked_bytes_per_token", 1e6, "{:.1f}"),
            ("of them not in RAM, MB per token", "missed_bytes_per_token", 1e6, "{:.1f}"),
            ("read from the drive, MB per token", "read_bytes_per_token", 1e6, "{:.1f}"),
            ("read amplification", "read_amplification", 1, "{:.2f}"),
            ("major faults per token", "major_faults_per_token", 1, "{:.1f}"))
    print(f"limit {result['limit_bytes'] / 2**30:.2f} GiB, experts "
          f"{result['experts_bytes'] / 2**30:.2f} GiB, budget "
          f"{result['budget_bytes'] / 2**30:.2f} GiB, best of {result['rounds']}\n")
    print(f"| | {' | '.join(result['modes'])} |\n| --- | ---: | ---: |")
    for label, key, unit, form in rows:
        cells = (form.format(mode[key] / unit) for mode in result["modes"].values())
        print(f"| {label} | {' | '.join(cells)} |")
    print(f"\nRAM budget decodes {result['ratio']:.2f} times as fast "
          f"({result['median_ratio']:.2f} by the medians); logits are equal")


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    signal.signal(signal.SIGINT, lambda number, _: sys.exit(128 + number))
    bench = Bench(options)
    bench.group = Group()
    try:
        experts_bytes = bench.make_pack()
        budget_bytes = int(experts_bytes * options.budget / 100)
        limit_bytes = options.limit
        if limit_bytes is None:
            limit_bytes = budget_bytes + fixed_bytes(bench, budget_bytes) + MARGIN_BYTES
        if limit_bytes >= experts_bytes:
            sys.exit(f"ssd_bench: the limit of {limit_bytes} bytes holds all experts, "
                     f"{experts_bytes} bytes: nothing to compare")
        bench.group.set_limit(limit_bytes)
        say(bench.check_refusal(limit_bytes))
        result = compare(bench, budget_bytes, limit_bytes)
        result["experts_bytes"] = experts_bytes
    finally:
        bench.group.remove()
    if options.json:
        print(json.dumps(result))
    else:
        print_table(result)


if __name__ == "__main__":
    main()
