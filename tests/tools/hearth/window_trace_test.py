"""--trace-window of run, score and bench window, without a card: a file that Perfetto opens, with a
named lane for every side that had a part in the window, spans in order and within it; and refusals.

usage: window_trace_test.py HEARTH_BINARY SOURCE_DIR
"""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from hearth_cli import FAILURE, NOT_FOUND, OK, USAGE, build_flashlet, hearth

SOURCE = pathlib.Path(sys.argv[2])


class WindowTrace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.temp.name)
        cls.pack = cls.dir / "flashlet.pack"
        build_flashlet(SOURCE, cls.pack)
        cls.text = cls.dir / "text"
        cls.text.write_text((SOURCE / "README.md").read_text()[:600])
        cls.file = cls.dir / "window.json"

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    def run_model(self, *flags, tokens=24, code=OK):
        done = hearth("run", "--pack", self.pack, "--prompt", "def read(path):", "--max-tokens",
                      tokens, "--ignore-eos", "--json", *flags)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def check(self):
        """Title and lanes of the file: the names of each lane's spans, by the lane's name."""
        trace = json.loads(self.file.read_text())
        self.file.unlink()
        rows, spans, window = {}, {}, None
        for event in trace["traceEvents"]:
            if event["ph"] == "X":
                spans.setdefault(event["tid"], []).append(event)
                if event["name"] == "window":
                    window = event
            elif event["name"] == "thread_name":
                rows[event["tid"]] = event["args"]["name"]
        self.assertEqual(set(rows), set(spans))
        end = window["ts"] + window["dur"]
        lanes = {}
        for tid, row in spans.items():
            lane = rows[tid].split(" (")[0]
            lanes.setdefault(lane, set()).update(span["name"] for span in row)
            self.assertEqual([s["ts"] for s in row], sorted(s["ts"] for s in row), lane)
            open_until = []
            for span in row:
                self.assertGreaterEqual(span["ts"], window["ts"])
                self.assertLessEqual(span["ts"] + span["dur"], end + 0.002)
                while open_until and open_until[-1] <= span["ts"] + 0.002:
                    open_until.pop()
                if open_until:
                    self.assertLessEqual(span["ts"] + span["dur"], open_until[-1] + 0.002, lane)
                open_until.append(span["ts"] + span["dur"])
        self.assertEqual(trace["otherData"]["dropped_spans"], 0)
        # On a busy machine one of them may have had nothing to do.
        self.assertTrue([lane for lane in lanes if lane.startswith("CPU worker ")])
        return trace["otherData"]["title"], lanes

    def test_a_windows_lanes_are_those_of_the_machine(self):
        budget = (self.pack / "experts.bin").stat().st_size // 4
        answer = json.loads(self.run_model("--slots", "20%", "--pcie-share", 1, "--ram-budget",
                                           f"{budget}B", "--threads", 2, "--trace-window",
                                           self.file).stdout)
        title, lanes = self.check()
        self.assertIn(f"window {answer['timings']['windows'] - 1}", title)
        self.assertLessEqual({"CPU passes", "NVMe", "copy"}, set(lanes))
        self.assertLessEqual({"window", "draft", "trunk", "head", "commit"}, lanes["CPU passes"])
        plain = json.loads(self.run_model("--threads", 2).stdout)
        self.assertEqual(answer["logits_xxh3"], plain["logits_xxh3"])

    def test_any_window_can_be_asked_for(self):
        self.run_model("--trace-window", self.file, "--trace-window-index", 0, "--spec", 0)
        title, lanes = self.check()
        self.assertTrue(title.endswith("window 0"), title)
        self.assertNotIn("draft", lanes["CPU passes"])
        done = self.run_model("--trace-window", self.file, "--trace-window-index", 1000,
                              code=FAILURE)
        self.assertIn("window 1000 was asked for, found ", done.stderr)
        self.assertIn("output_tokens", json.loads(done.stdout))
        self.assertFalse(self.file.exists())

    def test_scoring_in_windows_has_them_too(self):
        done = hearth("score", "--pack", self.pack, "--text", self.text, "--window", 3,
                      "--trace-window", self.file)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("trunk", self.check()[1]["CPU passes"])
        done = hearth("score", "--pack", self.pack, "--text", self.text, "--trace-window",
                      self.file)
        self.assertEqual(done.returncode, USAGE)
        self.assertIn("without window", done.stderr)

    def test_the_last_line_of_the_benchmark_has_one(self):
        done = hearth("bench", "window", "--like", "small", "--layers", 4, "--experts", 32,
                      "--rows", "1,4", "--slots", "25%,50%", "--windows", 3, "--warm-up-windows", 2,
                      "--device", "cpu", "--scratch", self.dir, "--trace-window", self.file)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("50% slots, 4 rows, auto over the link, window 2", self.check()[0])

    def test_what_cannot_be_is_refused_before_anything_is_loaded(self):
        done = self.run_model("--trace-window", self.dir / "no/such/trace.json", code=NOT_FOUND)
        self.assertIn("no/such/trace.json", done.stderr)
        self.assertEqual(done.stdout, "")
        done = self.run_model("--trace-window-index", 3, code=USAGE)
        self.assertIn("without trace_window", done.stderr)
        done = self.run_model("--trace-window", self.file, tokens=1, code=USAGE)
        self.assertIn("max_tokens 1", done.stderr)
        done = hearth("profile", "--pack", self.pack, "--text", self.text, "--out",
                      self.dir / "profile", "--trace-window", self.file)
        self.assertEqual(done.returncode, USAGE)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
