"""hearth replay and tools/routes_to_trace.py: made-up traces, every way to be refused, and the
default policy on the learned routes of ../shared/replay where they are at hand.

usage: replay_test.py HEARTH_BINARY SOURCE_DIR
"""

import csv
import io
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import zipfile

HEARTH = sys.argv[1]
SOURCE = pathlib.Path(sys.argv[2])
ROUTES = SOURCE / "../shared/replay/routes"
IMPORTER = SOURCE / "tools/routes_to_trace.py"
OK, FAILURE, USAGE, DAMAGED, RESOURCES, NOT_FOUND = range(6)


def run(*args):
    return subprocess.run([*map(str, args)], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)


def replay(*args):
    return run(HEARTH, "replay", *args)


def replay_rows(*args):
    done = replay(*args, "--json")
    assert done.returncode == OK, done.stderr
    return json.loads(done.stdout)["results"]


def npy(kind, shape, data):
    header = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def write_npz(path, tokens, columns, ranks, segment):
    """Routes in which token t of column c chooses experts (t + c + rank) mod 16."""
    routes = [(t + c + r) % 16 for t in range(tokens) for c in range(columns) for r in range(ranks)]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("routes.npy", npy("<u2", (tokens, columns, ranks),
                                           struct.pack(f"<{len(routes)}H", *routes)))
        archive.writestr("segment.npy", npy("<i8", (), struct.pack("<q", segment)))


class Replay(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def refused(self, code, part, *args):
        done = replay(*args)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        self.assertIn(part, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_table_and_csv_and_json_say_the_same(self):
        flags = ["--synthetic", "sticky", "--tokens", 600, "--layers", 2, "--slots", "25%,100",
                 "--window", "4", "--policy", "lru,static"]
        table = replay(*flags)
        self.assertEqual(table.returncode, OK, table.stderr)
        rows = list(csv.DictReader(io.StringIO(replay(*flags, "--csv").stdout)))
        results = replay_rows(*flags)
        self.assertEqual([r["policy"] for r in rows],
                         ["belady", "static-oracle", "lru", "static"] * 2)
        self.assertEqual([r["policy"] for r in results], [r["policy"] for r in rows])
        for row, result in zip(rows, results):
            self.assertAlmostEqual(float(row["hit_rate"]), result["hit_rate"], 5)
            self.assertEqual(int(row["slots"]), result["slots"])
            self.assertIn(f"{result['hit_rate']:.4f}", table.stdout)
            self.assertLessEqual(result["hit_rate"], results[0 if result["slots"] == 256 else 4]
                                 ["hit_rate"])
            self.assertAlmostEqual(result["hit_rate"], result["distinct_hits"] / result["distinct"])
            self.assertEqual(sum(l["distinct"] for l in result["layers"]), result["distinct"])
        self.assertEqual({r["slots"] for r in results}, {256, 100})

    def test_threads_do_not_change_the_results(self):
        flags = ["--synthetic", "diffuse", "--tokens", 400, "--layers", 2, "--slots", "20%"]
        found = [[(r["policy"], r["distinct_hits"], r["uploads"]) for r in
                  replay_rows(*flags, "--threads", n)] for n in (1, 2)]
        self.assertEqual(found[0], found[1])

    def test_what_cannot_be_replayed_is_refused(self):
        self.refused(USAGE, "exactly one of them, found neither")
        self.refused(USAGE, "synthetic: found 'wavy', expected diffuse or sticky",
                     "--synthetic", "wavy")
        self.refused(USAGE, "window: found '9', expected whole numbers from 1 to 8",
                     "--synthetic", "sticky", "--window", "9")
        self.refused(USAGE, "slots: found '0'", "--synthetic", "sticky", "--slots", "0")
        self.refused(NOT_FOUND, "found 'lruu', expected one of lru, l", "--synthetic", "sticky",
                     "--policy", "lruu")
        self.refused(NOT_FOUND, "nowhere.trace", "--trace", self.folder / "nowhere.trace")
        (self.folder / "bad.trace").write_bytes(b"HRTROUTE" + bytes(200))
        self.refused(DAMAGED, "version: found 0", "--trace", self.folder / "bad.trace")
        self.refused(FAILURE, "slots: found 5000, expected at most 1024", "--synthetic", "sticky",
                     "--tokens", 50, "--layers", 2, "--slots", 5000)

    def test_imported_routes_are_those_of_the_file(self):
        write_npz(self.folder / "a.npz", 40, 2, 3, 10)
        out = self.folder / "a.trace"
        done = run(sys.executable, IMPORTER, "--layers", 3, "--experts", 16, "--out", out,
                   self.folder / "a.npz")
        self.assertEqual(done.returncode, 0, done.stderr)
        data = out.read_bytes()
        self.assertEqual(struct.unpack_from("<8sIIIIIIQQ", data),
                         (b"HRTROUTE", 1, 0, 3, 16, 3, 0, 40, 4))
        self.assertEqual(struct.unpack_from("<4Q", data, 112), (0, 10, 20, 30))
        routes = struct.unpack_from("<360H", data, 144)
        self.assertEqual(routes[9 * 7:9 * 8], (7, 8, 9, 8, 9, 10, 1, 2, 3))  # 17 mod 16 is 1
        rows = replay_rows("--trace", out, "--slots", "50%", "--policy", "lru", "--window", "2")
        self.assertEqual(rows[0]["windows"], 15)  # 20 windows, a quarter warms up

    def test_files_take_turns(self):
        for name, tokens in (("a", 30), ("b", 10)):
            write_npz(self.folder / f"{name}.npz", tokens, 1, 2, 10)
        out = self.folder / "mix.trace"
        done = run(sys.executable, IMPORTER, "--turn", 8, "--experts", 16, "--out", out,
                   self.folder / "a.npz", self.folder / "b.npz")
        self.assertEqual(done.returncode, 0, done.stderr)
        tokens, texts = struct.unpack_from("<QQ", out.read_bytes(), 32)
        begins = struct.unpack_from(f"<{texts}Q", out.read_bytes(), 112)
        self.assertEqual(tokens, 40)
        # a 0-8, b 0-8, a 8-16 (a text begins at its 10), b 8-10, a 16-24 (20), a 24-30
        self.assertEqual(begins, (0, 8, 16, 18, 24, 26, 30, 34))

    def test_files_that_are_no_routes_are_refused(self):
        (self.folder / "x.npz").write_bytes(b"no zip")
        out = self.folder / "x.trace"
        done = run(sys.executable, IMPORTER, "--out", out, self.folder / "x.npz")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("routes_to_trace.py: ", done.stderr)
        write_npz(self.folder / "a.npz", 10, 1, 2, 10)
        done = run(sys.executable, IMPORTER, "--experts", 8, "--out", self.folder / "x.trace",
                   self.folder / "a.npz")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected experts below 8", done.stderr)


class LearnedRoutes(unittest.TestCase):
    """Every domain and the mix: never below LRU nor the static oracle, at most two swaps."""

    def check(self, turn, names):
        files = [ROUTES / f"routes-{name}.npz" for name in names]
        if not all(file.exists() for file in files):
            self.skipTest(f"{files[0]} is not here")
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "routes.trace"
            done = run(sys.executable, IMPORTER, "--turn", turn, "--out", trace, *files)
            self.assertEqual(done.returncode, 0, done.stderr)
            for layout in ([], ["--per-layer"]):
                rows = replay_rows("--trace", trace, "--tokens", 8192, "--slots", "18%,40%",
                                   "--policy", "forecast,lru", *layout)
                for i in range(0, len(rows), 4):
                    _, oracle, shipped, lru = rows[i:i + 4]
                    what = (names, shipped["window_tokens"], shipped["slot_share"], layout)
                    self.assertGreater(shipped["hit_rate"], lru["hit_rate"], what)
                    self.assertGreater(shipped["hit_rate"], oracle["hit_rate"], what)
                    self.assertLessEqual(shipped["uploads_per_layer"], 2, what)
                    self.assertGreaterEqual(shipped["gap_closed"], 0.2, what)

    def test_english(self):
        self.check(0, ["en"])

    def test_python(self):
        self.check(0, ["python"])

    def test_mix(self):
        self.check(2048, ["chat", "en", "zh"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
