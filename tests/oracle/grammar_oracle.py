#!/usr/bin/env python3
"""Compares constrained decoding with the package `jsonschema`: whatever is written along allowed
tokens must validate, whatever mutation of it is accepted must validate too, and every value of a
handmade list that validates and is spelled as we spell must be accepted.

usage: grammar_oracle.py DUMP [--rounds COUNT] [--seed SEED]
DUMP is the built tests/runtime/model/grammar/grammar_dump. Without the package it says so and
succeeds."""

import argparse
import json
import random
import subprocess
import sys

PATTERNS = ["^a+b*$", "x[0-9]{2,4}", "^(ab|cd|\\u00e9){1,3}$", "[^a-z]$", "\\\\|\"", "^$", "^.{2}"]
FORMATS = ["date", "date-time", "time", "uuid", "ipv4", "ipv6", "email"]
NAMES = ["a", "b", "na\"me", "\u00e9t\u00e9", "list", "x y"]


def text_schema(rng):
    schema = {"type": "string"}
    kind = rng.randrange(5)
    if kind == 0:
        schema["minLength"] = rng.randrange(4)
        schema["maxLength"] = schema["minLength"] + rng.randrange(6)
    elif kind == 1:
        schema["pattern"] = rng.choice(PATTERNS)
    elif kind == 2:
        schema["format"] = rng.choice(FORMATS)
    elif kind == 3:
        schema["minLength"] = rng.randrange(6)
    return schema


def number_schema(rng):
    schema = {"type": rng.choice(["integer", "number"])}
    low = rng.randrange(-3000, 3000)
    if rng.random() < 0.5:
        schema[rng.choice(["minimum", "exclusiveMinimum"])] = rng.choice([low, low + 0.125])
    if rng.random() < 0.5:
        schema[rng.choice(["maximum", "exclusiveMaximum"])] = low + rng.choice([1, 7.5, 900, 20.25])
    if schema["type"] == "integer" and rng.random() < 0.2:
        schema["multipleOf"] = rng.randrange(1, 9)
    return schema


def object_schema(rng, depth):
    schema = {"type": "object", "properties": {}}
    for name in NAMES:
        if rng.random() < 0.4:
            schema["properties"][name] = any_schema(rng, depth - 1)
    schema["required"] = [n for n in schema["properties"] if rng.random() < 0.5]
    kind = rng.randrange(4)
    if kind < 2:
        schema["additionalProperties"] = False
        if rng.random() < 0.3:
            schema["minProperties"] = rng.randrange(3)
    elif kind == 2:
        schema["additionalProperties"] = any_schema(rng, depth - 1)
    if rng.random() < 0.2:
        schema["maxProperties"] = rng.randrange(1, 5)
    return schema


def array_schema(rng, depth):
    schema = {"type": "array"}
    if rng.random() < 0.3:
        schema["prefixItems"] = [any_schema(rng, depth - 1) for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.8:
        schema["items"] = any_schema(rng, depth - 1)
    if rng.random() < 0.4:
        schema["minItems"] = rng.randrange(4)
    if rng.random() < 0.4:
        schema["maxItems"] = rng.randrange(1, 5)
    return schema


def any_schema(rng, depth):
    kind = rng.randrange(13 if depth > 0 else 6)
    if kind == 0:
        return text_schema(rng)
    if kind == 1:
        return number_schema(rng)
    if kind == 2:
        return {"type": ["boolean", "null"]}
    if kind == 3:
        return {"enum": ["one", 2, "t\\w\"o", None, 2.5, "\u20ac"]}
    if kind == 4:
        return rng.choice([True, {}])
    if kind == 5:
        return {"const": rng.choice([17, {"k": [1, 2]}, "x"])}
    if kind == 6:
        return {"anyOf": [any_schema(rng, depth - 1) for _ in range(2)]}
    if kind == 7:
        return {"allOf": [object_schema(rng, depth - 1), object_schema(rng, depth - 1)]}
    if kind == 8:
        return {"$ref": "#/$defs/shared"}
    if kind == 9:
        return array_schema(rng, depth)
    return object_schema(rng, depth)


def mutate(rng, text):
    """A text near `text`, so that refusing what is nearly right is tested as well."""
    cut = rng.randrange(len(text) + 1)
    kind = rng.randrange(4)
    if kind == 0:
        return text[:cut] + text[cut + 1 :]
    if kind == 1:
        return text[:cut] + rng.choice('"{}[],:0159ae \\-.') + text[cut:]
    if kind == 2:
        return text[:cut] + rng.choice('"{}[],:0159ae \\-.') + text[cut + 1 :]
    other = rng.randrange(len(text) + 1)
    return text[:cut] + text[min(cut, other) : max(cut, other)] + text[cut:]


def validator_for(schema):
    import jsonschema

    kind = jsonschema.Draft202012Validator
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def validates(validator, text):
    try:
        value = json.loads(text)
    except ValueError:
        return False
    return validator.is_valid(value)


def ask(process, request):
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


def run(arguments):
    rng = random.Random(arguments.seed)
    counts = {"compiled": 0, "refused": 0, "walks": 0, "mutations": 0, "accepted": 0}
    with subprocess.Popen(
        [arguments.dump], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        for _ in range(arguments.rounds):
            schema = any_schema(rng, 3)
            if isinstance(schema, dict):
                schema = {**schema, "$defs": {"shared": any_schema(rng, 2)}}
            validator = validator_for(schema)
            text = json.dumps(schema)
            answer = ask(process, {"schema": text, "walks": 6, "seed": rng.randrange(1 << 31)})
            if "error" in answer:
                counts["refused"] += 1
                known = ("no value", "refers to itself", "enum or const beside", "minProperties of")
                if not any(part in answer["error"] for part in known):
                    print(f"unexpected refusal: {answer['error']}\n  {text}")
                    return 1
                continue
            counts["compiled"] += 1
            answer["walks"] = [walk for walk in answer["walks"] if walk is not None]
            near = [mutate(rng, walk) for walk in answer["walks"] for _ in range(5)]
            accepted = ask(process, {"schema": text, "accept": near})["accepted"]
            counts["walks"] += len(answer["walks"])
            counts["mutations"] += len(near)
            counts["accepted"] += sum(accepted)
            written = answer["walks"] + [t for t, good in zip(near, accepted) if good]
            for document in written:
                if not validates(validator, document):
                    print(f"does not validate: {document}\n  {text}")
                    return 1
        process.stdin.close()
    print(", ".join(f"{value} {name}" for name, value in counts.items()))
    if counts["compiled"] < arguments.rounds / 2 or counts["accepted"] == 0:
        print("too little was tested")
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("dump")
    parser.add_argument("--rounds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    try:
        import jsonschema  # noqa: F401
    except ImportError:
        print("the package jsonschema is not installed: nothing compared")
        return 0
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
