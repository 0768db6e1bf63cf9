"""What the tests of the programs share: the program, which is their first argument, its exit codes,
a run of it and a pack of the shipped model.
"""

import subprocess
import sys

HEARTH = sys.argv[1]
OK, FAILURE, USAGE, DAMAGED, RESOURCES, NOT_FOUND = range(6)


def hearth(*args, **kwargs):
    return subprocess.run([HEARTH, *map(str, args)], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL, **kwargs)


def build_flashlet(source, out, *flags):
    """Packs the shipped model of the tree at `source`."""
    built = hearth("pack", "build", "--from", source / "profiles/flashlet", "--out", out, *flags)
    assert built.returncode == OK, built.stderr
