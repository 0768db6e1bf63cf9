#!/usr/bin/env python3
"""Renders tests/golden/chat/templates with Python's Jinja, set up as Hugging Face's
apply_chat_template sets it up, for every conversation and option, and writes
tests/golden/chat/<template>.json. The small templates of snippet_templates.json go, rendered
without variables, to snippets.json.
    python3 tests/golden/make_chat_golden.py
"""

import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

HERE = pathlib.Path(__file__).resolve().parent / "chat"
NOW = datetime.datetime(2026, 11, 5, 9, 7, 3)
OPTIONS = {
    "qwen_style": [
        {},
        {"enable_thinking": False},
        {"reasoning_effort": "low"},
        {"reasoning_effort": "medium"},
        {"reasoning_effort": "extreme"},
        {"preserve_thinking": False, "reasoning_effort": "medium"},
        {"add_vision_id": True, "add_generation_prompt": False},
    ],
}


class Generation(jinja2.ext.Extension):
    """{% generation %}: prints its body, in a scope of its own."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("print_body"), [], [], body).set_lineno(line)

    def print_body(self, caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return env


def render(template, variables):
    try:
        return {"output": template.render(**variables)}
    except Exception as error:  # what the runtime must refuse too
        return {"error": str(error)}


def render_source(source):
    try:
        template = environment().from_string(source)
    except Exception as error:
        return {"error": str(error)}
    return render(template, {})


def main():
    conversations = json.loads((HERE / "conversations.json").read_text())
    flashlet = HERE.parents[2] / "profiles/flashlet/chat_template.jinja"
    for path in sorted((HERE / "templates").glob("*.jinja")) + [flashlet]:
        name = "flashlet" if path == flashlet else path.stem
        template = environment().from_string(path.read_text())
        cases = []
        for conversation in conversations:
            for options in OPTIONS.get(name, [{}, {"add_generation_prompt": False}]):
                variables = {
                    "messages": conversation["messages"],
                    "tools": conversation.get("tools"),
                    "documents": None,
                    "add_generation_prompt": True,
                    "bos_token": "<s>",
                    "eos_token": "</s>",
                    **options,
                }
                cases.append(
                    {
                        "conversation": conversation["name"],
                        "options": options,
                        **render(template, variables),
                    }
                )
        text = json.dumps(
            {"template": str(path.relative_to(HERE.parents[2])), "cases": cases},
            ensure_ascii=False,
            indent=0,
        )
        (HERE / f"{name}.json").write_text(text + "\n")
    sources = json.loads((HERE / "snippet_templates.json").read_text())
    cases = [{"template": source, **render_source(source)} for source in sources]
    (HERE / "snippets.json").write_text(json.dumps(cases, ensure_ascii=True, indent=0) + "\n")


if __name__ == "__main__":
    main()
