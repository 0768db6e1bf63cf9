"""Runs the built program: streams, exit codes and full disks, as a user meets them."""

import json
import os
import subprocess
import sys
import unittest

BINARY = ""


def hearth(*args, **kwargs):
    return subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=60,
                          stdin=subprocess.DEVNULL, check=False, **kwargs)


class CliTest(unittest.TestCase):
    def test_help_is_a_result_and_fits_a_screen(self):
        done = hearth("--help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("exit codes: 0 ok", done.stdout)
        self.assertLessEqual(len(done.stdout.splitlines()), 25)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)

    def test_every_listed_command_explains_itself(self):
        lines = hearth("--help").stdout.splitlines()
        names = [line[2:17].split() for line in lines if line.startswith("  ")]
        for name in names:
            done = hearth(*name, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)
            self.assertLessEqual(len(done.stdout.splitlines()), 28, name)
            self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100, name)
            self.assertIn("hearth " + " ".join(name), done.stdout)

    def test_every_listed_command_refuses_an_unknown_flag(self):
        lines = hearth("--help").stdout.splitlines()
        for name in [line[2:17].split() for line in lines if line.startswith("  ")]:
            done = hearth(*name, "--jsno")
            self.assertEqual((done.returncode, done.stdout), (2, ""), name)
            self.assertIn("did you mean --json?", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)

    def test_version(self):
        done = hearth("--version")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^hearth \d+\.\d+\.\d+\n$")
        self.assertRegex(json.loads(hearth("--version", "--json").stdout)["version"], r"^\d+\.")

    def test_no_command_and_unknown_command_are_usage_errors(self):
        self.assertEqual(hearth().returncode, 2)
        self.assertEqual(hearth().stdout, "")
        done = hearth("frobnicate")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertTrue(done.stderr.startswith("hearth: unknown command 'frobnicate'"))

    def test_devices_are_a_result_with_and_without_a_gpu(self):
        done = hearth("devices")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual([line.split()[0] for line in done.stdout.splitlines()][:4],
                         ["CPU", "POOL", "RAM", "GPU"])
        report = json.loads(hearth("devices", "--json", "--threads", "1").stdout)
        self.assertEqual(report["cpu"]["isa"], report["cpu"]["isa_available"][0])
        self.assertEqual(report["cpu"]["isa_available"][-1], "scalar")
        self.assertEqual(report["cpu"]["threads"], 1)
        workers = report["cpu"]["workers"]
        self.assertEqual(len(workers["list"]), 1)
        self.assertTrue(workers["pinned"] or workers["warning"])
        self.assertGreater(report["cpu"]["read_bytes_per_sec"], 0)
        self.assertEqual(report["gpus"] == [], report["no_gpus_reason"] is not None)

    def test_bench_kernels_as_table_and_as_json(self):
        flags = ["bench", "kernels", "--shape", "64x32", "--memory", "16MiB",
                 "--seconds-per-case", "0.0002", "--filter", "expert_gate_up,top_k"]
        done = hearth(*flags, "--rows", "1,3")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("read rate of 1 core", done.stdout)
        self.assertIn("\nexpert_gate_up/nvfp4 64x64, ", done.stdout)
        self.assertIn("cases, about ", done.stderr)
        done = hearth(*flags, "--json", "--rows", "3", "--threads", "1", "--isa", "scalar")
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(list(report), ["machine", "settings", "cases"])
        for case in report["cases"]:
            self.assertEqual((case["isa"], case["rows"], case["threads"]), ("scalar", 3, 1))
            self.assertGreater(case["run_ns"], 0)
            self.assertGreater(case["read_fraction"], 0)
        self.assertEqual({case["residence"] for case in report["cases"]}, {"cache", "dram"})

    def test_bench_kernels_refuses_what_it_cannot_measure(self):
        for flags, code in ((["--filter", "nothing"], 2), (["--rows", "0"], 2),
                            (["--isa", "mmx"], 2), (["--memory", "1000TiB"], 4)):
            done = hearth("bench", "kernels", *flags)
            self.assertEqual((done.returncode, done.stdout), (code, ""), flags)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(flags[0][2:], done.stderr)

    def test_named_cpus_are_used_and_others_refused(self):
        cpu = max(os.sched_getaffinity(0))
        report = json.loads(hearth("devices", "--json", "--cpus", str(cpu)).stdout)
        self.assertEqual([w["cpu"] for w in report["cpu"]["workers"]["list"]], [cpu])
        for bad, code, form in (("x", 2, "such as 0-3,8"), ("1-", 2, "such as 0-3,8"),
                                ("65535", 1, "expected CPUs that this process may use")):
            done = hearth("devices", "--cpus", bad)
            self.assertEqual((done.returncode, done.stdout), (code, ""), bad)
            self.assertIn(form, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)

    def test_plan_follows_the_affinity_mask(self):
        cpu = min(os.sched_getaffinity(0))
        report = json.loads(hearth("devices", "--json",
                                   preexec_fn=lambda: os.sched_setaffinity(0, {cpu})).stdout)
        self.assertEqual(report["cpu"]["allowed_cpus"], 1)
        self.assertEqual([w["cpu"] for w in report["cpu"]["workers"]["list"]], [cpu])

    def test_a_full_disk_is_a_failure(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([BINARY, "--version"], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write the results", done.stderr)


if __name__ == "__main__":
    BINARY = sys.argv.pop(1)
    unittest.main()
