"""The include table: which folder may include which, and what every #include in the tree does."""

import re

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([^"]+)"', re.MULTILINE)


def _expand(word):
    match = re.fullmatch(r"(.*)\{([^{}]+)\}(.*)", word)
    if not match:
        return [word]
    return [match.group(1) + middle + match.group(3) for middle in match.group(2).split(",")]


class IncludeTable:
    """Parsed from lines "folder -> folder folder/{a,b}"; allowed() is the transitive closure."""

    def __init__(self, text):
        direct = {}
        for line in text.splitlines():
            line = line.split("#")[0].strip()
            if not line:
                continue
            left, arrow, right = line.partition("->")
            if not arrow or left.strip() in direct:
                raise ValueError(f"include table: cannot read '{line}'")
            direct[left.strip()] = [name for word in right.split() for name in _expand(word)]
        every = list(direct)
        for names in direct.values():
            for name in names:
                if name != "*" and name not in direct:
                    raise ValueError(f"include table: '{name}' has no line of its own")
        self._allowed = {}
        for folder, names in direct.items():
            reached, waiting = {folder, "runtime/base"}, list(names)
            while waiting:
                name = waiting.pop()
                if name == "*":
                    waiting.extend(n for n in every if n not in ("tests", "tools"))
                elif name not in reached:
                    reached.add(name)
                    waiting.extend(direct[name])
            self._allowed[folder] = reached

    def folder_of(self, path):
        """The longest folder of the table that `path` lies in, or None."""
        parts = path.split("/")
        for count in range(len(parts) - 1, 0, -1):
            if "/".join(parts[:count]) in self._allowed:
                return "/".join(parts[:count])
        return None

    def allows(self, from_folder, to_folder):
        return to_folder in self._allowed[from_folder]


def includes_of(text):
    """(line, path) of every #include "path"."""
    return [(text.count("\n", 0, m.start(1)) + 1, m.group(1)) for m in _INCLUDE.finditer(text)]


def check_includes(path, text, table, known_paths):
    """Yields (line, message) for every include of ours that the table does not allow."""
    from_folder = table.folder_of(path)
    if from_folder is None:
        yield 1, "this folder is not in tests/lint/include_table.txt"
        return
    for line, target in includes_of(text):
        if target not in known_paths:
            if target.split("/")[0] in ("runtime", "cache", "cpu_kernels", "gpu_kernels", "pack",
                                        "tools", "tests"):
                yield line, f'"{target}" does not exist'
            elif "/" not in target and any(p.endswith("/" + target) for p in known_paths):
                yield line, f'"{target}": name the file from the root of the repository'
            continue
        to_folder = table.folder_of(target)
        if to_folder is None or not table.allows(from_folder, to_folder):
            yield line, f"{from_folder} may not include {to_folder or target}"
