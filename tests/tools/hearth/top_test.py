"""hearth top on a terminal: what it draws is what --once prints, after a resize too; it sends only
what changes, comes back when the server does, and leaves the terminal as it was however it ends.

Tests tools/hearth/top_command.cc and tools/hearth/top/screen.cc."""
import codecs
import fcntl
import http.server
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest

HEARTH = sys.argv.pop(1)
SOURCE = pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(SOURCE / "tests/support"))

from terminal_screen import TerminalScreen  # pylint: disable=wrong-import-position

SNAPSHOT = (SOURCE / "tests/golden/top/busy.json").read_text(encoding="utf-8").strip()
PATIENCE_SEC = 60
UTF8 = {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}


def once(*flags, env=None):
    return subprocess.run([HEARTH, "top", *map(str, flags)], capture_output=True, text=True,
                          encoding="utf-8", timeout=PATIENCE_SEC, check=False,
                          stdin=subprocess.DEVNULL, env=env or UTF8)


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, *flags, rows=24, columns=80, env=None):
        self.screen = TerminalScreen(rows, columns)
        self.master, slave = pty.openpty()
        self.slave = slave
        self.received_bytes = 0
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self._set_size(rows, columns)
        self.before = termios.tcgetattr(slave)
        # pylint: disable-next=consider-using-with
        self.process = subprocess.Popen(
            [HEARTH, "top", *map(str, flags)], stdin=slave, stdout=slave, stderr=slave,
            env=env or UTF8, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0))

    def _set_size(self, rows, columns):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, rows, columns):
        self.screen.resize(rows, columns)
        self._set_size(rows, columns)
        self.process.send_signal(signal.SIGWINCH)

    def read(self, seconds):
        """What the program draws within that time."""
        ready, _, _ = select.select([self.master], [], [], seconds)
        if not ready:
            return
        data = os.read(self.master, 1 << 16)
        self.received_bytes += len(data)
        self.screen.feed(self.decoder.decode(data))

    def await_text(self, is_so):
        deadline = time.monotonic() + PATIENCE_SEC
        while not is_so(self.screen.text()):
            assert time.monotonic() < deadline, self.screen.text()
            self.read(0.1)

    def type(self, keys):
        os.write(self.master, keys)

    def end(self):
        """Its exit code; everything that it wrote has been read."""
        deadline = time.monotonic() + PATIENCE_SEC
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "does not end"
            self.read(0.05)
        while select.select([self.master], [], [], 0)[0]:
            self.read(0)
        return self.process.returncode

    def is_as_before(self):
        return (termios.tcgetattr(self.slave) == self.before and not self.screen.alternate and
                self.screen.cursor_shown)

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.master)
        os.close(self.slave)


class Server:
    """Answers with the snapshot; `start_id` may change, as after a restart."""

    def __init__(self, port=0, start_id=None):
        body = SNAPSHOT if start_id is None else SNAPSHOT.replace("5b1de20c3f00a917", start_id)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):  # pylint: disable=invalid-name
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):  # pylint: disable=arguments-differ
                pass

        http.server.ThreadingHTTPServer.allow_reuse_address = True
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


class TopTest(unittest.TestCase):
    def setUp(self):
        # pylint: disable-next=consider-using-with
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.recording = pathlib.Path(self.folder.name) / "recording.jsonl"
        self.recording.write_text(SNAPSHOT + "\n", encoding="utf-8")

    def terminal(self, *flags, **kwargs):
        terminal = Terminal(*flags, **kwargs)
        self.addCleanup(terminal.close)
        return terminal

    def picture(self, rows, columns):
        """As --once prints it, but for the last row, which tells of keys."""
        done = once("--replay", self.recording, "--once", "--rows", rows, "--columns", columns)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("\n")[:rows - 1]

    def await_picture(self, terminal, rows, columns):
        wanted = self.picture(rows, columns)
        # Heat is shades of one block where there are colours, and --once has none in a pipe.
        heights = str.maketrans("▁▂▃▄▅▆▇", "███████")

        def comparable(lines):
            return [line.translate(heights) for line in lines[:rows - 1]]

        terminal.await_text(lambda text: comparable(text.split("\n")) == comparable(wanted))

    def test_draws_what_once_prints_and_follows_the_size(self):
        terminal = self.terminal("--replay", self.recording)
        self.await_picture(terminal, 24, 80)
        self.assertTrue(terminal.screen.alternate)
        self.assertFalse(terminal.screen.cursor_shown)
        for rows, columns in ((60, 200), (10, 40), (24, 80)):
            terminal.resize(rows, columns)
            self.await_picture(terminal, rows, columns)
        terminal.type(b"q")
        self.assertEqual(terminal.end(), 0)
        self.assertTrue(terminal.is_as_before())

    def test_sends_nothing_while_nothing_changes(self):
        terminal = self.terminal("--replay", self.recording)
        terminal.await_text(lambda text: "end of the recording" in text)
        terminal.read(0.3)
        before = terminal.received_bytes
        for _ in range(10):  # ten frames
            terminal.read(0.1)
        self.assertLess(terminal.received_bytes - before, 200)

    def test_signals_leave_the_terminal_as_it_was(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            terminal = self.terminal("--replay", self.recording)
            terminal.await_text(lambda text: "TIERS" in text)
            terminal.process.send_signal(number)
            self.assertEqual(terminal.end(), 0)
            self.assertTrue(terminal.is_as_before(), number)

    def test_comes_back_when_the_server_does(self):
        server = Server()
        terminal = self.terminal("--url", f"http://127.0.0.1:{server.port}", "--interval", "0.1")
        terminal.await_text(lambda text: "qwen3.8-flash-next" in text)
        server.close()
        terminal.await_text(lambda text: "reconnecting for" in text)
        self.assertIn("qwen3.8-flash-next", terminal.screen.text())  # the last picture stays
        server = Server(server.port, start_id="0000000000000002")
        try:
            terminal.await_text(lambda text: "restarted 1x" in text and "reconnecting" not in text)
        finally:
            server.close()
        terminal.type(b"q")
        self.assertEqual(terminal.end(), 0)

    def test_waits_for_a_server_that_is_not_there_yet(self):
        server = Server()
        port = server.port
        server.close()
        terminal = self.terminal("--url", f"http://127.0.0.1:{port}", "--interval", "0.1")
        terminal.await_text(lambda text: "reconnecting for" in text)
        terminal.type(b"q")
        self.assertEqual(terminal.end(), 0)
        self.assertTrue(terminal.is_as_before())

    def test_a_dumb_terminal_gets_one_picture_and_a_note(self):
        for term in ("dumb", "no-such-terminal"):
            terminal = self.terminal("--replay", self.recording, env={**UTF8, "TERM": term})
            self.assertEqual(terminal.end(), 0)
            self.assertIn("CHANNELS", terminal.screen.text())
            self.assertFalse(terminal.screen.alternate)

    def test_without_a_terminal_it_says_so_and_prints_one_picture(self):
        done = once("--replay", self.recording)
        self.assertEqual(done.returncode, 0)
        self.assertIn("not a terminal: printing one picture", done.stderr)
        self.assertIn("qwen3.8-flash-next", done.stdout)
        self.assertNotIn("\x1b", done.stdout)

    def test_a_plain_locale_gets_plain_characters(self):
        done = once("--replay", self.recording, "--once", env={**UTF8, "LC_ALL": "C"})
        self.assertTrue(done.stdout.isascii())
        terminal = self.terminal("--replay", self.recording, env={**UTF8, "LC_ALL": "C"})
        terminal.await_text(lambda text: text.split("\n")[:23] == done.stdout.split("\n")[:23])

    def test_json_and_records_are_what_the_server_said(self):
        server = Server()
        record = pathlib.Path(self.folder.name) / "record.jsonl"
        try:
            done = once("--url", f"http://127.0.0.1:{server.port}", "--json", "--record", record)
        finally:
            server.close()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, SNAPSHOT + "\n")
        self.assertEqual(record.read_text(encoding="utf-8"), SNAPSHOT + "\n")

    def test_nobody_there_is_an_error_with_a_remedy(self):
        done = once("--url", "http://127.0.0.1:1", "--once")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is hearth serve running there?", done.stderr)
        self.assertEqual(done.stdout, "")

    def test_what_is_no_recording_is_an_error(self):
        self.recording.write_text("no JSON\n", encoding="utf-8")
        self.assertNotEqual(once("--replay", self.recording, "--once").returncode, 0)
        self.assertNotEqual(once("--replay", "/nowhere", "--once").returncode, 0)


if __name__ == "__main__":
    unittest.main()
