"""hearth profile and its group as a user has them, on the model that ships with the project:
profiles of texts, reports, merging, differences, and every way to be refused.

usage: profile_test.py HEARTH_BINARY SOURCE_DIR
"""

import html.parser
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from hearth_cli import DAMAGED, HEARTH, NOT_FOUND, OK, USAGE, build_flashlet, hearth

SOURCE = pathlib.Path(sys.argv[2])
SHIPPED = SOURCE / "profiles/routing/flashlet.profile.json"


class Page(html.parser.HTMLParser):
    """Collects what a page refers to and whether its elements are closed in order."""

    VOID = {"meta", "line", "polyline", "rect", "circle"}

    def __init__(self):
        super().__init__()
        self.open, self.faults, self.references, self.tags = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [v for k, v in attrs if k in ("src", "href", "xlink:href", "data")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.references += [v for k, v in attrs if k in ("src", "href", "xlink:href", "data")]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.faults.append(tag)


class Profile(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.temp.name)
        cls.pack = cls.dir / "pack"
        cls.q8 = cls.dir / "q8"
        for out, dense in ((cls.pack, "bf16"), (cls.q8, "q8_0")):
            build_flashlet(SOURCE, out, "--dense", dense)
        cls.code = SOURCE / "tools/hearth/main.cc"
        cls.prose = SOURCE / "profiles/README.md"
        cls.a, cls.trace = cls.dir / "a.json", cls.dir / "a.trace"
        done = hearth("profile", "--pack", cls.pack, "--text", cls.code, "--text", cls.prose,
                      "--tokens-max", 400, "--out", cls.a, "--trace", cls.trace, "--json")
        assert done.returncode == OK, done.stderr
        cls.result = json.loads(done.stdout)

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    def refused(self, done, code, *words):
        self.assertEqual(done.returncode, code, done.stderr)
        lines = [line for line in done.stderr.splitlines() if line.startswith("hearth: ")]
        for word in words:
            self.assertIn(str(word), lines[-1])
        self.assertEqual(done.stdout, "")

    def test_profile_counts_every_token(self):
        profile = json.loads(self.a.read_text())
        self.assertEqual([d["name"] for d in profile["domains"]], ["main", "README"])
        for domain in profile["domains"]:
            entries = domain["token_count"] * profile["experts_per_token"]
            sums = [sum(row) for row in domain["counts"]]
            self.assertEqual(sums[:8], [entries] * 8)
            self.assertEqual(sums[8], entries - profile["experts_per_token"], "all but the last")
        self.assertEqual(self.result["tokens"], profile["token_count"])
        self.assertEqual(self.result["trace_tokens"], profile["token_count"])
        for domain in self.result["domains"]:
            self.assertEqual(domain["distinct_per_window"]["1"], 6)
            self.assertTrue(6 < domain["distinct_per_window"]["4"] < 24)
            hot = list(domain["traffic_of_hottest"].values())
            self.assertEqual(hot, sorted(hot))

    def test_chunks_threads_and_packs_of_one_checkpoint(self):
        other = self.dir / "other.json"
        done = hearth("profile", "--pack", self.pack, "--text", self.code, "--text", self.prose,
                      "--tokens-max", 400, "--out", other, "--threads", 1)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(other.read_text(), self.a.read_text())
        # Parts of another length round differently: a near tie may go the other way.
        done = hearth("profile", "--pack", self.pack, "--text", self.code, "--text", self.prose,
                      "--tokens-max", 400, "--out", other, "--prompt-chunk-tokens", 50)
        self.assertEqual(done.returncode, OK, done.stderr)
        parts, whole = json.loads(other.read_text()), json.loads(self.a.read_text())
        for a, b in zip(parts["domains"], whole["domains"], strict=True):
            moved = sum(abs(x - y) for r, t in zip(a["counts"], b["counts"], strict=True)
                        for x, y in zip(r, t, strict=True))
            self.assertLess(moved, 0.005 * sum(map(sum, b["counts"])))
        # Another format of the same checkpoint has the same identity.
        done = hearth("profile", "--pack", self.q8, "--text", self.code, "--tokens-max", 40,
                      "--out", other)
        self.assertEqual(done.returncode, OK, done.stderr)
        diff = hearth("profile", "diff", "--profile", self.a, "--profile", other)
        self.assertEqual(diff.returncode, OK, diff.stderr)

    def test_domains_by_folder(self):
        for name in ("x", "y"):
            (self.dir / "texts" / name).mkdir(parents=True, exist_ok=True)
            for part in ("1.txt", "2.txt"):
                (self.dir / "texts" / name / part).write_text("one two three " * 5)
        texts = [a for p in sorted(self.dir.glob("texts/*/*.txt")) for a in ("--text", p)]
        out = self.dir / "folders.json"
        done = hearth("profile", "--pack", self.pack, *texts, "--domain-by", "folder", "--out", out)
        self.assertEqual(done.returncode, OK, done.stderr)
        profile = json.loads(out.read_text())
        self.assertEqual([d["name"] for d in profile["domains"]], ["x", "y"])
        self.assertEqual(profile["domains"][0]["counts"], profile["domains"][1]["counts"])

    def test_report_is_one_whole_page_without_references(self):
        page = self.dir / "report.html"
        done = hearth("profile", "report", "--profile", self.a, "--trace", self.trace, "--out",
                      page, "--json")
        self.assertEqual(done.returncode, OK, done.stderr)
        facts = json.loads(done.stdout)
        self.assertEqual([r["window_tokens"] for r in facts["trace"]["replays"]], [1, 4])
        names = {p["policy"] for p in facts["trace"]["replays"][0]["policies"]}
        self.assertLessEqual({"static", "lru", "two-scale", "belady"}, names)
        self.assertEqual(len(facts["trace"]["distinct"]), 8)
        text = page.read_text()
        parsed = Page()
        parsed.feed(text)
        self.assertEqual((parsed.faults, parsed.open, parsed.references), ([], [], []))
        self.assertNotIn("http", text)
        for tag in ("svg", "canvas", "table"):
            self.assertIn(tag, parsed.tags)
        plain = hearth("profile", "report", "--profile", self.a)
        self.assertEqual(plain.returncode, OK, plain.stderr)
        self.assertIn("8+1 layers x 64 experts", plain.stdout)
        self.assertIn("README", plain.stdout)

    def test_merge_and_diff(self):
        merged = self.dir / "merged.json"
        done = hearth("profile", "merge", "--profile", self.a, "--profile", self.a, "--out",
                      merged, "--json")
        self.assertEqual(done.returncode, OK, done.stderr)
        once, twice = json.loads(self.a.read_text()), json.loads(merged.read_text())
        self.assertEqual(twice["token_count"], 2 * once["token_count"])
        self.assertEqual(twice["domains"][1]["counts"][7],
                         [2 * n for n in once["domains"][1]["counts"][7]])
        diff = hearth("profile", "diff", "--profile", self.a, "--profile", merged, "--json")
        answer = json.loads(diff.stdout)
        self.assertAlmostEqual(answer["mean_total_variation"], 0)
        self.assertEqual(answer["mean_shared_hot"], 1)
        self.assertEqual(len(answer["layers"]), 9)

    def test_shipped_profile_is_of_the_shipped_model(self):
        done = hearth("profile", "diff", "--profile", self.a, "--profile", SHIPPED, "--json")
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertLess(json.loads(done.stdout)["mean_total_variation"], 0.6)

    def test_damaged_and_foreign_profiles_are_refused_by_name(self):
        text = self.a.read_text()
        bad = self.dir / "bad.json"
        cases = [("", DAMAGED), (text[:1000], DAMAGED), (text.replace("6", "7", 1), None),
                 (text.replace('"token_count"', '"token_sum"', 1), DAMAGED), ("[]", None),
                 ("\0\1\2", None)]
        for content, code in cases:
            bad.write_text(content)
            for command in (("report", "--profile", bad),
                            ("diff", "--profile", self.a, "--profile", bad),
                            ("merge", "--profile", bad, "--profile", self.a, "--out",
                             self.dir / "never.json")):
                done = hearth("profile", *command)
                self.assertNotEqual(done.returncode, OK)
                self.refused(done, done.returncode if code is None else code, bad)
        self.assertFalse((self.dir / "never.json").exists())

    def test_usage_faults(self):
        self.refused(hearth("profile", "--pack", self.pack, "--text", self.code), USAGE, "--out")
        self.refused(hearth("profile", "--text", self.code, "--out", "x"), USAGE, "--pack")
        self.refused(hearth("profile", "merge", "--profile", self.a, "--out", "x"), USAGE,
                     "--profile", "found 1")
        self.refused(hearth("profile", "diff", "--profile", self.a), USAGE, "expected two")
        self.refused(hearth("profile", "report"), USAGE, "--profile")
        self.refused(hearth("profile", "report", "--profile", self.a, "--trace-tokens-max", 5),
                     USAGE, "--trace-tokens-max")
        out = self.dir / "never.json"
        missing = self.dir / "missing.txt"
        self.refused(hearth("profile", "--pack", self.pack, "--text", missing, "--out", out),
                     NOT_FOUND, missing)
        empty = self.dir / "empty.txt"
        empty.write_text("")
        done = hearth("profile", "--pack", self.pack, "--text", empty, "--out", out)
        self.refused(done, done.returncode, empty, "empty")
        self.assertFalse(out.exists())

    def test_a_folder_that_cannot_be_written_is_named_before_the_work(self):
        folder = self.dir / "none"
        done = hearth("profile", "--pack", self.pack, "--text", self.code, "--out",
                      folder / "p.json")
        self.refused(done, NOT_FOUND, folder)
        self.assertNotIn("workers", done.stderr)
        if os.getuid() != 0:
            return
        done = hearth("profile", "--pack", self.pack, "--text", self.code, "--out",
                      "/proc/p.json")
        self.refused(done, done.returncode, "/proc")

    def test_killed_run_leaves_the_old_profile(self):
        out = self.dir / "kept.json"
        out.write_text(self.a.read_text())
        long_text = self.dir / "long.txt"
        long_text.write_text(self.code.read_text() * 200)
        process = subprocess.Popen([HEARTH, "profile", "--pack", str(self.pack), "--text",
                                    str(long_text), "--out", str(out)],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.3)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertEqual(out.read_text(), self.a.read_text())
        self.assertEqual(hearth("profile", "report", "--profile", out).returncode, OK)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
