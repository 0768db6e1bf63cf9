#!/usr/bin/env python3
"""Compares Hearth's template interpreter with Python's Jinja on random small templates.

    python3 tests/oracle/jinja_oracle.py --count 2000 --seed 1 \\
        --dump build/dev/tests/runtime/model/chat/jinja_dump

Every template is rendered by both. They must give the same text, or both an error. Prints each
difference and exits 1 if there is one.
"""

import argparse
import copy
import json
import pathlib
import random
import subprocess
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "golden"))
import make_chat_golden  # noqa: E402

VARIABLES = {
    "n": 3,
    "z": 0,
    "neg": -7,
    "f": 2.5,
    "big": 1e16,
    "s": "Hello wörld",
    "e": "",
    "sp": "  a\tb \n",
    "u": "日本é😀ß",
    "l": [3, 1, 2],
    "ls": ["b", "A", "c"],
    "el": [],
    "mix": [1, "a", None, 2.5, True, [1]],
    "t": True,
    "o": None,
    "d": {"b": 1, "a": "x", "items": 5},
    "ed": {},
    "nest": {"k": {"v": [1, {"w": "deep"}]}},
    "rows": [{"n": 2, "s": "x"}, {"n": 1, "s": "Y"}, {"n": 3}, {"n": 1, "s": "x"}],
}
STRINGS = [
    "''",
    "'a'",
    "'A b'",
    "' x '",
    "'a,b,,c'",
    "'é\\n'",
    "'12'",
    "'-3.7'",
    "'<&>\"'",
    "'a.b'",
    '"it\'s"',
    "'\\t'",
]
NUMBERS = ["0", "1", "2", "-1", "3", "7", "10", "2.5", "0.1", "1e3", "-0.5"]
NAMES = list(VARIABLES) + ["missing"]
LITERALS = [
    "none",
    "true",
    "false",
    "[1, 2, 3]",
    "['x', 'y']",
    "(1, 'a')",
    "{'a': 1, 'b': [2]}",
    "[]",
    "{}",
    "()",
    "range(4)",
    "range(5, 0, -2)",
    "namespace(a=1)",
    "[[2, 'b'], [1, 'a']]",
    "{1: 'one', none: 2}",
]
FILTERS = [
    "trim",
    "tojson",
    "length",
    "count",
    "join",
    "join('-')",
    "default('d')",
    "d('d', true)",
    "upper",
    "lower",
    "capitalize",
    "title",
    "replace('a', 'b')",
    "first",
    "last",
    "list",
    "items",
    "map('upper')",
    "map(attribute='n')",
    "map(attribute='s', default='none')",
    "select",
    "reject",
    "select('odd')",
    "select('string')",
    "selectattr('s')",
    "selectattr('n', 'gt', 1)",
    "rejectattr('s', 'defined')",
    "sort",
    "sort(reverse=true)",
    "sort(attribute='n')",
    "sort(attribute='n,s')",
    "unique",
    "reverse",
    "string",
    "int",
    "int(5)",
    "float",
    "safe",
    "e",
    "indent",
    "indent(2, true)",
    "dictsort",
    "dictsort(by='value')",
    "round",
    "round(1)",
    "round(1, 'floor')",
    "abs",
    "sum",
    "min",
    "max",
    "tojson(indent=2)",
    "map('length')",
    "map('string')",
    "map('first')",
    "trim('a')",
    "list | length",
    "string | length",
    "map('default', 9) ",
    "sum(attribute='n')",
    "max(attribute='n')",
    "replace('a', 'b', 1)",
    "tojson(sort_keys=true)",
    "join(', ', attribute='n')",
]
TESTS = [
    "defined",
    "undefined",
    "none",
    "string",
    "number",
    "integer",
    "float",
    "mapping",
    "sequence",
    "iterable",
    "boolean",
    "true",
    "false",
    "odd",
    "even",
    "divisibleby 3",
    "callable",
    "lower",
    "upper",
    "sameas none",
    "eq 1",
    "equalto('a')",
    "in [1, 'a']",
    "ne 2",
    "gt 1",
    "le 3",
    "escaped",
    "not none",
    "not defined",
]
METHODS = [
    "strip()",
    "lstrip()",
    "rstrip('b \\n')",
    "split()",
    "split(',')",
    "split(' ', 1)",
    "rsplit(None, 1)",
    "rsplit(',', 1)",
    "startswith('a')",
    "endswith(('c', 'd'))",
    "replace('a', 'bb')",
    "upper()",
    "lower()",
    "title()",
    "capitalize()",
    "find('b')",
    "rfind('b')",
    "join(['x', 'y'])",
    "isdigit()",
    "splitlines()",
    "splitlines(true)",
    "items()",
    "keys()",
    "values()",
    "get('a')",
    "get('q', 1)",
    "append(1)",
    "index('A')",
    "count('a')",
    "count(1)",
    "pop()",
    "partition(' ')",
    "rpartition('b')",
    "removeprefix('H')",
    "isalpha()",
    "isspace()",
    "islower()",
    "items() | list",
    "keys() | list",
    "copy()",
    "isupper()",
    "isalnum()",
    "update({})",
]
ATTRIBUTES = ["a", "b", "k", "items", "n", "s", "keys", "missing", "v", "append"]
OPERATORS = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "~",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "in",
    "not in",
    "and",
    "or",
]


class Grammar:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, options):
        return self.random.choice(options)

    def atom(self):
        return self.pick(
            [
                self.pick(NAMES),
                self.pick(NAMES),
                self.pick(NUMBERS),
                self.pick(STRINGS),
                self.pick(LITERALS),
            ]
        )

    def bound(self):
        return self.pick(["", "", "1", "-1", "2", "-3", "0", "5", "none"])

    def expression(self, depth):
        if depth <= 0:
            return self.atom()
        kind = self.random.randrange(14)
        inner = self.expression(depth - 1)
        if kind <= 2:
            return f"{inner} | {self.pick(FILTERS)}"
        if kind <= 4:
            return f"({inner}).{self.pick(METHODS)}"
        if kind == 5:
            return f"({inner}).{self.pick(ATTRIBUTES)}"
        if kind == 6:
            return f"({inner})[{self.expression(0)}]"
        if kind == 7:
            step = self.pick(["", "", ":", ":2", ":-1"])
            return f"({inner})[{self.bound()}:{self.bound()}{step}]"
        if kind <= 9:
            other = self.expression(depth - 1)
            return (
                f"({inner}) {self.pick(OPERATORS)} ({other})"
                if self.random.random() < 0.7
                else f"{inner} {self.pick(OPERATORS)} {other}"
            )
        if kind == 10:
            return f"{inner} is {self.pick(TESTS)}"
        if kind == 11:
            return (
                f"{inner} if {self.expression(0)} is {self.pick(TESTS)} else {self.expression(0)}"
            )
        if kind == 12:
            return self.pick(
                [
                    f"not {inner}",
                    f"-({inner})",
                    f"-{inner}",
                    f"[{inner}, {self.atom()}]",
                    f"({inner},)",
                    f"{{'k': {inner}}}",
                ]
            )
        first = self.pick(["<", "==", "in", ">="])
        middle = self.atom()
        second = self.pick(["<", "!=", "not in"])
        return f"{inner} {first} {middle} {second} {self.atom()}"

    def tag(self, text):
        return (
            "{%"
            + self.pick(["", "", "-", "+"])
            + f" {text} "
            + self.pick(["", "", "-", "+"])
            + "%}"
        )

    def space(self):
        return self.pick(["", "", " ", "\n", "  \n", "\n  ", "x", " y\n", "\t", "\n\n", "\r\n"])

    def statement(self, depth):
        kind = self.random.randrange(12)
        body = self.block(depth - 1) if depth > 0 else self.space()
        if kind <= 2:
            return (
                "{{"
                + self.pick(["", "-"])
                + f" {self.expression(self.random.randrange(4))} "
                + self.pick(["", "-"])
                + "}}"
            )
        if kind == 3:
            return (
                self.tag(f"if {self.expression(1)}")
                + body
                + self.tag("else")
                + self.space()
                + self.tag("endif")
            )
        if kind == 4:
            condition = f" if {self.expression(1)}" if self.random.random() < 0.3 else ""
            show = self.pick(
                [
                    "{{ x }}",
                    "{{ loop.index }}{{ loop.last }}",
                    "{{ loop.previtem }}{{ loop.revindex }}",
                    "{{ loop.length }}",
                    "{% set q = x %}{{ q }}",
                    "{{ loop.nextitem is defined }}",
                    "{% if loop.index > 1 %}{% break %}{% endif %}",
                    "{% continue %}",
                    "{{ loop.changed(x) }}",
                ]
            )
            return (
                self.tag(f"for x in {self.expression(1)}{condition}")
                + show
                + body
                + self.tag("else")
                + "E"
                + self.tag("endfor")
            )
        if kind == 5:
            return self.tag(f"set q = {self.expression(2)}") + "{{ q }}"
        if kind == 6:
            return self.tag("set q") + body + self.tag("endset") + "{{ q }}"
        if kind == 7:
            return (
                "{#"
                + self.pick(["", "-", "+"])
                + " c\n "
                + self.pick(["", "-", "+"])
                + "#}"
                + self.space()
            )
        if kind == 8:
            return self.tag("raw") + " {{ r }} " + self.space() + self.tag("endraw")
        if kind == 9:
            return (
                self.tag("macro m(a, b=a)")
                + "{{ a }}{{ b }}"
                + body
                + self.tag("endmacro")
                + "{{ m("
                + self.pick(["", "1", "1, 2", "b=3", "1, 2, 3", "a=s, b=l"])
                + ") }}"
            )
        if kind == 10:
            return (
                self.tag(f"filter {self.pick(['upper', 'trim', 'indent', 'length'])}")
                + body
                + self.tag("endfilter")
            )
        pairs = self.pick(["d", "d.items()", "d | items", "nest | dictsort", "rows", "[(1, 2)]"])
        return self.tag(f"for k, v in {pairs}") + "{{ k }}:{{ v }}" + self.tag("endfor")

    def block(self, depth):
        return (
            "".join(
                self.space() + self.statement(depth) for _ in range(self.random.randrange(1, 3))
            )
            + self.space()
        )

    def template(self):
        if self.random.random() < 0.6:
            return "{{ " + self.expression(self.random.randrange(1, 4)) + " }}"
        return self.block(2)


# Printed by address in Python, so that nothing can be compared.
UNPRINTABLE = (
    "<generator object",
    "<built-in method",
    "<function ",
    "<list_reverseiterator",
    " object at 0x",
    "<class ",
    "<namespace",
)


def expected(env, template):
    try:
        return {"output": env.from_string(template).render(**copy.deepcopy(VARIABLES))}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dump", required=True)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # of Python, about what the random templates compile to
    grammar = Grammar(args.seed)
    env = make_chat_golden.environment()
    templates = [grammar.template() for _ in range(args.count)]
    jobs = "".join(json.dumps({"template": t, "variables": VARIABLES}) + "\n" for t in templates)
    lines = subprocess.run(
        [args.dump], input=jobs, capture_output=True, text=True, check=True
    ).stdout.split("\n")[:-1]
    assert len(lines) == len(templates), (len(lines), len(templates))
    counts = {
        "same": 0,
        "both refuse": 0,
        "not comparable": 0,
        "different": 0,
        "refused here only": 0,
    }
    for template, line in zip(templates, lines):
        want, got = expected(env, template), json.loads(line)
        if "output" in want and any(mark in want["output"].lower() for mark in UNPRINTABLE):
            counts["not comparable"] += 1
        elif "error" in want and "error" in got:
            counts["both refuse"] += 1
        elif want == got:
            counts["same"] += 1
        else:
            # Refusals of ours; and jinja2 makes slices of constant numbers undefined, of others an
            # error.
            known = "error" in got and any(
                text in got["error"]
                for text in (
                    "not supported",
                    "64 bits",
                    "64-bit",
                    "cannot be sliced",
                    "cannot be printed",
                )
            )
            counts["refused here only" if known else "different"] += 1
            if not known:
                print(f"{template!r}\n  jinja2 {want}\n  hearth {got}")
    print(counts)
    sys.exit(1 if counts["different"] else 0)


if __name__ == "__main__":
    main()
