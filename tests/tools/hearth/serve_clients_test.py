"""The official clients of OpenAI and Anthropic against `hearth serve` on the shipped model: a
conversation, streams, calls of tools, JSON schemas, cancellation and errors.

usage: serve_clients_test.py HEARTH_BINARY SOURCE_DIR

The clients come from PyPI: `tools/setup.sh --clients` puts them into build/clients, whose Python
runs this file. Without them it says so and exits with 77.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

SOURCE = pathlib.Path(sys.argv[2]).resolve()
SKIPPED = 77

try:
    import anthropic
    import openai
    import pydantic
except ImportError:
    python = SOURCE / "build/clients/bin/python"
    if python.exists() and pathlib.Path(sys.executable) != python:
        os.execv(python, [str(python), *sys.argv])
    print("skipped: no openai and anthropic packages; tools/setup.sh --clients installs them")
    sys.exit(SKIPPED)

sys.path.insert(0, str(SOURCE / "tests/support"))
from hearth_cli import HEARTH, build_flashlet  # noqa: E402

TEMPLATE = SOURCE / "tests/golden/chat/templates/qwen_style.jinja"
START_SEC = 60
GREEDY = {"model": "flashlet", "temperature": 0}
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
COLD = {"temperature": 0}
NO_THINKING = {"enable_thinking": False}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "São Paulo"]}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "forecast", "description": "The weather.",
                                         "parameters": PARAMETERS}}


class Server:
    """A `hearth serve` of its own on a port that the system chose."""

    def __init__(self, folder):
        pack = folder / "flashlet.pack"
        build_flashlet(SOURCE, pack)
        self.talk = open(folder / "talk.txt", "w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [HEARTH, "serve", "--pack", str(pack), "--port", "0", "--json", "--chat-template",
             str(TEMPLATE), "--context-tokens", "2048"],
            stdout=subprocess.PIPE, stderr=self.talk, text=True)
        line = self.process.stdout.readline()
        if not line:
            self.talk.seek(0)
            raise RuntimeError("no server: " + self.talk.read())
        self.url = json.loads(line)["ready"]

    def health(self):
        with urllib.request.urlopen(self.url + "/health", timeout=START_SEC) as reply:
            return json.load(reply)

    def stop(self):
        self.process.terminate()
        code = self.process.wait(timeout=START_SEC)
        self.process.stdout.close()
        self.talk.close()
        return code


def arguments_ok(text):
    value = json.loads(text)
    return value["city"] in ("Rome", "São Paulo") and isinstance(value["days"], int)


class Clients(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temp = tempfile.TemporaryDirectory()
        cls.server = Server(pathlib.Path(cls.temp.name))
        cls.openai = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0,
                                   timeout=300)
        cls.anthropic = anthropic.Anthropic(base_url=cls.server.url, api_key="none",
                                            max_retries=0, timeout=300)

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        cls.temp.cleanup()
        assert code == 0, f"the server ended with {code}"

    def chat(self, **more):
        return self.openai.chat.completions.create(**{**GREEDY, "messages": QUESTION, **more})

    def message(self, **more):
        return self.anthropic.messages.create(
            **{"model": "flashlet", "max_tokens": 16, "messages": QUESTION, "extra_body": COLD,
               **more})

    # OpenAI

    def test_models(self):
        models = self.openai.models.list().data
        self.assertEqual(len(models), 1)
        self.assertEqual(self.openai.models.retrieve(models[0].id).id, models[0].id)

    def test_conversation(self):
        messages = [{"role": "system", "content": "Be brief."}, *QUESTION]
        for turn in range(3):
            reply = self.chat(messages=messages, max_tokens=16, extra_body=NO_THINKING)
            choice = reply.choices[0]
            self.assertEqual(choice.message.role, "assistant")
            self.assertIn(choice.finish_reason, ("stop", "length"))
            self.assertEqual(reply.usage.total_tokens,
                             reply.usage.prompt_tokens + reply.usage.completion_tokens)
            self.assertLessEqual(reply.usage.completion_tokens, 16)
            served = reply.usage.hearth["experts"]
            self.assertGreater(sum(tier["entries"] for tier in served.values()), 0)
            messages += [{"role": "assistant", "content": choice.message.content},
                         {"role": "user", "content": f"And then? {turn}"}]

    def test_a_stream_says_what_the_whole_says(self):
        for extra in (NO_THINKING, {"thinking_budget": 8}):
            whole = self.chat(max_tokens=40, extra_body=extra)
            stream = self.chat(max_tokens=40, extra_body=extra, stream=True,
                               stream_options={"include_usage": True})
            content, reasoning, finish, usage = "", "", None, None
            for chunk in stream:
                usage = chunk.usage or usage
                for choice in chunk.choices:
                    content += choice.delta.content or ""
                    reasoning += getattr(choice.delta, "reasoning_content", None) or ""
                    finish = choice.finish_reason or finish
            message = whole.choices[0].message
            self.assertEqual(content, message.content)
            self.assertEqual(reasoning, getattr(message, "reasoning_content", None) or "")
            self.assertEqual(finish, whole.choices[0].finish_reason)
            self.assertEqual(usage.completion_tokens, whole.usage.completion_tokens)

    def test_seeds_repeat(self):
        def draw(seed):
            reply = self.chat(temperature=1.0, seed=seed, max_tokens=12, extra_body=NO_THINKING)
            return reply.choices[0].message.content
        self.assertEqual(draw(5), draw(5))
        self.assertGreater(len({draw(seed) for seed in range(5)}), 1)

    def test_stop_and_logprobs(self):
        reply = self.chat(max_tokens=12, logprobs=True, top_logprobs=3, extra_body=NO_THINKING)
        tokens = reply.choices[0].logprobs.content
        self.assertTrue(0 < len(tokens) <= reply.usage.completion_tokens)
        for token in tokens:
            self.assertEqual(len(token.top_logprobs), 3)
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(token.logprob, token.top_logprobs[0].logprob)  # greedy
        text = reply.choices[0].message.content
        self.assertGreater(len(text), 4)
        stop = text[3:5]
        cut = self.chat(max_tokens=12, stop=[stop], extra_body=NO_THINKING).choices[0]
        self.assertEqual(cut.message.content, text[:text.index(stop)])
        self.assertEqual(cut.finish_reason, "stop")

    def test_completions(self):
        reply = self.openai.completions.create(**GREEDY, prompt="def main(", max_tokens=8)
        self.assertTrue(reply.choices[0].text)
        stream = self.openai.completions.create(**GREEDY, prompt="def main(", max_tokens=8,
                                                stream=True)
        self.assertEqual("".join(chunk.choices[0].text for chunk in stream), reply.choices[0].text)

    def test_json_schema(self):
        class Answer(pydantic.BaseModel):
            count: int
            sure: bool

        parsed = self.openai.chat.completions.parse(
            **GREEDY, messages=QUESTION, response_format=Answer, max_tokens=200,
            extra_body={"thinking_budget": 8})
        self.assertIsInstance(parsed.choices[0].message.parsed, Answer)
        free = self.chat(response_format={"type": "json_object"}, max_tokens=60,
                         extra_body=NO_THINKING).choices[0]
        if free.finish_reason == "stop":
            self.assertIsInstance(json.loads(free.message.content), dict)

    def test_tools(self):
        asked = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False,
                 "max_tokens": 200, "extra_body": NO_THINKING}
        whole = self.chat(**asked).choices[0]
        self.assertEqual(whole.finish_reason, "tool_calls")
        call = whole.message.tool_calls[0]
        self.assertEqual(call.function.name, "forecast")
        self.assertTrue(arguments_ok(call.function.arguments))
        name, arguments = "", ""
        for chunk in self.chat(**asked, stream=True):
            for piece in chunk.choices[0].delta.tool_calls or []:
                self.assertEqual(piece.index, 0)
                self.assertEqual(piece.id is not None, not name)
                name += piece.function.name or ""
                arguments += piece.function.arguments or ""
        self.assertEqual((name, arguments), ("forecast", call.function.arguments))
        result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
        after = self.chat(messages=[*QUESTION, whole.message.model_dump(exclude_none=True), result],
                          tools=[TOOL], max_tokens=8, extra_body=NO_THINKING)
        self.assertGreater(after.usage.completion_tokens, 0)

    def test_a_client_that_goes_away_frees_its_place(self):
        stream = self.chat(stream=True, max_tokens=1900, extra_body={"ignore_eos": True})
        for _ in range(3):
            next(iter(stream))
        stream.close()
        deadline = time.monotonic() + START_SEC
        while self.server.health()["requests_running"] > 0:
            self.assertLess(time.monotonic(), deadline, "the request goes on for nobody")
            time.sleep(0.05)

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as refused:
            self.chat(n=2)
        self.assertEqual(refused.exception.param, "n")
        with self.assertRaises(openai.BadRequestError) as refused:
            self.chat(temperature=-1)
        self.assertEqual(refused.exception.param, "temperature")
        for stream in (False, True):
            with self.assertRaises(openai.BadRequestError) as refused:
                self.chat(messages=[{"role": "user", "content": "word " * 9000}], stream=stream)
            self.assertEqual(refused.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.APIStatusError) as refused:
            self.openai.embeddings.create(model="flashlet", input="x")
        self.assertIn(refused.exception.status_code, (400, 501))
        self.assertEqual(self.server.health()["status"], "ok")

    # Anthropic

    def test_messages(self):
        whole = self.message(system="Be brief.", stop_sequences=["\x00"])
        self.assertIn(whole.stop_reason, ("end_turn", "max_tokens"))
        self.assertEqual([block.type for block in whole.content], ["text"])
        text = whole.content[0].text
        with self.anthropic.messages.stream(
                model="flashlet", max_tokens=16, messages=QUESTION, system="Be brief.",
                extra_body=COLD) as stream:
            self.assertEqual("".join(stream.text_stream), text)
            final = stream.get_final_message()
        self.assertEqual(final.usage.output_tokens, whole.usage.output_tokens)
        counted = self.anthropic.messages.count_tokens(model="flashlet", messages=QUESTION,
                                                       system="Be brief.")
        self.assertEqual(counted.input_tokens, whole.usage.input_tokens +
                         (whole.usage.cache_read_input_tokens or 0))

    def test_anthropic_tools_after_thinking(self):
        tool = {"name": "forecast", "description": "The weather.", "input_schema": PARAMETERS}
        asked = {"tools": [tool], "tool_choice": {"type": "tool", "name": "forecast"},
                 "max_tokens": 300, "thinking": {"type": "enabled", "budget_tokens": 16}}
        whole = self.message(**asked)
        self.assertEqual(whole.stop_reason, "tool_use")
        self.assertEqual(whole.content[-1].type, "tool_use")
        self.assertTrue(arguments_ok(json.dumps(whole.content[-1].input)))
        with self.anthropic.messages.stream(model="flashlet", messages=QUESTION, extra_body=COLD,
                                            **asked) as stream:
            final = stream.get_final_message()
        self.assertEqual([block.type for block in final.content],
                         [block.type for block in whole.content])
        self.assertEqual(final.content[-1].input, whole.content[-1].input)
        result = {"type": "tool_result", "tool_use_id": final.content[-1].id, "content": "sunny"}
        after = self.message(
            messages=[*QUESTION,
                      {"role": "assistant", "content": [b.model_dump() for b in whole.content]},
                      {"role": "user", "content": [result]}], tools=[tool])
        self.assertGreater(after.usage.output_tokens, 0)

    def test_anthropic_errors(self):
        with self.assertRaises(anthropic.BadRequestError) as refused:
            self.message(messages=[{"role": "user", "content": [
                {"type": "image", "source": {"type": "url", "url": "http://x"}}]}])
        self.assertIn("text only", refused.exception.message)
        with self.assertRaises(anthropic.BadRequestError):
            self.message(messages=[{"role": "user", "content": "word " * 9000}])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
