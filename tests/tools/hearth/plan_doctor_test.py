"""hearth plan and hearth doctor as a user has them: a plan without a pack and with one, findings
with their exit codes, a damaged pack, and every way to be refused.

usage: plan_doctor_test.py HEARTH_BINARY SOURCE_DIR
"""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from hearth_cli import DAMAGED, FAILURE, NOT_FOUND, OK, USAGE, build_flashlet, hearth

SOURCE = pathlib.Path(sys.argv[2])
PROFILE = SOURCE / "profiles/routing/flashlet.profile.json"


def report_of(test, *args):
    done = hearth(*args, "--json")
    test.assertEqual(done.returncode, OK, done.stderr)
    return json.loads(done.stdout)


class PlanAndDoctor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.pack = pathlib.Path(cls.temp.name) / "flashlet.pack"
        build_flashlet(SOURCE, cls.pack)

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    def test_a_plan_needs_no_pack(self):
        report = report_of(self, "plan", "--device", "cpu", "--threads", 1)
        self.assertEqual([plan["quantisation"] for plan in report["plans"]],
                         ["nvfp4", "xt4", "xt3", "xt2"])
        self.assertGreater(report["machine"]["dram_bytes_per_sec"], 1e8)
        # 24,576 experts of 2.76 MB.
        self.assertAlmostEqual(report["plans"][0]["experts_bytes"] / 68e9, 1, delta=0.01)
        for plan in report["plans"]:
            if not plan["fits"]:
                self.assertTrue(plan["trouble"])
                continue
            speed = plan["tokens_per_sec"]
            self.assertLessEqual(speed["low"], speed["expected"])
            self.assertLessEqual(speed["expected"], speed["high"])
        text = hearth("plan", "--device", "cpu", "--threads", 1, "--quant", "xt2", "--drive",
                      self.temp.name, "--ram-budget", "12GiB")
        self.assertEqual(text.returncode, OK, text.stderr)
        self.assertIn("GB/s in reads of one expert", text.stdout)
        self.assertNotIn("does not run", text.stdout)
        left = [path.name for path in pathlib.Path(self.temp.name).iterdir()]
        self.assertEqual(left, ["flashlet.pack"], "nothing stays on the drive")

    def test_a_plan_of_a_pack_measures_its_drive_and_reads_a_profile(self):
        report = report_of(self, "plan", "--pack", self.pack, "--device", "cpu", "--profile",
                           PROFILE, "--threads", 1)
        self.assertTrue(report["hits_from_profile"])
        self.assertGreater(report["machine"]["drive_bytes_per_sec"], 1e6)
        (plan,) = report["plans"]
        self.assertTrue(plan["fits"], plan)
        self.assertEqual(plan["drive"]["experts"], 0)
        tight = report_of(self, "plan", "--pack", self.pack, "--device", "cpu", "--ram-budget",
                          "560MiB", "--profile", PROFILE, "--threads", 1)["plans"][0]
        if tight["fits"] and tight["drive"]["experts"] > 0:
            self.assertGreater(tight["drive_reads"]["high"], 0)
            self.assertLess(tight["tokens_per_sec"]["expected"],
                            plan["tokens_per_sec"]["expected"] * 1.5)

    def test_plans_that_are_refused(self):
        for args in (("--quant", "xt9"), ("--model", "huge"), ("--device", "tpu"),
                     ("--pack", self.pack, "--quant", "xt2")):
            done = hearth("plan", *args)
            self.assertEqual(done.returncode, USAGE, (args, done.stderr))
        self.assertEqual(hearth("plan", "--pack", "/nowhere").returncode, NOT_FOUND)
        done = hearth("plan", "--profile", PROFILE, "--threads", 1)
        self.assertEqual(done.returncode, FAILURE)
        self.assertIn("layers", done.stderr)

    def test_the_doctor_finds_and_has_remedies(self):
        report = report_of(self, "doctor", "--pack", self.pack, "--deep")
        ids = [finding["id"] for finding in report["findings"]]
        for wanted in ("cpu.isa", "cpu.pinning", "memory.available", "memory.huge_pages",
                       "memory.locked", "files.limit", "gpu.driver", "io.uring", "pack.integrity",
                       "pack.direct", "pack.file_system", "pack.fits"):
            self.assertIn(wanted, ids)
        for finding in report["findings"]:
            if finding["severity"] != "ok":
                self.assertTrue(finding["remedy"], finding)
        text = hearth("doctor")
        self.assertIn("memory.available", text.stdout)
        self.assertNotIn("pack.open", text.stdout)

    def test_the_doctor_sees_damage(self):
        experts = self.pack / "experts.bin"
        whole = experts.read_bytes()
        spoilt = bytearray(whole)
        spoilt[len(spoilt) // 2] ^= 1
        try:
            experts.write_bytes(spoilt)
            quick = hearth("doctor", "--pack", self.pack)
            self.assertEqual(quick.returncode, OK, quick.stderr)
            deep = hearth("doctor", "--pack", self.pack, "--deep")
            self.assertEqual(deep.returncode, DAMAGED, deep.stdout)
            self.assertIn("expert", deep.stdout)
            experts.write_bytes(whole[:-4096])
            cut = hearth("doctor", "--pack", self.pack, "--json")
            self.assertEqual(cut.returncode, DAMAGED, cut.stdout)
            self.assertEqual(json.loads(cut.stdout)["worst"], "damage")
        finally:
            experts.write_bytes(whole)

    def test_doctors_visits_that_are_refused(self):
        self.assertEqual(hearth("doctor", "--deep").returncode, USAGE)
        self.assertEqual(hearth("doctor", "--key-file", "k").returncode, USAGE)
        done = hearth("doctor", "--pack", "/nowhere")
        self.assertEqual(done.returncode, FAILURE)
        self.assertIn("pack.open", done.stdout)
        done = hearth("doctor", "--telemetry", "/nowhere/recording")
        self.assertNotEqual(done.returncode, OK)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
