"""hearth bench window on the host in place of a card: the ledger adds up, hits follow the slots,
the scratch folder is gone."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

HEARTH = sys.argv.pop(1)
SHAPE = ["--like", "small", "--layers", "4", "--experts", "32", "--rows", "1,4", "--windows", "8",
         "--warm-up-windows", "4", "--device", "cpu"]


def run(*flags):
    return subprocess.run([HEARTH, "bench", "window", *flags], capture_output=True, text=True,
                          timeout=250, check=False)


class BenchWindowTest(unittest.TestCase):
    def test_every_slot_count_and_row_count_has_a_line_beside_its_floor(self):
        with tempfile.TemporaryDirectory() as scratch:
            done = run(*SHAPE, "--slots", "25%,100%", "--scratch", scratch, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(os.listdir(scratch), [])
        report = json.loads(done.stdout)
        self.assertGreater(report["dram_bytes_per_sec"], 0)
        self.assertEqual([(line["slots"], line["rows"]) for line in report["lines"]],
                         [("25%", 1), ("25%", 4), ("100%", 1), ("100%", 4)])
        for line in report["lines"]:
            ledger = line["ledger"]
            entries = sum(service["entries"] for service in ledger.values())
            self.assertEqual(entries, line["windows"] * line["rows"] * 4 * 10)
            self.assertGreater(line["floor_sec"], line["dense_floor_sec"])
            self.assertGreater(line["times_floor"], 0)
            if line["slots"] == "100%":
                self.assertEqual(line["hit_rate"], 1)
            else:
                self.assertEqual(line["slot_count"], 32)
                self.assertLess(line["hit_rate"], 1)

    def test_every_share_of_the_link_has_a_line(self):
        with tempfile.TemporaryDirectory() as scratch:
            done = run(*SHAPE, "--slots", "25%", "--pcie-share", "0,1", "--scratch", scratch,
                       "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = json.loads(done.stdout)["lines"]
        self.assertEqual([(line["pcie_share"], line["rows"]) for line in lines],
                         [("0", 1), ("0", 4), ("1", 1), ("1", 4)])
        for line in lines:
            uploads = line["ledger"]["pcie"]["distinct"]
            self.assertEqual(uploads > 0, line["pcie_share"] == "1")

    def test_prompts_are_read_in_chunks_and_served_whole(self):
        with tempfile.TemporaryDirectory() as scratch:
            done = run(*SHAPE, "--slots", "25%,100%", "--scratch", scratch, "--json",
                       "--prompts", "24,100", "--prompt-chunk", "64")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = json.loads(done.stdout)["lines"]
        self.assertEqual([(line["slots"], line["tokens"], line["chunk_rows"]) for line in lines],
                         [("25%", 24, 24), ("25%", 100, 64), ("100%", 24, 24), ("100%", 100, 64)])
        for line in lines:
            entries = sum(service["entries"] for service in line["ledger"].values())
            self.assertEqual(entries, line["tokens"] * 4 * 10)
            self.assertGreater(line["tokens_per_sec"], 0)
            self.assertGreater(line["floor_sec"], line["dense_floor_sec"])

    def test_a_trace_of_other_experts_is_refused(self):
        with tempfile.TemporaryDirectory() as scratch:
            trace = os.path.join(scratch, "trace")
            with open(trace, "wb") as file:
                file.write(b"no trace")
            done = run(*SHAPE, "--slots", "25%", "--scratch", scratch, "--routes", trace)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(trace, done.stderr)

    def test_bad_values_are_usage_errors(self):
        for flags in (["--slots", "many"], ["--rows", "9"], ["--prompts", "x"],
                      ["--device", "tpu"], ["--pcie-share", "0,2"]):
            self.assertEqual(run(*flags).returncode, 2, flags)


if __name__ == "__main__":
    unittest.main()
