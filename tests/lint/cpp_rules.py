"""Rules about one C++ file: lengths, names, calls that have one home, static state."""

import re

from source_text import blank_comments_and_literals, find_functions, line_of

FUNCTION_LINES_MAX = 70
TEST_FUNCTION_LINES_MAX = 100  # a table of cases is long and still read line by line

# Words that say how good a thing is, or nothing at all.
BANNED_WORDS = {"fast", "faster", "opt", "optimized", "optimised", "new", "old", "util", "utils",
                "helper", "helpers", "manager", "managers", "misc"}

# Pattern, what to do instead, and the files that are its home. Paths beginning "tests/" are tests.
BANNED_CALLS = [
    (r"\b(?:secure_)?getenv\s*\(|\bsetenv\s*\(|\bputenv\s*\(", "take it as configuration", ()),
    (r"(?<![\w.>:])(?:::\s*)?close\s*\(", "own the descriptor with UniqueFd",
     ("runtime/base/file.cc",)),
    (r"(?<![\w.>])(?:::\s*)?munmap\s*\(", "own the mapping with a class",
     ("runtime/base/file.cc",)),
    (r"\bcudaFree(?:Host|Async)?\s*\(", "own the memory with a class", ("gpu_kernels/device/",)),
    (r"\bstd::(?:quick_)?exit\s*\(|(?<![\w.>:])_?exit\s*\(", "return a Status", ()),
    (r"(?<![\w.>:])(?:std::)?abort\s*\(", "HEARTH_CHECK, or return a Status",
     ("runtime/base/check.cc",)),
    (r"[.>]detach\s*\(", "join what you start", ()),
    (r"(?<![\w.>:])(?:std::)?s?rand\s*\(|\brandom_device\b|\bmt19937", "take a Prng", ()),
    (r"(?<![\w.>:])(?:std::)?(?:system|popen)\s*\(", "no shell", ()),
    (r"(?<![\w.>:])(?:std::)?time\s*\(\s*(?:nullptr|NULL|0)\s*\)|\b\w+_clock::now\s*\(",
     "take a Clock", ("runtime/base/clock.cc",)),
    (r"\bsleep_(?:for|until)\s*\(|(?<![\w.>:])u?sleep\s*\(", "wait for the event itself", ()),
    (r"(?<!\w)throw\b(?!\s*\(\s*\))", "return a Status", ("tests/",)),
    (r"\b[iI]nstance\s*\(\s*\)", "no singletons: take it as an argument", ()),
    (r"\bthread_local\b", "no hidden state: take it as an argument", ()),
]

_TYPE_NAME = re.compile(r"\b(?:class|struct|union|enum(?:\s+class)?|concept)\s+"
                        r"(?:\[\[[^\]]*\]\]\s*)?(\w+)|\busing\s+(\w+)\s*=")
_SIZE_NAME = re.compile(r"(?<=[\w>\]&*])[ \t]+[&*]?(\w+_size_?)\s*(?=[=;,){\[])")
_STATIC = re.compile(r"^[ \t]*(?:inline[ \t]+)?static[ \t]+(?!_)([^;{}=()]*?)([;={(])",
                     re.MULTILINE)


def name_words(name):
    """The words of snake_case, CamelCase or kConstant, in lower case."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|v\d+", name)
    versions = re.findall(r"(?:^|_)(v\d+)(?=_|\.|$)|(?<=[a-z])(V\d+)(?=[A-Z]|$)", name)
    return [part.lower() for part in parts] + [(a or b).lower() for a, b in versions]


def banned_words_in(name):
    return [w for w in name_words(name) if w in BANNED_WORDS or re.fullmatch(r"v\d+", w)]


def check_function_lengths(path, text):
    limit = TEST_FUNCTION_LINES_MAX if path.startswith("tests/") else FUNCTION_LINES_MAX
    for function in find_functions(text):
        if function.line_count > limit:
            yield (function.first_line,
                   f"{function.name} has {function.line_count} lines, at most {limit}")


def check_names(text):
    code = blank_comments_and_literals(text)
    for match in _TYPE_NAME.finditer(code):
        name = match.group(1) or match.group(2)
        for word in banned_words_in(name):
            yield line_of(code, match.start()), f"'{word}' in {name} does not say what it is"


def check_size_names(text):
    code = blank_comments_and_literals(text)
    for match in _SIZE_NAME.finditer(code):
        before = code[:match.start()].rsplit(None, 1)[-1:]
        if before and before[0] in ("return", "case", "goto"):
            continue
        yield (line_of(code, match.start(1)),
               f"{match.group(1)}: say _bytes, _count or what it counts")


def check_calls(path, text):
    code = blank_comments_and_literals(text)
    for pattern, remedy, homes in BANNED_CALLS:
        if any(path == home or (home.endswith("/") and path.startswith(home)) for home in homes):
            continue
        for match in re.finditer(pattern, code):
            yield line_of(code, match.start()), f"{match.group(0).strip()}: {remedy}"


def check_static_state(text):
    """Static variables that are not const: at namespace scope, in functions and in classes."""
    code = blank_comments_and_literals(text)
    for match in _STATIC.finditer(code):
        declaration, end = match.group(1).strip(), match.group(2)
        if re.search(r"\bconst(?:expr|init)?\b", declaration) and not declaration.endswith("*"):
            continue
        if end == "(":
            continue  # a function
        if "operator" in declaration:
            continue
        yield line_of(code, match.start()), f"static {declaration}: state needs an owner"


def check_purpose(path, text):
    """A comment on the first line; a source may begin with its own header and share its purpose."""
    own_header = f'#include "{path.rsplit(".", 1)[0]}.h"\n'
    if not re.match(r"// \S", text) and not text.startswith(own_header):
        yield 1, "the first line is a comment that says what the file is for"


def check_pragma_once(text):
    if not re.search(r"^#pragma once$", text, re.MULTILINE):
        yield 1, "a header has #pragma once"
