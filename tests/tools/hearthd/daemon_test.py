"""hearthd as a user has it: engines get the answer of a run without it, to the bit, cold and warm,
side by side, and when the daemon or another engine is killed in between.

usage: daemon_test.py HEARTH_BINARY HEARTHD_BINARY SOURCE_DIR
"""

import json
import os
import pathlib
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from hearth_cli import HEARTH, OK, build_flashlet, hearth

HEARTHD = sys.argv[2]
SOURCE = pathlib.Path(sys.argv[3])


class Daemon:
    """A hearthd that serves until the block ends."""

    def __init__(self, pack, socket, budget="6MiB", *flags):
        self.socket = socket
        self.process = subprocess.Popen(
            [HEARTHD, "--pack", str(pack), "--socket", str(socket), "--ram-budget", budget,
             *map(str, flags)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.first_line = self.process.stdout.readline()  # printed when engines can connect
        if not self.first_line:
            raise AssertionError(self.process.communicate()[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.process.communicate(timeout=60)


class DaemonTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.temp.name)
        cls.pack = cls.dir / "flashlet.pack"
        build_flashlet(SOURCE, cls.pack)
        cls.prompt = (SOURCE / "README.md").read_text()[:800]
        cls.socket = cls.dir / "hearthd.sock"
        cls.base = json.loads(hearth(*cls.command(60)).stdout)
        cls.long_base = json.loads(hearth(*cls.command(500)).stdout)

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    @classmethod
    def command(cls, tokens, *flags):
        return ("run", "--pack", cls.pack, "--prompt", cls.prompt, "--max-tokens", tokens,
                "--ignore-eos", "--json", *flags)

    def answer(self, *flags):
        done = hearth(*self.command(60, "--daemon", self.socket, *flags))
        self.assertEqual(done.returncode, OK, done.stderr)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["logits_xxh3"], self.base["logits_xxh3"])
        self.assertEqual(answer["ledger"]["total"]["distinct"],
                         self.base["ledger"]["total"]["distinct"])
        return answer

    def start(self, tokens, *flags):
        return subprocess.Popen([HEARTH, *map(str, self.command(tokens, "--daemon", self.socket,
                                                                *flags))],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def test_cold_and_warm_with_and_without_slots(self):
        with Daemon(self.pack, self.socket):
            cold = self.answer()
            self.assertGreater(cold["ledger"]["ssd"]["distinct"], 0)
            self.answer("--slots", "30%", "--pcie-share", "0.5")
            warm = self.answer("--slots", "30%")
            self.assertGreater(warm["experts"]["hit_rate"], 0.2)
            self.assertLess(warm["timings"]["load_sec"], 2)

    def test_the_socket_is_for_its_owner(self):
        with Daemon(self.pack, self.socket):
            self.assertEqual(stat.S_IMODE(os.stat(self.socket).st_mode), 0o600)

    def test_engines_side_by_side(self):
        with Daemon(self.pack, self.socket):
            engines = [self.start(60, *flags) for flags in ((), ("--slots", "20%"), ())]
            for engine in engines:
                out, err = engine.communicate(timeout=120)
                self.assertEqual(engine.returncode, OK, err)
                self.assertEqual(json.loads(out)["logits_xxh3"], self.base["logits_xxh3"])

    def test_a_killed_daemon_does_not_change_the_answer(self):
        for flags in ((), ("--slots", "20%")):
            daemon = Daemon(self.pack, self.socket, "2MiB")
            engine = self.start(500, *flags)
            self.await_engine(daemon)
            daemon.stop(signal.SIGKILL)
            out, err = engine.communicate(timeout=240)
            self.assertEqual(engine.returncode, OK, err)
            answer = json.loads(out)
            self.assertEqual(answer["logits_xxh3"], self.long_base["logits_xxh3"])
            self.assertIn("hearthd", " ".join(answer["experts"]["notes"]))

    def test_an_engine_goes_on_with_the_next_daemon(self):
        daemon = Daemon(self.pack, self.socket, "2MiB")
        engine = self.start(500)
        self.await_engine(daemon)
        daemon.stop(signal.SIGKILL)
        with Daemon(self.pack, self.socket, "3MiB"):
            out, err = engine.communicate(timeout=240)
            self.assertEqual(engine.returncode, OK, err)
            self.assertEqual(json.loads(out)["logits_xxh3"], self.long_base["logits_xxh3"])

    def test_a_killed_engine_leaves_nothing_behind(self):
        with Daemon(self.pack, self.socket, "400KiB") as daemon:  # hardly a block to spare
            for _ in range(5):
                engine = self.start(500)
                self.await_engine(daemon)
                engine.kill()
                engine.communicate()
            self.answer()

    def await_engine(self, daemon):
        """Until the daemon has said that an engine has come, and a little of its run."""
        for line in daemon.process.stderr:
            if "has come" in line:
                break
        time.sleep(0.2)

    def test_heat_outlives_the_daemon(self):
        state = self.dir / "heat.state"
        with Daemon(self.pack, self.socket, "2MiB", "--state", state):
            self.answer()
        self.assertTrue(state.exists())
        with Daemon(self.pack, self.socket, "2MiB", "--state", state):
            warm = self.answer("--slots", "20%")
            self.assertGreater(warm["ledger"]["vram"]["distinct"], 0)

    def test_refusals_say_what_to_do(self):
        done = hearth(*self.command(1, "--daemon", self.dir / "nobody.sock"))
        self.assertNotEqual(done.returncode, OK)
        self.assertIn("nobody.sock", done.stderr)
        other = self.dir / "other.pack"
        made = hearth("pack", "synth", "--out", other, "--like", "flashlet")
        self.assertEqual(made.returncode, OK, made.stderr)
        with Daemon(other, self.socket):
            done = hearth(*self.command(1, "--daemon", self.socket))
            self.assertNotEqual(done.returncode, OK)
            self.assertIn("pack", done.stderr)
            second = subprocess.run([HEARTHD, "--pack", other, "--socket", self.socket,
                                     "--ram-budget", "6MiB"], capture_output=True, text=True,
                                    check=False, timeout=60)
            self.assertNotEqual(second.returncode, OK)
            self.assertIn(str(self.socket), second.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=1)
