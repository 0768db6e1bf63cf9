"""Rules that other programs decide: clang-format is clean, every header compiles by itself."""

import concurrent.futures
import os
import re
import shutil
import subprocess

from include_rules import includes_of

_HEADER_FLAGS = ["-std=c++20", "-fsyntax-only", "-O0", "-Wall", "-Wextra", "-Wno-unused-function",
                 "-Wno-unused-const-variable", "-Wno-psabi", "-x", "c++"]


def _in_parallel(function, items):
    workers = len(os.sched_getaffinity(0))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, items))


def check_format(root, paths):
    """Yields (path, line, message) for C++ files that clang-format 14 would change."""
    program = shutil.which("clang-format-14") or shutil.which("clang-format")
    if program is None:
        yield "tools/setup.sh", 1, "clang-format 14 is not installed: run tools/setup.sh --test"
        return
    batches = [paths[i:i + 24] for i in range(0, len(paths), 24)]

    def run(batch):
        command = [program, "--dry-run", "-Werror", "--ferror-limit=1", *batch]
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)

    for batch, done in zip(batches, _in_parallel(run, batches)):
        found = re.findall(r"^(.+?):(\d+):\d+: error: (.*)$", done.stderr, re.MULTILINE)
        for path, line, message in found:
            yield os.path.relpath(os.path.join(root, path), root), int(line), message
        if done.returncode != 0 and not found:
            yield batch[0], 1, f"clang-format failed: {done.stderr.strip()[:200]}"


def headers_to_compile(texts):
    """Headers that no source file includes first: those that are have been compiled alone there.

    *_inl.h are bodies, compiled once per instruction set by the file that sets it up: not alone.
    """
    first = set()
    for path, text in texts.items():
        if path.endswith(".cc"):
            found = includes_of(text)
            before = text[:text.find('"' + found[0][1] + '"')] if found else ""
            if found and before.count("#include") == 1:
                first.add(found[0][1])
    return sorted(p for p in texts
                  if p.endswith(".h") and not p.endswith("_inl.h") and p not in first)


def check_headers_alone(root, texts):
    """Yields (path, line, message) for headers that need another one before them."""

    def run(path):
        command = ["g++", *_HEADER_FLAGS, "-I", root, "-include", os.path.join(root, path),
                   "/dev/null"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    headers = headers_to_compile(texts)
    for path, done in zip(headers, _in_parallel(run, headers)):
        if done.returncode == 0 and not done.stderr:
            continue
        match = re.search(r":(\d+):\d+: (?:fatal )?(?:error|warning): (.*)", done.stderr)
        message = match.group(2) if match else done.stderr.strip()[:200]
        own = match is not None and match.string[:match.start()].endswith(path)
        yield path, int(match.group(1)) if own else 1, f"does not compile alone: {message}"
