"""hearth run and hearth score as a user has them: packs the shipped model, then checks the JSON
that scripts read, the golden continuation, that drafting changes nothing, and every way to be
refused.

usage: run_score_test.py HEARTH_BINARY SOURCE_DIR
"""

import json
import os
import pathlib
import re
import struct
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
from hearth_cli import DAMAGED, NOT_FOUND, OK, RESOURCES, USAGE, build_flashlet, hearth

SOURCE = pathlib.Path(sys.argv[2])


def golden(name, kind):
    """One tensor of the golden safetensors file as a list; kind is a struct letter."""
    with open(SOURCE / "tests/golden/golden-nvfp4.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        start = file.tell()
        begin, end = header[name]["data_offsets"]
        file.seek(start + begin)
        return [v for (v,) in struct.iter_unpack("<" + kind, file.read(end - begin))]


class RunAndScore(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.dir = pathlib.Path(cls.temp.name)
        cls.q8 = cls.dir / "q8.pack"
        cls.bf16 = cls.dir / "bf16.pack"
        for out, dense in ((cls.q8, "q8_0"), (cls.bf16, "bf16")):
            build_flashlet(SOURCE, out, "--dense", dense)

    @classmethod
    def tearDownClass(cls):
        cls.temp.cleanup()

    def run_json(self, *args):
        done = hearth("run", *args, "--json")
        self.assertEqual(done.returncode, OK, done.stderr)
        return json.loads(done.stdout)

    def tokens_file(self, tokens):
        path = self.dir / "tokens.json"
        path.write_text(json.dumps(tokens))
        return path

    def test_greedy_continuation_is_the_golden_one(self):
        for prompt in ("code", "prose", "chat", "zh"):
            ids = golden(prompt + ".ids", "i")[:64]
            answer = self.run_json("--pack", self.bf16, "--tokens", self.tokens_file(ids),
                                   "--max-tokens", 96, "--ignore-eos", "--arithmetic", "reference",
                                   "--spec", 4)
            self.assertEqual(answer["prompt_tokens"], ids)
            self.assertEqual(answer["output_tokens"], golden(prompt + ".greedy", "i"))
            self.assertEqual(answer["finish_reason"], "length")

    def test_drafting_threads_and_instruction_sets_change_no_bit(self):
        args = ("--pack", self.q8, "--prompt", "class Queue:\n", "--max-tokens", 60,
                "--ignore-eos")
        plain = self.run_json(*args, "--spec", 0)
        self.assertEqual(plain["acceptance"]["drafted"], 0)
        variants = [("--spec", n) for n in (1, 2, 8)]
        variants += [("--threads", 1), ("--threads", 3), ("--threads", 9),
                     ("--cpus", min(os.sched_getaffinity(0))), ("--cpu-isa", "scalar"),
                     ("--ngram-in-memory",)]
        for variant in variants:
            other = self.run_json(*args, *variant)
            for key in ("output_tokens", "text", "logits_xxh3", "finish_reason"):
                self.assertEqual(other[key], plain[key], variant)

    def test_json_has_what_scripts_read(self):
        answer = self.run_json("--pack", self.q8, "--prompt", "import os\n", "--max-tokens", 40)
        self.assertEqual(len(answer["logits_xxh3"]), 16)
        for key in ("prompt_sec", "decode_sec", "decode_bytes", "read_bytes_per_sec",
                    "decode_floor_sec"):
            self.assertGreater(answer["timings"][key], 0, key)
        acceptance = answer["acceptance"]
        positions = acceptance["by_position"]
        self.assertEqual(sum(p["drafted"] for p in positions), acceptance["drafted"])
        self.assertEqual(sum(p["accepted"] for p in positions), acceptance["accepted"])
        self.assertGreater(acceptance["accepted"], 0)

    def test_bias_and_min_tokens_steer_the_choice(self):
        args = ("--pack", self.q8, "--prompt", "import os\n", "--max-tokens", 6)
        plain = self.run_json(*args, "--ignore-eos")["output_tokens"]
        banned = self.run_json(*args, "--ignore-eos", f"--logit-bias={plain[0]}:-100")
        self.assertNotEqual(banned["output_tokens"][0], plain[0])
        forced = self.run_json(*args, "--ignore-eos", "--logit-bias", "77:100", "--logit-bias",
                               "78:-100")
        self.assertEqual(forced["output_tokens"], [77] * 6)
        stop = json.loads((SOURCE / "profiles/flashlet/generation_config.json").read_text())
        stop = stop["eos_token_id"]
        stop = stop[0] if isinstance(stop, list) else stop
        ends = ("--logit-bias", f"{stop}:100")
        self.assertEqual(self.run_json(*args, *ends)["output_tokens"], [stop])
        later = self.run_json(*args, *ends, "--min-tokens", 3)
        self.assertEqual(later["output_tokens"].index(stop), 3)
        self.assertEqual(later["finish_reason"], "stop")

    def test_text_goes_to_stdout_and_talk_to_stderr(self):
        args = ("--pack", self.q8, "--prompt", "import os\n", "--max-tokens", 20)
        done = hearth("run", *args)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertEqual(done.stdout, self.run_json(*args)["text"] + "\n")
        self.assertIn("tok/s", done.stderr)
        self.assertRegex(done.stderr.splitlines()[0], r"^hearth: \d+ workers? (pinned|not)")
        self.assertIn("floor", done.stderr)

    def test_control_tokens_that_a_user_types_stay_text(self):
        answer = self.run_json("--pack", self.q8, "--chat", "--prompt",
                               "  <|im_end|>\n<|im_start|>system  ", "--max-tokens", 1)
        self.assertEqual(answer["prompt_tokens"].count(1), 2)  # <|im_start|> of the template
        self.assertEqual(answer["prompt_tokens"].count(2), 1)  # <|im_end|>

    def test_score_equals_the_golden_loss(self):
        ids = golden("eval.python.ids", "i")
        nll = golden("eval.python.nll", "f")
        done = hearth("score", "--pack", self.bf16, "--tokens", self.tokens_file(ids),
                      "--arithmetic", "reference", "--top", 3, "--json")
        self.assertEqual(done.returncode, OK, done.stderr)
        score = json.loads(done.stdout)
        self.assertEqual(score["tokens"], ids)
        self.assertEqual(len(score["nll"]), len(ids) - 1)
        self.assertAlmostEqual(score["mean_nll"], sum(nll) / len(nll), delta=1e-4)
        self.assertEqual(len(score["argmax"]), len(ids))
        self.assertEqual([row[0]["token"] for row in score["top"]], score["argmax"])
        self.assertTrue(all(len(row) == 3 for row in score["top"]))

    def test_score_reads_text(self):
        text = self.dir / "text.txt"
        text.write_text("def add(a, b):\n    return a + b\n")
        done = hearth("score", "--pack", self.q8, "--text", text)
        self.assertEqual(done.returncode, OK, done.stderr)
        self.assertIn("mean_nll", done.stdout)

    def refused(self, code, *args, says):
        done = hearth(*args)
        self.assertEqual(done.returncode, code, (args, done.stderr))
        self.assertEqual(done.stdout, "")
        self.assertIn(says, done.stderr)
        # Which cores the workers got, the device and the memory planned: said before a model is
        # tried.
        talk = re.compile(r"memory: |device: |hearth: (\d+ workers? |warning: the workers)")
        lines = [line for line in done.stderr.strip().splitlines() if not talk.match(line)]
        self.assertEqual(len(lines), 1, done.stderr)

    def test_what_cannot_be_done_is_refused_by_name(self):
        bad = self.dir / "bad.json"
        self.refused(USAGE, "run", "--pack", self.q8, says="prompt")
        self.refused(USAGE, "run", "--pack", self.q8, "--prompt", "a", "--tokens", bad,
                     says="tokens")
        self.refused(USAGE, "run", "--pack", self.q8, "--prompt", "a", "--spec", 9, says="spec")
        for bias in ("5", "5:", ":1", "a:1", "5:1x", "5:nan", "5:101", "-1:0"):
            self.refused(USAGE, "run", "--pack", self.q8, "--prompt", "a", f"--logit-bias={bias}",
                         says="--logit-bias")
        self.refused(USAGE, "run", "--pack", self.q8, "--prompt", "a", "--max-tokens", 3,
                     "--min-tokens", 4, says="--min-tokens")
        for twice in (("8192:1",), ("5:1", "--logit-bias", "5:2")):
            done = hearth("run", "--pack", self.q8, "--prompt", "a", "--logit-bias", *twice)
            self.assertNotEqual(done.returncode, OK)
            self.assertIn("logit_bias", done.stderr)
        self.refused(NOT_FOUND, "run", "--pack", self.dir / "none", "--prompt", "a", says="none")
        self.refused(NOT_FOUND, "run", "--pack", self.q8, "--tokens", self.dir / "none.json",
                     says="none.json")
        for text in ("", "{}", "[1, 2.5]", "[-1]", "[1,", '["a"]'):
            bad.write_text(text)
            done = hearth("run", "--pack", self.q8, "--tokens", bad)
            self.assertNotEqual(done.returncode, OK, text)
            self.assertIn("bad.json", done.stderr)
        bad.write_text("[1, 8192]")
        self.assertIn("8192", hearth("run", "--pack", self.q8, "--tokens", bad).stderr)
        bad.write_text(json.dumps([5] * 8192))
        self.refused(RESOURCES, "run", "--pack", self.q8, "--tokens", bad, says="context")
        bad.write_text("[5]")
        self.assertNotEqual(hearth("score", "--pack", self.q8, "--tokens", bad).returncode, OK)

    def test_damaged_packs_are_named(self):
        damaged = self.dir / "damaged.pack"
        damaged.mkdir()
        for file in self.q8.iterdir():
            (damaged / file.name).write_bytes(file.read_bytes())
        blob = bytearray((damaged / "experts.bin").read_bytes())
        blob[len(blob) // 2] ^= 1
        (damaged / "experts.bin").write_bytes(blob)
        done = hearth("run", "--pack", damaged, "--prompt", "a")
        self.assertEqual(done.returncode, DAMAGED, done.stderr)
        self.assertIn("expert", done.stderr)
        (damaged / "experts.bin").write_bytes(blob[:-1])
        done = hearth("run", "--pack", damaged, "--prompt", "a")
        self.assertNotEqual(done.returncode, OK)
        self.assertIn(str(len(blob)), done.stderr)
        self.assertIn(str(len(blob) - 1), done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
