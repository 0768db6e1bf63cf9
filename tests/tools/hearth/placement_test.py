"""Where the experts are never changes the answer: the shipped model gives the same tokens and the
same logits, to the bit, from RAM, slots, uploads, a RAM budget, the page cache, any I/O method and
any policy, and the ledger accounts for every expert once.

usage: placement_test.py HEARTH_BINARY SOURCE_DIR
"""

import ctypes
import json
import os
import pathlib
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from hearth_cli import NOT_FOUND, OK, RESOURCES, USAGE, build_flashlet, hearth

SOURCE = pathlib.Path(sys.argv[2])
SERVICES = ("vram", "pcie", "cpu", "ssd")


def block_io_uring():
    """For a child before it starts: a filter that answers EPERM to io_uring's system calls."""
    load, jump_ge, jump_gt, give = 0x20, 0x35, 0x25, 0x06  # BPF: ld abs, jge, jgt, ret
    first, last, errno_eperm, allow = 425, 427, 0x00050001, 0x7FFF0000
    program = [(load, 0, 0, 0), (jump_ge, 0, 2, first), (jump_gt, 1, 0, last),
               (give, 0, 0, errno_eperm), (give, 0, 0, allow)]
    code = b"".join(struct.pack("<HBBI", *instruction) for instruction in program)
    memory = ctypes.create_string_buffer(code)
    header = struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    set_no_new_privs, set_seccomp, seccomp_filter = 38, 22, 2
    if libc.prctl(set_no_new_privs, 1, 0, 0, 0) or libc.prctl(set_seccomp, seccomp_filter, header):
        os._exit(99)


class Placement(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.temp.name)
        cls.pack = cls.dir / "flashlet.pack"
        build_flashlet(SOURCE, cls.pack)
        cls.experts_bytes = (cls.pack / "experts.bin").stat().st_size
        cls.prompt = (SOURCE / "README.md").read_text()[:1200]
        cls.base = cls.answer()

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    @classmethod
    def answer(cls, *flags, tokens=80):
        done = hearth("run", "--pack", cls.pack, "--prompt", cls.prompt, "--max-tokens", tokens,
                      "--ignore-eos", "--stats", "--json", *flags)
        assert done.returncode == OK, (flags, done.stderr)
        return json.loads(done.stdout)

    def budget(self, percent):
        return f"{self.experts_bytes * percent // 100}B"

    def check_ledger(self, answer):
        ledger = answer["ledger"]
        layers = answer["experts"]["layers"]
        for key in ("distinct", "entries", "bytes"):
            self.assertEqual(sum(ledger[s][key] for s in SERVICES), ledger["total"][key])
            for service in (*SERVICES, "total"):
                self.assertEqual(sum(l[service][key] for l in layers), ledger[service][key])
        # The same experts were asked for, whoever served them.
        for key in ("distinct", "entries", "bytes"):
            self.assertEqual(ledger["total"][key], self.base["ledger"]["total"][key])
        self.assertEqual(answer["request"]["total"], self.base["request"]["total"])

    def check(self, *flags):
        answer = self.answer(*flags)
        self.assertEqual(answer["output_tokens"], self.base["output_tokens"], flags)
        self.assertEqual(answer["logits_xxh3"], self.base["logits_xxh3"], flags)
        self.check_ledger(answer)
        return answer

    def served(self, answer):
        return {s for s in SERVICES if answer["ledger"][s]["distinct"] > 0}

    def test_all_in_ram_is_all_cpu(self):
        self.check_ledger(self.base)
        self.assertEqual(self.served(self.base), {"cpu"})

    def test_slots(self):
        for slots in ("0", "1", "5", "6", "7", "12", "10%", "40%", "100%"):
            answer = self.check("--slots", slots)
            if slots == "0":
                self.assertEqual(self.served(answer), {"cpu"})
                self.assertIsNone(answer["experts"]["slots"])
            else:
                self.assertEqual(self.served(answer), {"vram", "cpu"})
        self.check("--vram-budget", "4MiB")

    def test_more_slots_hit_more(self):
        rates = [self.answer("--slots", s)["experts"]["hit_rate"] for s in ("5%", "20%", "60%")]
        self.assertEqual(rates, sorted(rates))
        self.assertGreater(rates[2], 0.5)

    def test_pcie_shares(self):
        served = [self.check("--slots", "20%", "--pcie-share", share)["ledger"]["pcie"]["distinct"]
                  for share in ("0", "0.3", "1")]
        self.assertEqual(served[0], 0)
        self.assertLess(0, served[1])
        self.assertLess(served[1], served[2])

    def test_uploads_stay_within_the_windows_bytes(self):
        answer = self.check("--slots", "20%", "--pcie-share", "1", "--pcie-window-bytes-max",
                            "64KiB")
        slot_bytes = answer["experts"]["slots"]["pools"][0]["slot_bytes"]
        passes = answer["timings"]["windows"] * 5 + 10  # drafts and parts of the prompt
        self.assertLessEqual(answer["ledger"]["pcie"]["distinct"] * slot_bytes, passes * 65536)

    def test_policies(self):
        for policy in ("forecast", "two-scale", "lru", "lfu", "decay", "static"):
            self.check("--slots", "30%", "--policy", policy)

    def test_ram_budgets(self):
        for percent in (5, 25, 60):
            answer = self.check("--ram-budget", self.budget(percent))
            self.assertEqual(self.served(answer), {"cpu", "ssd"})
            self.assertLessEqual(answer["experts"]["ram"]["capacity_bytes"],
                                 self.experts_bytes * percent // 100)

    def test_ram_budget_with_slots_and_uploads(self):
        answer = self.check("--ram-budget", self.budget(25), "--slots", "30%", "--pcie-share",
                            "0.5")
        self.assertEqual(self.served(answer), set(SERVICES))
        self.assertGreater(answer["experts"]["ram"]["exchanges"], 0)

    def test_ways_of_reading(self):
        for io in ("auto", "uring", "pread"):
            self.check("--ram-budget", self.budget(25), "--io", io)

    def test_blocked_io_uring_is_said_once_and_changes_nothing(self):
        for budget in ((), ("--ram-budget", self.budget(25))):
            flags = ("run", "--pack", self.pack, "--prompt", self.prompt, "--max-tokens", 80,
                     "--ignore-eos", "--json", *budget)
            refused = hearth(*flags, "--io", "uring", preexec_fn=block_io_uring)
            self.assertNotEqual(refused.returncode, OK)
            self.assertIn("io_uring", refused.stderr.splitlines()[-1])
            stepped_down = hearth(*flags, preexec_fn=block_io_uring)
            self.assertEqual(stepped_down.returncode, OK, stepped_down.stderr)
            notes = [line for line in stepped_down.stderr.splitlines() if "io_uring" in line]
            self.assertEqual(len(notes), 1, stepped_down.stderr)
            asked_for = hearth(*flags, "--io", "pread", preexec_fn=block_io_uring)
            self.assertEqual(asked_for.returncode, OK, asked_for.stderr)
            self.assertNotIn("io_uring", asked_for.stderr)
            for done in (stepped_down, asked_for):
                self.assertEqual(json.loads(done.stdout)["logits_xxh3"], self.base["logits_xxh3"])

    def test_page_cache(self):
        answer = self.check("--mmap-experts")
        self.assertIn("cpu", self.served(answer))
        self.assertLessEqual(self.served(answer), {"cpu", "ssd"})
        self.check("--mmap-experts", "--slots", "20%")

    def test_reference_arithmetic(self):
        args = ("--arithmetic", "reference")
        base = self.answer(*args, tokens=12)
        for flags in (("--slots", "20%", "--pcie-share", "0.5"),
                      ("--ram-budget", self.budget(25)), ("--mmap-experts",)):
            answer = self.answer(*args, *flags, tokens=12)
            self.assertEqual(answer["logits_xxh3"], base["logits_xxh3"], flags)

    def test_threads_and_drafts(self):
        for flags in (("--threads", 1), ("--threads", 5), ("--spec", 0), ("--spec", 8)):
            answer = self.answer(*flags, "--slots", "20%", "--ram-budget", self.budget(25))
            self.assertEqual(answer["logits_xxh3"], self.base["logits_xxh3"], flags)

    def test_score(self):
        def score(*flags):
            done = hearth("score", "--pack", self.pack, "--text", SOURCE / "pack/XT.md", "--json",
                          *flags)
            self.assertEqual(done.returncode, OK, done.stderr)
            return json.loads(done.stdout)
        base = score()
        for flags in (("--slots", "20%"), ("--ram-budget", self.budget(20)), ("--mmap-experts",)):
            self.assertEqual(score(*flags), base)

    def refused(self, code, text, *flags):
        done = hearth("run", "--pack", self.pack, "--prompt", "a", "--max-tokens", 1, *flags)
        self.assertEqual(done.returncode, code, (flags, done.stderr))
        self.assertIn(text, done.stderr)

    def test_flags_that_do_nothing_or_exclude_each_other_are_refused(self):
        self.refused(USAGE, "--pcie-share: has no effect", "--pcie-share", "0.5")
        self.refused(USAGE, "--policy: has no effect", "--policy", "lru")
        self.refused(USAGE, "--profile: has no effect", "--profile", "x")
        self.refused(USAGE, "--io: has no effect", "--mmap-experts", "--io", "uring")
        self.refused(USAGE, "found both", "--mmap-experts", "--ram-budget", "1GiB")
        self.refused(USAGE, "found both", "--slots", "1", "--vram-budget", "1GiB")

    def test_bad_values_name_the_accepted_forms(self):
        for slots in ("-1", "101%", "many", "4.5", "%"):
            self.refused(USAGE, "such as 400 or 40%", "--slots", slots)
        for share in ("1.5", "-0.1", "half"):
            self.refused(USAGE, "auto or a number from 0 to 1", "--pcie-share", share)
        for size in ("8", "8GB", "8e9", "-1", "0x1GiB"):
            self.refused(USAGE, "such as 24GiB", "--ram-budget", size)
        self.refused(NOT_FOUND, "two-scale", "--slots", "10%", "--policy", "two-scal")

    def test_budgets_that_cannot_work_are_refused_with_what_can(self):
        self.refused(RESOURCES, "the least that works", "--ram-budget", "0B")
        self.refused(RESOURCES, "", "--vram-budget", "1KiB")

    def test_what_will_be_in_memory_is_said_before_it_is_loaded(self):
        done = hearth("run", "--pack", self.pack, "--prompt", "a", "--max-tokens", 1, "--slots",
                      "40%", "--ram-budget", self.budget(30))
        for part in ("memory: RAM", "available", "expert budget", "slots", "dense weights",
                     "state of", "buffers"):
            self.assertIn(part, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=1)
