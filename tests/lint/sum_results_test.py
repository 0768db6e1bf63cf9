"""Tests of tests/sum_results.py: nothing that failed, crashed or was skipped may get lost."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from sum_results import Totals  # noqa: E402 (the path comes first)

GTEST = """[==========] Running 3 tests from 1 test suite.
[ RUN      ] A.Works
[       OK ] A.Works (0 ms)
[ RUN      ] A.Fails
a_test.cc:3: Failure
[  FAILED  ] A.Fails (12 ms)
[ RUN      ] A.Lacks
a_test.cc:5: Skipped
[  SKIPPED ] A.Lacks (0 ms)
[  PASSED  ] 1 test.
[  SKIPPED ] 1 test, listed below:
[  SKIPPED ] A.Lacks
[  FAILED  ] 1 test, listed below:
[  FAILED  ] A.Fails
"""


def junit(status, output, name="x"):
    escaped = output.replace("&", "&amp;").replace("<", "&lt;")
    return (f'<testsuite><testcase name="{name}" status="{status}">'
            f"<system-out>{escaped}</system-out></testcase></testsuite>")


class SumResultsTest(unittest.TestCase):
    def totals(self, *documents):
        totals = Totals()
        for document in documents:
            totals.add_junit("release", document)
        return totals

    def test_gtest_cases_are_counted_one_by_one(self):
        totals = self.totals(junit("fail", GTEST))
        self.assertEqual(totals.last_line(), "1 passed, 1 failed, 1 skipped")
        self.assertEqual(totals.failed, ["release x: A.Fails"])
        self.assertEqual(totals.skipped, ["release x: A.Lacks"])

    def test_parameterised_names_and_values(self):
        text = "[ RUN      ] I/P.M/0\n[  FAILED  ] I/P.M/0, where GetParam() = (1, 2) (3 ms)\n"
        self.assertEqual(self.totals(junit("fail", text)).failed, ["release x: I/P.M/0"])

    def test_a_crash_fails_the_case_that_was_running(self):
        text = "[ RUN      ] A.B\n[       OK ] A.B (0 ms)\n[ RUN      ] A.C\nSegmentation fault\n"
        totals = self.totals(junit("fail", text))
        self.assertEqual(totals.last_line(), "1 passed, 1 failed")
        self.assertEqual(totals.failed, ["release x: A.C"])

    def test_a_program_that_fails_after_its_cases_fails(self):
        text = "[ RUN      ] A.B\n[       OK ] A.B (0 ms)\n==1==ERROR: LeakSanitizer\n"
        self.assertEqual(self.totals(junit("fail", text)).last_line(), "1 passed, 1 failed")

    def test_other_programs_count_as_one(self):
        self.assertEqual(self.totals(junit("run", "done")).last_line(), "1 passed, 0 failed")
        self.assertEqual(self.totals(junit("fail", "no")).last_line(), "0 passed, 1 failed")

    def test_a_test_that_did_not_run_is_listed(self):
        totals = self.totals(junit("notrun", ""))
        self.assertEqual(totals.last_line(), "0 passed, 0 failed, 1 skipped")
        self.assertEqual(totals.skipped, ["release x (notrun)"])

    def test_unittest_programs(self):
        text = "...\n----\nRan 4 tests in 0.1s\n\nOK (skipped=1)\n"
        totals = self.totals(junit("run", text))
        self.assertEqual(totals.last_line(), "3 passed, 0 failed, 1 skipped")
        text = "FAIL: test_a (b.C)\n----\nRan 4 tests in 0.1s\n\nFAILED (failures=1, errors=1)\n"
        totals = self.totals(junit("fail", text))
        self.assertEqual(totals.last_line(), "2 passed, 2 failed")
        self.assertEqual(totals.failed, ["release x: test_a", "release x: (a case)"])


if __name__ == "__main__":
    unittest.main()
