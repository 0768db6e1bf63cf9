"""Rules about any text file: length, columns, spaces, leftovers, titles; Python functions."""

import ast
import re

COLUMNS_MAX = 100
FILE_LINES_MAX = 600
TEST_LINES_MAX = 1000
FUNCTION_LINES_MAX = 70
TEST_FUNCTION_LINES_MAX = 100  # a table of cases is long and still read line by line

# Split so that this file does not find itself.
_LEFTOVER = re.compile(r"\b(?:TO" r"DO|FIX" r"ME|X" r"XX)\b")


def check_file_length(path, text, is_data):
    if is_data:
        return
    limit = TEST_LINES_MAX if path.startswith("tests/") or "generated" in path else FILE_LINES_MAX
    count = text.count("\n")
    if count > limit:
        yield limit + 1, f"{count} lines, at most {limit}"


def check_columns(text):
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > COLUMNS_MAX:
            yield number, f"{len(line)} columns, at most {COLUMNS_MAX}"


def check_spaces(text):
    for number, line in enumerate(text.split("\n"), 1):
        if line != line.rstrip():
            yield number, "space at the end of the line"
        if "\t" in line:
            yield number, "tab"
    if text and not text.endswith("\n"):
        yield text.count("\n") + 1, "no newline at the end of the file"


def check_leftovers(text):
    for number, line in enumerate(text.split("\n"), 1):
        match = _LEFTOVER.search(line)
        if match:
            yield number, f"{match.group(0)}: plans live in issues"


def check_markdown_title(text):
    titles, fenced = [], False
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and line.startswith("# "):
            titles.append(number)
    if not titles or titles[0] != 1:
        yield 1, "a Markdown file begins with its # Title"
    for number in titles[1:]:
        yield number, "a second # Title"


def check_script_purpose(path, text):
    """Python: a docstring; shell: a comment; after the #! line when there is one."""
    body = re.sub(r"\A#!.*\n", "", text)
    wanted = '"""' if path.endswith(".py") else "# "
    if not body.startswith(wanted):
        yield 1, "the file begins with what it is for"


def check_python_functions(path, text):
    limit = TEST_FUNCTION_LINES_MAX if path.startswith("tests/") else FUNCTION_LINES_MAX
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            count = node.end_lineno - node.lineno + 1
            if count > limit:
                yield node.lineno, f"{node.name} has {count} lines, at most {limit}"
