"""The ways in which `hearth serve` can be run: where experts are, how it listens, who may ask, how
it is told to stop and to look at its files again. The answer is the same in all of them.

usage: serve_modes_test.py HEARTH_BINARY SOURCE_DIR HEARTHD_BINARY
"""

import http.client
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

SOURCE = pathlib.Path(sys.argv[2]).resolve()
HEARTHD = sys.argv[3]
sys.path.insert(0, str(SOURCE / "tests/support"))
from hearth_cli import HEARTH, OK, RESOURCES, USAGE, build_flashlet, hearth  # noqa: E402

ASK = {"messages": [{"role": "user", "content": "Write a Python function named `is_empty`."}],
       "temperature": 0, "max_tokens": 48}
START_SEC = 60


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=START_SEC)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(START_SEC)
        self.sock.connect(self.path)


class Server:
    def __init__(self, pack, *flags):
        self.process = subprocess.Popen(
            [HEARTH, "serve", "--pack", str(pack), "--json", *map(str, flags)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("no server: " + self.process.stderr.read())
        self.ready = json.loads(line)

    def connection(self):
        if self.ready["ready"].startswith("unix:"):
            return UnixConnection(self.ready["ready"].removeprefix("unix:"))
        if self.ready["ready"].startswith("https:"):
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
            return http.client.HTTPSConnection("127.0.0.1", self.ready["port"], context=context,
                                               timeout=START_SEC)
        return http.client.HTTPConnection("127.0.0.1", self.ready["port"], timeout=START_SEC)

    def ask(self, body=None, key=None, path="/v1/chat/completions"):
        headers = {"Content-Type": "application/json"}
        if key:
            headers["Authorization"] = "Bearer " + key
        connection = self.connection()
        connection.request("POST", path, json.dumps(body or ASK), headers)
        reply = connection.getresponse()
        body = json.loads(reply.read())
        connection.close()
        return reply.status, body

    def get(self, path):
        connection = self.connection()
        connection.request("GET", path, headers={"Accept": "application/json"})
        body = json.loads(connection.getresponse().read())
        connection.close()
        return body

    def end(self, sent=signal.SIGTERM):
        self.process.send_signal(sent)
        _, talk = self.process.communicate(timeout=START_SEC)
        return self.process.returncode, talk


def text_of(reply):
    return reply["choices"][0]["message"]["content"]


class ServeModes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.pack = cls.folder / "flashlet.pack"
        build_flashlet(SOURCE, cls.pack)
        question = ASK["messages"][0]["content"]
        done = hearth("run", "--pack", cls.pack, "--chat", "--prompt", question, "--max-tokens",
                      ASK["max_tokens"], "--json")
        assert done.returncode == OK, done.stderr
        cls.expected = json.loads(done.stdout)["text"]

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def answers(self, *flags, services=()):
        server = Server(self.pack, "--port", 0, "--log", "error", *flags)
        status, reply = server.ask()
        experts = reply["usage"]["hearth"]["experts"]
        code, talk = server.end()
        self.assertEqual((status, code, text_of(reply)), (200, OK, self.expected), talk)
        for service in services:
            self.assertGreater(experts[service]["entries"], 0, f"{flags}: {experts}")
        return reply

    def test_the_answer_is_that_of_run_wherever_the_experts_are(self):
        self.answers(services=["cpu"])
        self.answers("--slots", "40%", services=["vram", "cpu"])
        self.answers("--ram-budget", "6MiB", services=["cpu", "ssd"])
        self.answers("--mmap-experts", services=["cpu"])
        self.answers("--spec", 0, "--sequences", 1)

    def test_a_daemon_may_hold_the_experts(self):
        path = self.folder / "hearthd.sock"
        daemon = subprocess.Popen([HEARTHD, "--pack", self.pack, "--socket", path, "--ram-budget",
                                   "6MiB"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        daemon.stdout.readline()
        self.answers("--daemon", path, "--slots", "20%", services=["vram"])
        daemon.terminate()
        daemon.wait(timeout=START_SEC)
        daemon.stdout.close()

    def test_a_socket_of_this_user(self):
        path = self.folder / "serve.sock"
        server = Server(self.pack, "--unix-socket", path)
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertEqual(text_of(server.ask()[1]), self.expected)
        self.assertEqual(server.end()[0], OK)
        self.assertFalse(path.exists(), "the socket's file is left behind")

    def test_keys_are_asked_for_and_read_anew(self):
        made = [json.loads(hearth("key", "make", "--name", name, "--json").stdout)
                for name in ("ann", "bob")]
        keys = self.folder / "keys"
        keys.write_text(made[0]["line"] + "\n", encoding="ascii")
        self.assertNotIn(made[0]["key"], keys.read_text(encoding="ascii"))
        config = self.folder / "serve.toml"
        config.write_text(f"port = 0\napi_keys = '{keys}'\nlog = 'error'\n", encoding="utf-8")
        server = Server(self.pack, "--config", config)
        self.assertEqual(server.ask()[0], 401)
        self.assertEqual(server.ask(key=made[1]["key"])[0], 401)
        self.assertEqual(text_of(server.ask(key=made[0]["key"])[1]), self.expected)
        self.assertEqual(server.get("/health")["status"], "ok")
        keys.write_text(made[1]["line"] + "\n", encoding="ascii")
        config.write_text(f"port = 0\napi_keys = '{keys}'\nlog = 'info'\n", encoding="utf-8")
        server.process.send_signal(signal.SIGHUP)
        for _ in range(200):
            if server.ask(key=made[1]["key"])[0] == 200:
                break
            time.sleep(0.05)
        self.assertEqual(server.ask(key=made[0]["key"])[0], 401)
        code, talk = server.end()
        self.assertEqual(code, OK)
        self.assertIn("key=bob 200", talk)
        for key in made:
            self.assertNotIn(key["key"], talk)

    def test_tls(self):
        certificate, key = self.folder / "cert.pem", self.folder / "key.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
                        "-subj", "/CN=localhost", "-keyout", key, "-out", certificate],
                       check=True, capture_output=True)
        self.answers("--tls-certificate", certificate, "--tls-key", key)

    def test_what_is_at_hand_is_finished_at_sigterm_and_cut_when_it_takes_too_long(self):
        long = {**ASK, "max_tokens": 400, "ignore_eos": True}
        server = Server(self.pack, "--port", 0)
        replies = []
        asking = threading.Thread(target=lambda: replies.append(server.ask(long)))
        asking.start()
        while server.get("/health")["requests_running"] == 0 and asking.is_alive():
            time.sleep(0.002)
        code, talk = server.end()
        asking.join()
        self.assertEqual(code, OK)
        self.assertEqual(replies[0][0], 200, "an answer at hand was not finished: " + talk)
        self.assertEqual(replies[0][1]["usage"]["completion_tokens"], 400)
        server = Server(self.pack, "--port", 0, "--drain-sec", 0)
        connection = server.connection()
        body = {**long, "max_tokens": 8000, "stream": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body),
                           {"Content-Type": "application/json"})
        connection.getresponse().read(10)
        self.assertEqual(server.end()[0], OK)
        connection.close()

    def test_kept_prompts_outlive_the_server(self):
        kept = self.folder / "prefixes"
        text = " ".join(f"Chapter {i} of the old book is about the river." for i in range(60))
        question = {**ASK, "messages": [{"role": "user", "content": text}], "max_tokens": 12}
        answers = []
        for turn in range(2):
            server = Server(self.pack, "--port", 0, "--prefix-dir", kept, "--prefix-disk", "64MiB")
            first = server.ask(question)[1]
            again = server.ask(question)[1]
            self.assertEqual(server.end()[0], OK)
            answers += [text_of(first), text_of(again)]
            cached = [r["usage"]["prompt_tokens_details"]["cached_tokens"] for r in (first, again)]
            self.assertEqual(cached[0] > 0, turn == 1, cached)
            self.assertGreater(cached[1], 0)
        self.assertEqual(len(set(answers)), 1, answers)

    def test_what_cannot_be_is_refused_before_anything_is_loaded(self):
        def refused(code, *flags):
            done = hearth("serve", "--pack", self.pack, *flags, timeout=START_SEC)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertEqual(done.stdout, "")
            self.assertNotIn("workers pinned", done.stderr if code != RESOURCES else "")
            return done.stderr
        self.assertIn("--api-keys", refused(1, "--host", "0.0.0.0", "--port", 0))
        self.assertIn("has no effect", refused(USAGE, "--unix-socket", "/x", "--port", 3))
        self.assertIn("--tls-key", refused(USAGE, "--tls-certificate", "/x"))
        self.assertIn("/nowhere", refused(5, "--api-keys", "/nowhere", "--port", 0))
        self.assertIn("did you mean --sequences", refused(USAGE, "--sequence", 3))
        self.assertIn("does not fit", refused(RESOURCES, "--prefix-ram-bytes", "100TiB"))
        taken = socket.create_server(("127.0.0.1", 0))
        self.assertIn("in use", refused(1, "--port", taken.getsockname()[1]))
        taken.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
