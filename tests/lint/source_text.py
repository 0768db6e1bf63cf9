"""C++ source seen as code alone: comments and literals blanked, functions found by their braces."""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""//(?:[^\n\\]|\\.|\\\n)*            # line comment, with continuation
      | /\*.*?\*/                          # block comment
      | R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"   # raw string
      | "(?:[^"\\\n]|\\.|\\\n)*"           # string
      | (?<![0-9A-Za-z_])'(?:[^'\\\n]|\\.)+'  # character, but not a digit separator
    """,
    re.DOTALL | re.VERBOSE)

# After a digit separator ' is no quote; prefixes such as u8 are letters right before the quote.
_PREFIXED_CHARACTER = re.compile(r"\b(?:u8|u|U|L)'(?:[^'\\\n]|\\.)'")


def blank_comments_and_literals(text):
    """Same length and same lines, with every comment and literal's inside replaced by spaces."""

    def blank(match):
        found = match.group(0)
        inside = re.sub(r"[^\n]", " ", found)
        if found.startswith(("//", "/*")):
            return inside
        return found[0] + inside[1:-1] + found[-1] if len(found) >= 2 else found

    text = _PREFIXED_CHARACTER.sub(lambda m: " " * len(m.group(0)), text)
    return _TOKEN.sub(blank, text)


def blank_preprocessor(code):
    """Blanks directives, continuation lines included, so that braces in macros do not count."""
    return re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda m: re.sub(r"[^\n]", " ", m.group(0)),
                  code, flags=re.MULTILINE)


@dataclass
class Function:
    name: str
    first_line: int  # of the head, 1-based
    last_line: int   # of the closing brace

    @property
    def line_count(self):
        return self.last_line - self.first_line + 1


_SCOPE_HEAD = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")


def _is_function_head(head):
    """Whether `head`, the text between the last ; { } and a {, begins a function's body."""
    if "(" not in head:
        return False
    flat = head
    while True:  # drop what is inside parentheses, innermost first
        shorter = re.sub(r"\([^()]*\)", " ", flat)
        if shorter == flat:
            break
        flat = shorter
    flat = re.sub(r"\boperator\s*[^\w\s]+", "operator", flat)
    flat = re.sub(r"<[^<>]*>", " ", flat)
    if re.search(r"(?<![<>=!])=(?!=)", flat):
        return False  # an initialiser
    scope = _SCOPE_HEAD.search(flat)
    # "struct X f(...) {" is a function; "class [[x(1)]] Y {" and "enum class Z : T {" are not.
    return scope is None or (scope.group(1) != "namespace" and head.rstrip().endswith(")"))


_ACCESS = re.compile(r"\A\s*(?:public|private|protected)\s*:")
_NAME = re.compile(r"([~\w:]*\boperator\s*[^\w\s(]+|[~\w:]+)\s*\(")


def find_functions(text):
    """The outermost functions of a C++ file; lambdas and local classes belong to them."""
    code = blank_preprocessor(blank_comments_and_literals(text))
    functions = []
    depth = 0
    opaque_depth = None  # of the function or initialiser that is open: nothing inside is looked at
    open_function = None
    head_start = 0
    for match in re.finditer(r"[{};]", code):
        at = match.start()
        if match.group(0) == "{":
            head = code[head_start:at]
            access = _ACCESS.match(head)
            begin = head_start + (access.end() if access else 0)
            head = code[begin:at]
            if opaque_depth is None and _is_function_head(head):
                name = _NAME.search(head)
                begin += len(head) - len(head.lstrip())
                open_function = (name.group(1) if name else "?", line_of(code, begin))
                opaque_depth = depth
            elif opaque_depth is None and not _SCOPE_HEAD.search(head):
                opaque_depth = depth
            depth += 1
        elif match.group(0) == "}":
            depth -= 1
            if depth == opaque_depth:
                if open_function is not None:
                    functions.append(Function(*open_function, line_of(code, at)))
                opaque_depth = open_function = None
        if opaque_depth is None:
            head_start = at + 1
    return functions


def line_of(text, position):
    return text.count("\n", 0, position) + 1
