"""`hearth serve` under load on the shipped model: many streaming clients at once, each of whose
answers must be the one that it gets alone; then clients that vanish, dawdle and send rubbish, after
which nothing may be left at work.

usage: serve_load_test.py HEARTH_BINARY SOURCE_DIR [SECONDS]

SECONDS of load; 8 where none is said. Prints the scheduler's overhead and the memory's growth.
"""

import asyncio
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[2]).resolve()
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 8.0
sys.path.insert(0, str(SOURCE / "tests/support"))
from hearth_cli import HEARTH, build_flashlet  # noqa: E402

CLIENTS = 64
ANSWER_TOKENS = 24
GROWTH_MIB_MAX = 96  # buffers of 64 connections, threads' arenas; a leak of answers is beyond it
QUESTIONS = [
    f"{verb} a Python function named `{name}`."
    for verb in ("Write", "Explain", "Test")
    for name in ("is_empty", "read_config", "parse_line", "to_json")
]


def body_of(question, tokens=ANSWER_TOKENS):
    return json.dumps({"messages": [{"role": "user", "content": question}], "temperature": 0,
                       "max_tokens": tokens, "stream": True}).encode()


def request_of(body):
    return (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)) + body


async def read_head(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = dict(line.lower().split(": ", 1) for line in lines[1:] if ": " in line)
    return int(lines[0].split()[1]), fields


async def read_body(reader, fields):
    if "content-length" in fields:
        return await reader.readexactly(int(fields["content-length"]))
    body = b""
    while True:
        length = int((await reader.readline()).split(b";")[0], 16)
        body += await reader.readexactly(length)
        await reader.readexactly(2)
        if length == 0:
            return body


def text_of(events):
    text, finish = "", None
    for block in events.decode("utf-8").split("\n\n"):
        if not block.startswith("data: ") or block == "data: [DONE]":
            continue
        event = json.loads(block[6:])
        if "error" in event:
            raise AssertionError(block)
        for choice in event["choices"]:
            text += choice["delta"].get("content") or ""
            finish = choice["finish_reason"] or finish
    return text, finish


class Server:
    def __init__(self, folder):
        pack = folder / "flashlet.pack"
        build_flashlet(SOURCE, pack)
        # AddressSanitizer keeps what was freed for a while: little of it, so that a leak shows.
        options = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=8"
        self.process = subprocess.Popen(
            [HEARTH, "serve", "--pack", str(pack), "--port", "0", "--json", "--log", "error",
             "--sequences", "8", "--slots", "40%", "--context-tokens", "2048"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, ASAN_OPTIONS=options))
        self.port = json.loads(self.process.stdout.readline())["port"]

    async def open(self):
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def get(self, path):
        reader, writer = await self.open()
        writer.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n"
                     .encode())
        status, fields = await read_head(reader)
        body = await read_body(reader, fields)
        writer.close()
        return status, json.loads(body)

    async def ask(self, streams, question):
        reader, writer = streams
        writer.write(request_of(body_of(question)))
        status, fields = await read_head(reader)
        body = await read_body(reader, fields)
        if status != 200:
            raise AssertionError(f"{status}: {body[:300]!r}")
        return text_of(body)

    async def until_idle(self):
        for _ in range(600):
            _, health = await self.get("/health")
            if health["requests_running"] == 0 and health["requests_waiting"] == 0:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"requests are left: {health}")

    def resident_mib(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) / 1024


class ServeLoad(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.server = Server(pathlib.Path(cls.folder.name))

    @classmethod
    def tearDownClass(cls):
        cls.server.process.send_signal(signal.SIGTERM)
        _, talk = cls.server.process.communicate(timeout=60)
        cls.folder.cleanup()
        if cls.server.process.returncode != 0:
            raise AssertionError(f"exit code {cls.server.process.returncode}: {talk}")

    async def alone(self):
        streams = await self.server.open()
        answers = {q: await self.server.ask(streams, q) for q in QUESTIONS}
        streams[1].close()
        return answers

    async def test_1_many_clients_get_the_answers_that_each_gets_alone(self):
        expected = await self.alone()
        self.assertGreater(len({text for text, _ in expected.values()}), 6)
        clock = asyncio.get_running_loop().time
        counts = [0] * CLIENTS
        start_mib = None

        async def client(index, end):
            rng = random.Random(index)
            streams = await self.server.open()
            while clock() < end:
                question = rng.choice(QUESTIONS)
                self.assertEqual(await self.server.ask(streams, question), expected[question])
                counts[index] += 1
            streams[1].close()

        end = clock() + 1
        await asyncio.gather(*(client(i, end) for i in range(CLIENTS)))
        start_mib = self.server.resident_mib()
        end = clock() + SECONDS
        await asyncio.gather(*(client(i, end) for i in range(CLIENTS)))
        growth_mib = self.server.resident_mib() - start_mib
        self.assertTrue(all(counts), "a client was never served")
        _, telemetry = await self.server.get("/v1/telemetry")
        overhead = telemetry["latency"]["scheduler_overhead"]
        print(f"{sum(counts)} answers to {CLIENTS} clients; scheduler's overhead a window: p50 "
              f"{overhead['p50_sec'] * 1e3:.3f} ms, p99 {overhead['p99_sec'] * 1e3:.3f} ms; memory "
              f"grew by {growth_mib:.1f} MiB", file=sys.stderr)
        self.assertLess(growth_mib, GROWTH_MIB_MAX)
        self.assertEqual(telemetry["requests"]["finished"]["error"], 0)
        self.assertEqual(sum(telemetry["services"]["permille"]["distinct"]), 1000)
        self.assertGreater(telemetry["windows"]["by_rows"][7], 0, "no window was ever full")

    async def test_2_clients_that_vanish_leave_nothing_behind(self):
        expected = await self.alone()
        rng = random.Random(1)
        for round_index in range(60):
            reader, writer = await self.server.open()
            writer.write(request_of(body_of(rng.choice(QUESTIONS), tokens=1500)))
            if round_index % 3 != 0:
                await reader.readuntil(b"\r\n\r\n")
            if round_index % 3 == 2:
                await reader.readuntil(b"content\":\"")
            if round_index % 2 == 0:
                writer.transport.abort()  # a reset, as after kill -9
            else:
                writer.close()
        await self.server.until_idle()
        streams = await self.server.open()
        self.assertEqual(await self.server.ask(streams, QUESTIONS[0]), expected[QUESTIONS[0]])
        streams[1].close()
        _, telemetry = await self.server.get("/v1/telemetry")
        self.assertGreater(telemetry["requests"]["finished"]["cancelled"], 0)

    async def test_3_killed_processes_dawdlers_and_rubbish_do_not_hold_it_up(self):
        expected = await self.alone()
        code = ("import socket,sys,time\n"
                "s=socket.create_connection(('127.0.0.1',int(sys.argv[1])))\n"
                "s.sendall(bytes.fromhex(sys.argv[2]))\ns.recv(64)\ntime.sleep(60)\n")
        killed = [subprocess.Popen([sys.executable, "-c", code, str(self.server.port),
                                    request_of(body_of(q, tokens=1500)).hex()])
                  for q in QUESTIONS[:4]]
        dawdlers = [await self.server.open() for _ in range(8)]
        for _, writer in dawdlers[:4]:  # half a head; a whole request whose answer nobody reads
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: loc")
        for _, writer in dawdlers[4:]:
            writer.write(request_of(body_of(QUESTIONS[0], tokens=1500)))
        rng = random.Random(2)
        for _ in range(300):
            reader, writer = await self.server.open()
            writer.write(rng.choice([rng.randbytes(200), request_of(b'{"messages": ['),
                                     request_of(b'{"messages": [{"role": 3}]}'),
                                     request_of(b'[' * 5000)]))
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 30)
            writer.close()
        streams = await self.server.open()
        self.assertEqual(await self.server.ask(streams, QUESTIONS[1]), expected[QUESTIONS[1]])
        streams[1].close()
        for process in killed:
            process.kill()
            process.wait()
        for _, writer in dawdlers:
            writer.transport.abort()
        await self.server.until_idle()


if __name__ == "__main__":
    os.environ["CUDA_VISIBLE_DEVICES"] = ""  # answers are compared with each other, on the CPU
    unittest.main(argv=sys.argv[:1])
