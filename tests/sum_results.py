"""Adds up the results of tests/run.sh and prints them; the last line is "N passed, N failed".

usage: sum_results.py FOLDER
Reads every file of FOLDER: *.xml (JUnit by ctest, whose test programs print what they ran), *.json
(passed, failed and skipped names) and *.txt ("passed<TAB>name" lines). Failed and skipped tests are
listed by name. Exit code 1 when something failed or when there is no result at all.
"""

import json
import os
import re
import sys
import xml.etree.ElementTree as ElementTree

GTEST_DONE = re.compile(r"^\[ +(OK|FAILED|SKIPPED) +\] (\S+?),? .*\(\d+ ms\)$", re.MULTILINE)
GTEST_RUN = re.compile(r"^\[ RUN +\] (\S+)", re.MULTILINE)
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n+(OK|FAILED)(?: \((.*)\))?\s*$", re.MULTILINE)


class Totals:
    def __init__(self):
        self.passed = 0
        self.failed = []
        self.skipped = []

    def add_gtest(self, prefix, output):
        """Counts the cases of one GoogleTest program; False when `output` is not from one."""
        started = GTEST_RUN.findall(output)
        if not started:
            return False
        outcomes = {name: outcome for outcome, name in GTEST_DONE.findall(output)}
        for name in started:
            outcome = outcomes.get(name, "FAILED")  # begun and never ended: it crashed
            if outcome == "OK":
                self.passed += 1
            else:
                names = self.failed if outcome == "FAILED" else self.skipped
                names.append(f"{prefix}: {name}")
        return True

    def add_unittest(self, prefix, output):
        """Counts the cases of one Python unittest program; False when `output` is not from one."""
        match = UNITTEST.search(output)
        if not match:
            return False
        counts = dict(re.findall(r"(\w+)=(\d+)", match.group(3) or ""))
        failed = int(counts.get("failures", 0)) + int(counts.get("errors", 0))
        skipped = int(counts.get("skipped", 0))
        names = re.findall(r"^(?:FAIL|ERROR): (\w+)", output, re.MULTILINE)
        names += ["(a case)"] * (failed - len(names))
        self.failed += [f"{prefix}: {name}" for name in names[:failed]]
        names = re.findall(r"^(\w+) \(.*\.\.\. skipped", output, re.MULTILINE)
        names += ["(a case)"] * (skipped - len(names))
        self.skipped += [f"{prefix}: {name}" for name in names[:skipped]]
        self.passed += int(match.group(1)) - failed - skipped
        return True

    def add_junit(self, stage, text):
        for case in ElementTree.fromstring(text).iter("testcase"):
            prefix = f"{stage} {case.get('name')}"
            status = case.get("status")
            output = case.findtext("system-out") or ""
            failed_before = len(self.failed)
            counted = status in ("run", "fail") and (self.add_gtest(prefix, output) or
                                                     self.add_unittest(prefix, output))
            if status == "run":
                self.passed += 0 if counted else 1
            elif status == "fail":
                if len(self.failed) == failed_before:  # the program failed outside its cases
                    self.failed.append(prefix)
            else:
                self.skipped.append(f"{prefix} ({status})")

    def add_file(self, path):
        stage, ending = os.path.splitext(os.path.basename(path))
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        if ending == ".xml":
            self.add_junit(stage, text)
        elif ending == ".json":
            summary = json.loads(text)
            self.passed += len(summary["passed"])
            self.failed += [f"{stage}: {name}" for name in summary["failed"]]
            self.skipped += [f"{stage}: {name}" for name in summary["skipped"]]
        elif ending == ".txt":
            for line in text.splitlines():
                outcome, _, name = line.partition("\t")
                if outcome == "passed":
                    self.passed += 1
                else:
                    self.failed.append(name)

    def last_line(self):
        line = f"{self.passed} passed, {len(self.failed)} failed"
        return line + (f", {len(self.skipped)} skipped" if self.skipped else "")


def main():
    totals = Totals()
    folder = sys.argv[1]
    for name in sorted(os.listdir(folder)):
        try:
            totals.add_file(os.path.join(folder, name))
        except (ElementTree.ParseError, ValueError, KeyError) as error:
            totals.failed.append(f"{name}: cannot be read: {error}")
    for title, names in (("failed", totals.failed), ("skipped", totals.skipped)):
        for name in names:
            print(f"{title}: {name}")
    print(totals.last_line())
    sys.exit(1 if totals.failed or totals.passed == 0 else 0)


if __name__ == "__main__":
    main()
