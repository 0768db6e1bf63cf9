"""hearth pack synth as a user has it: a pack from nothing that verifies, is described and runs; an
interrupted build that leaves nothing; and every way to be refused.

usage: synth_test.py HEARTH_BINARY
"""

import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from hearth_cli import FAILURE, HEARTH, OK, RESOURCES, USAGE, hearth



class Synth(unittest.TestCase):
    def setUp(self):
        self.temp = tempfile.TemporaryDirectory()
        self.dir = pathlib.Path(self.temp.name)
        self.addCleanup(self.temp.cleanup)

    def synth(self, name, *args):
        out = self.dir / name
        done = hearth("pack", "synth", "--out", out, *args, "--json")
        self.assertEqual(done.returncode, OK, done.stderr)
        return out, json.loads(done.stdout)

    def run_json(self, pack, *args):
        done = hearth("run", "--pack", pack, "--prompt", "hello", *args, "--json")
        self.assertEqual(done.returncode, OK, done.stderr)
        return json.loads(done.stdout)

    def test_a_pack_from_nothing_verifies_is_described_and_runs(self):
        pack, report = self.synth("p", "--like", "flashlet", "--layers", 4, "--experts-bytes",
                                  "6MiB", "--mtp")
        self.assertEqual(report["layers"], 4)
        self.assertEqual(report["experts"] % 8, 0)
        self.assertAlmostEqual(report["experts_bytes"] / 2**20, 6, delta=1)
        self.assertEqual(hearth("pack", "verify", "--pack", pack).returncode, OK)
        described = hearth("pack", "inspect", "--pack", pack)
        self.assertEqual(described.returncode, OK)
        self.assertIn("synthetic", described.stdout)
        self.assertIn("MTP", described.stdout)
        answer = self.run_json(pack, "--max-tokens", 20)
        self.assertEqual(len(answer["output_tokens"]), 20)
        self.assertEqual(answer["finish_reason"], "length", "control tokens are never the best")
        self.assertGreater(len(set(answer["output_tokens"])), 10, "it does not fall into a loop")
        self.assertTrue(answer["text"].strip())

    def test_every_format_runs(self):
        shape = ("--like", "flashlet", "--layers", 2, "--experts", 8, "--top-k", 2, "--hidden", 64,
                 "--width", 32)
        for name in ("nvfp4", "xt2", "xt3", "xt4", "bf16", "fp8"):
            pack, report = self.synth(name, *shape, "--format", name)
            self.assertEqual(report["expert_format"], name)
            self.assertEqual(len(self.run_json(pack, "--max-tokens", 8)["output_tokens"]), 8)

    def test_the_seed_decides_the_bytes(self):
        shape = ("--like", "flashlet", "--layers", 1, "--experts", 8)
        hashes = []
        for name, args in (("a", ()), ("b", ("--workers", 3)), ("c", ("--seed", 2))):
            _, report = self.synth(name, *shape, *args)
            hashes.append([f["xxh3_128"] for f in report["files"] if f["name"] == "experts.bin"])
        self.assertEqual(hashes[0], hashes[1])
        self.assertNotEqual(hashes[0], hashes[2])

    def test_an_interrupted_build_leaves_nothing(self):
        for sent in (signal.SIGINT, signal.SIGTERM):
            with subprocess.Popen([HEARTH, "pack", "synth", "--out", str(self.dir / "big"),
                                   "--experts-bytes", "12GiB"], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  text=True) as build:
                experts = self.dir / "big.building" / "experts.bin"
                give_up = time.monotonic() + 60
                while not experts.exists() and time.monotonic() < give_up:
                    time.sleep(0.01)
                build.send_signal(sent)
                _, talk = build.communicate(timeout=60)
            self.assertEqual(build.returncode, FAILURE, talk)
            self.assertIn("interrupted", talk)
            self.assertEqual(list(self.dir.iterdir()), [])

    def test_refusals_name_what_is_wrong(self):
        out = ("--out", self.dir / "p")
        for args, code, word in (
                ((), USAGE, "out"),
                ((*out, "--experts", 8, "--experts-bytes", "1GiB"), USAGE, "one of them"),
                ((*out, "--experts", 4), USAGE, "top_k"),
                ((*out, "--hidden", 100), USAGE, "16"),
                ((*out, "--like", "llama"), USAGE, "flash-next"),
                ((*out, "--mtp"), USAGE, "MTP"),
                ((*out, "--like", "flash-next", "--layers", 1000, "--experts", 16384, "--format",
                  "bf16"), RESOURCES, "free")):
            done = hearth("pack", "synth", *args)
            self.assertEqual(done.returncode, code, (args, done.stderr))
            self.assertIn(word, done.stderr)
        self.assertEqual(list(self.dir.iterdir()), [])
        self.synth("p", "--like", "flashlet", "--layers", 1, "--experts", 8)
        again = hearth("pack", "synth", *out, "--like", "flashlet")
        self.assertEqual(again.returncode, FAILURE)
        self.assertIn("--force", again.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
