"""Checks the tree against its own rules: prints `file:line: rule: message` for each violation.

usage: lint.py [--root DIR] [--skip RULE]... [--summary FILE]
The canary is checked first: a copy of tests/lint/canary with planted violations, each of which must
be reported, or lint itself has failed. Exit code 1 when anything was found.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import cpp_rules
import text_rules
import tool_rules
from include_rules import IncludeTable, check_includes, includes_of

HERE = os.path.dirname(os.path.abspath(__file__))
CANARY = "tests/lint/canary/"
TOP_LEVEL = {"CMakeLists.txt", "CMakePresets.json", "README.md", "runtime", "cache", "cpu_kernels",
             "gpu_kernels", "pack", "profiles", "tests", "tools"}
CPP = (".h", ".cc", ".cu", ".cuh")
DATA_FOLDERS = ("profiles/", "tests/golden/", "tests/fuzz/corpus/")
TEXT_ENDINGS = CPP + (".py", ".sh", ".md", ".txt", ".cmake", ".json")
RULES = ["top-level", "file-length", "columns", "spaces", "leftovers", "purpose", "pragma-once",
         "function-length", "names", "size-names", "calls", "static-state", "includes", "tested",
         "title", "format", "header-alone", "allow-list"]


def list_files(root):
    """Paths that git tracks or would track; without a repository, everything outside build/."""
    done = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                          cwd=root, capture_output=True, text=True, check=False)
    is_top = os.path.exists(os.path.join(root, ".git"))
    if done.returncode == 0 and is_top:
        paths = [p for p in done.stdout.split("\0") if p]
    else:
        paths = [os.path.relpath(os.path.join(folder, name), root)
                 for folder, _, names in os.walk(root) for name in names]
        paths = [p for p in paths
                 if not p.startswith(("build/", ".git/")) and "__pycache__" not in p]
    return sorted(p for p in set(paths) if os.path.isfile(os.path.join(root, p)))


def read_texts(root, paths):
    """path -> text, and the paths that are not UTF-8."""
    texts, unreadable = {}, []
    for path in paths:
        is_script = path.startswith(".ci/")
        if not path.endswith(TEXT_ENDINGS) and not is_script:
            continue
        if path.startswith(DATA_FOLDERS) and not path.endswith((".py", ".md")):
            continue
        try:
            with open(os.path.join(root, path), encoding="utf-8") as file:
                texts[path] = file.read()
        except UnicodeDecodeError:
            unreadable.append(path)
    return texts, unreadable


def is_shell(path):
    return path.endswith(".sh") or path.startswith(".ci/")


def text_violations(path, text):
    """(rule, line, message) of the rules that need one file only."""
    checks = [("file-length", text_rules.check_file_length(path, text, path.endswith(".json"))),
              ("spaces", text_rules.check_spaces(text)),
              ("leftovers", text_rules.check_leftovers(text))]
    if path.endswith(CPP + (".py", ".sh", ".cmake")) or path.endswith("CMakeLists.txt"):
        checks.append(("columns", text_rules.check_columns(text)))
    if path.endswith(".md"):
        checks.append(("title", text_rules.check_markdown_title(text)))
    if path.endswith(".py"):
        checks.append(("function-length", text_rules.check_python_functions(path, text)))
    if path.endswith(".py") or is_shell(path):
        checks.append(("purpose", text_rules.check_script_purpose(path, text)))
    if path.endswith(CPP):
        checks += [("purpose", cpp_rules.check_purpose(path, text)),
                   ("function-length", cpp_rules.check_function_lengths(path, text)),
                   ("names", cpp_rules.check_names(text)),
                   ("size-names", cpp_rules.check_size_names(text)),
                   ("calls", cpp_rules.check_calls(path, text))]
    if path.endswith(CPP) and not path.startswith("tests/"):  # suites share fixtures in statics
        checks.append(("static-state", cpp_rules.check_static_state(text)))
    if path.endswith((".h", ".cuh")):
        checks.append(("pragma-once", cpp_rules.check_pragma_once(text)))
    for rule, found in checks:
        for line, message in found:
            yield rule, line, message


def untested(texts):
    """Sources of ours that no test names.

    A test names a source by its header, by its own name (<stem>_test.cc), by its path in a comment,
    or by a header of the same folder whose includes lead to it. The instruction sets are tested
    through the table that lists them, cpu_kernels/dispatch.
    """
    tests = {p: t for p, t in texts.items() if p.startswith("tests/")}
    reached = {target for text in tests.values() for _, target in includes_of(text)}
    stems = {os.path.basename(p).rsplit(".", 1)[0] for p in tests}
    named = set(re.findall(r"[\w/]+/\w+\.cc", "\n".join(tests.values())))
    bodies = {}  # header -> the sources of its folder without a header of their own that include it
    for path, text in texts.items():
        if path.endswith(".cc") and path[:-len(".cc")] + ".h" not in texts:
            for _, target in includes_of(text):
                if os.path.dirname(target) == os.path.dirname(path):
                    bodies.setdefault(target, []).append(path)
    waiting = list(reached)
    while waiting:
        header = waiting.pop()
        for path in [header, header[:-len(".h")] + ".cc"] + bodies.get(header, []):
            for _, target in includes_of(texts.get(path, "")):
                if os.path.dirname(target) == os.path.dirname(header) and target not in reached:
                    reached.add(target)
                    waiting.append(target)
    folders = {os.path.dirname(header) for header in reached}
    if "cpu_kernels/dispatch/cpu_kernels.h" in reached:
        folders |= {"cpu_kernels/scalar", "cpu_kernels/avx2", "cpu_kernels/avx512"}
    for path in texts:
        if not path.endswith(".cc") or path.startswith("tests/") or path.endswith("_bench.cc"):
            continue
        header = path[:-len(".cc")] + ".h"
        name = os.path.basename(path)[:-len(".cc")]
        if header in reached or path in named or name + "_test" in stems:
            continue
        if header not in texts and os.path.dirname(path) in folders:
            continue  # one of several sources behind a header that is tested
        yield path, 1, f"no test includes {header}, is called {name}_test.cc or names {path}"


def tree_violations(root, paths, texts, skip):
    """(path, line, rule, message) of everything in the tree."""
    with open(os.path.join(HERE, "include_table.txt"), encoding="utf-8") as file:
        table = IncludeTable(file.read())
    for entry in sorted({p.split("/")[0] for p in paths}):
        if entry not in TOP_LEVEL and not entry.startswith("."):
            yield entry, 1, "top-level", "the top level holds what the architecture lists"
    for path in paths:
        if path.startswith(DATA_FOLDERS):
            continue
        for word in {w for part in path.split("/") for w in cpp_rules.banned_words_in(part)}:
            yield path, 1, "names", f"'{word}' in a file name does not say what it is"
    known = set(paths)
    for path, text in texts.items():
        for rule, line, message in text_violations(path, text):
            yield path, line, rule, message
        if path.endswith(CPP):
            for line, message in check_includes(path, text, table, known):
                yield path, line, "includes", message
    for path, line, message in untested(texts):
        yield path, line, "tested", message
    cpp_texts = {p: t for p, t in texts.items() if p.endswith((".h", ".cc"))}
    if "format" not in skip:
        for path, line, message in tool_rules.check_format(root, sorted(cpp_texts)):
            yield path, line, "format", message
    if "header-alone" not in skip:
        for path, line, message in tool_rules.check_headers_alone(root, cpp_texts):
            yield path, line, "header-alone", message


class AllowList:
    """Lines "rule path reason"; a line that allows nothing any more is a violation itself."""

    def __init__(self, text, path):
        self.path = path
        self.entries = {}
        for number, line in enumerate(text.splitlines(), 1):
            words = line.split("#")[0].split(None, 2)
            if words:
                self.entries[tuple(words[:2])] = [number, len(words) == 3, False]

    def allows(self, rule, path):
        for (entry_rule, entry_path), state in self.entries.items():
            covers = entry_path == path or (entry_path.endswith("/")
                                            and path.startswith(entry_path))
            if entry_rule == rule and covers and state[1]:
                state[2] = True
                return True
        return False

    def complaints(self, skip):
        for (rule, path), (number, has_reason, used) in self.entries.items():
            if rule not in RULES:
                yield self.path, number, "allow-list", f"no rule is called '{rule}'"
            elif not has_reason:
                yield self.path, number, "allow-list", f"{rule} {path}: give a reason"
            elif not used and rule not in skip:
                yield self.path, number, "allow-list", f"{rule} {path}: nothing to allow any more"


def check_tree(root, skip):
    paths = [p for p in list_files(root) if not p.startswith(CANARY)]
    texts, unreadable = read_texts(root, paths)
    violations = [(p, 1, "spaces", "not UTF-8") for p in unreadable]
    violations += tree_violations(root, paths, texts, skip)
    allow_path = "tests/lint/allow.txt"
    allow = AllowList(texts.get(allow_path, ""), allow_path)
    violations = [v for v in violations if v[2] not in skip and not allow.allows(v[2], v[0])]
    return sorted(set(violations + list(allow.complaints(skip))))


def check_canary(skip):
    """Complaints about lint itself: a plant not reported, or a report without a plant."""
    with tempfile.TemporaryDirectory() as folder:
        root = os.path.join(folder, "canary")
        shutil.copytree(os.path.join(HERE, "canary"), root)
        os.remove(os.path.join(root, "expected.txt"))
        shutil.copy(os.path.join(HERE, "../../.clang-format"), root)
        with open(os.path.join(root, "runtime/base/long.cc"), "a", encoding="utf-8") as file:
            file.write("// A line.\n" * text_rules.FILE_LINES_MAX)
        found = {f"{p}:{line}: {rule}" for p, line, rule, _ in check_tree(root, skip)}
    with open(os.path.join(HERE, "canary/expected.txt"), encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip() and not line.startswith("#")]
    expected = {line for line in lines if line.rsplit(" ", 1)[1] not in skip}
    for rule in RULES:
        if rule not in skip and not any(line.endswith(": " + rule) for line in lines):
            yield f"rule {rule} has no planted violation"
    for line in sorted(expected - found):
        yield f"planted violation not reported: {line}"
    for line in sorted(found - expected):
        yield f"reported without a plant: {line}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(HERE)))
    parser.add_argument("--skip", action="append", default=[], choices=RULES)
    parser.add_argument("--summary", help="write {passed, failed, skipped: [rules]} as JSON here")
    arguments = parser.parse_args()
    skip = set(arguments.skip)
    canary = [f"tests/lint/canary:1: canary: {complaint}" for complaint in check_canary(skip)]
    violations = check_tree(os.path.abspath(arguments.root), skip)
    for complaint in canary:
        print(complaint)
    for path, line, rule, message in violations:
        print(f"{path}:{line}: {rule}: {message}")
    failed = sorted({v[2] for v in violations} | ({"canary"} if canary else set()))
    passed = [rule for rule in RULES + ["canary"] if rule not in failed and rule not in skip]
    print(f"lint: {len(canary) + len(violations)} violations, {len(passed)} rules passed, "
          f"{len(failed)} failed", file=sys.stderr)
    if arguments.summary:
        with open(arguments.summary, "w", encoding="utf-8") as file:
            json.dump({"passed": passed, "failed": failed, "skipped": sorted(skip)}, file)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
