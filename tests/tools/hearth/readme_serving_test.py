"""The examples of the README's chapter on serving, run exactly as they are printed there.

usage: readme_serving_test.py HEARTH_BINARY SOURCE_DIR
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(sys.argv[2]).resolve()
sys.path.insert(0, str(SOURCE / "tests/support"))
from hearth_cli import HEARTH, build_flashlet  # noqa: E402

README = (SOURCE / "README.md").read_text(encoding="utf-8")
CHAPTER = README[README.index("\n## Serving\n"):]
CHAPTER = CHAPTER[:CHAPTER.index("\n## ", 4)]
BLOCKS = re.findall(r"```sh\n(.*?)```", CHAPTER, re.DOTALL)
EXAMPLES = re.findall(r"^curl .*?(?=^curl |\Z)", BLOCKS[1], re.DOTALL | re.MULTILINE)


def run(example):
    done = subprocess.run(["bash", "-c", example], capture_output=True, text=True, timeout=120,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


class ReadmeServing(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        build_flashlet(SOURCE, pathlib.Path(cls.folder.name) / "flashlet.pack")
        environment = dict(os.environ, CUDA_VISIBLE_DEVICES="",
                           PATH=f"{pathlib.Path(HEARTH).resolve().parent}:{os.environ['PATH']}")
        cls.server = subprocess.Popen(["bash", "-c", "exec " + BLOCKS[0].strip()],
                                      cwd=cls.folder.name, env=environment, text=True,
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        ready = cls.server.stdout.readline()
        if "hearth serves flashlet at http://127.0.0.1:8080" not in ready:
            raise AssertionError(f"not ready: {ready}{cls.server.stderr.read()}")

    @classmethod
    def tearDownClass(cls):
        cls.server.send_signal(signal.SIGTERM)
        cls.server.communicate(timeout=60)
        cls.folder.cleanup()
        assert cls.server.returncode == 0, cls.server.returncode

    def example(self, part):
        found = [e for e in EXAMPLES if part in e]
        self.assertEqual(len(found), 1, f"{part} in {EXAMPLES}")
        return run(found[0])

    def test_every_example_is_one_of_those_below(self):
        self.assertEqual(len(BLOCKS), 2)
        self.assertEqual(len(EXAMPLES), 8)

    def test_chat(self):
        reply = json.loads(self.example("is_empty"))
        self.assertEqual(reply["object"], "chat.completion")
        self.assertGreater(len(reply["choices"][0]["message"]["content"]), 10)
        shares = [s["share"] for s in reply["usage"]["hearth"]["experts"].values()]
        self.assertAlmostEqual(sum(shares), 1)

    def test_stream(self):
        lines = self.example('"stream": true').strip().split("\n\n")
        self.assertEqual(lines[-1], "data: [DONE]")
        chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
        self.assertEqual(chunks[0]["choices"][0]["delta"]["role"], "assistant")
        self.assertIn(chunks[-1]["choices"][0]["finish_reason"], ("stop", "length"))

    def test_completion(self):
        reply = json.loads(self.example("/v1/completions"))
        self.assertEqual(reply["object"], "text_completion")
        self.assertEqual(reply["usage"]["completion_tokens"], 30)

    def test_schema(self):
        reply = json.loads(self.example("json_schema"))
        self.assertIn(json.loads(reply["choices"][0]["message"]["content"]),
                      [{"name": "Rome"}, {"name": "Oslo"}])

    def test_anthropic(self):
        reply = json.loads(self.example("/v1/messages"))
        self.assertEqual(reply["type"], "message")
        self.assertEqual(reply["content"][0]["type"], "text")

    def test_tokenize(self):
        reply = json.loads(self.example("/tokenize"))
        self.assertEqual(reply["count"], len(reply["tokens"]))

    def test_metrics(self):
        self.assertIn("\n# TYPE hearth_", "\n" + self.example("/metrics"))

    def test_telemetry(self):
        reply = json.loads(self.example("/v1/telemetry"))
        self.assertEqual(reply["schema"], "hearth.telemetry")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
