"""Tests of lint's own parts; the canary tests the whole."""

import unittest

import cpp_rules
import text_rules
from include_rules import IncludeTable, check_includes
from lint import AllowList, untested
from source_text import blank_comments_and_literals, find_functions

TABLE = """
# a comment
runtime/base ->
pack/format -> runtime/base
pack/reader -> pack/format
runtime/model -> pack/{reader,format}
tools -> *
tests -> * tools
"""


class SourceTextTest(unittest.TestCase):
    def blank(self, text):
        blanked = blank_comments_and_literals(text)
        self.assertEqual(len(blanked), len(text))
        self.assertEqual(blanked.count("\n"), text.count("\n"))
        return blanked

    def test_comments_and_literals_go_and_code_stays(self):
        self.assertEqual(self.blank('a("{"); // }\nb'), 'a(" ");     \nb')
        self.assertEqual(self.blank("x = '{'; /* }\n} */ y"), "x = ' ';     \n     y")
        self.assertNotIn("{", self.blank(r's = "a\"b{"; c'))
        self.assertNotIn("{", self.blank('r = R"x({"{)x"; c'))

    def test_digit_separators_open_no_literal(self):
        self.assertIn("{", self.blank("n = 1'000'000; if (x) {"))

    def test_a_quote_in_a_comment_opens_no_literal(self):
        self.assertIn("{", self.blank("// don't\nif (x) {"))


class FunctionTest(unittest.TestCase):
    def names(self, text):
        return [(f.name, f.line_count) for f in find_functions(text)]

    def test_free_functions_methods_and_operators(self):
        text = """namespace a {
class B : public C {
 public:
  explicit B(int x) : x_(x) {}
  int Get() const override {
    return x_;
  }
  bool operator==(const B& o) const { return true; }
};
template <class T>
std::vector<T> Free(int a,
                    int b) {
  if (a) {
    b();
  }
  auto f = [&](int c) { return c; };
  return {};
}
}  // namespace a
"""
        self.assertEqual(self.names(text), [("B", 1), ("Get", 3), ("operator==", 1), ("Free", 9)])

    def test_initialisers_and_scopes_are_no_functions(self):
        self.assertEqual(self.names("const A kTable[] = {F(1), {2}};\nstruct S {\n int a{3};\n};\n"
                                    "enum class E : int { kA };\nextern \"C\" {\n}\n"), [])

    def test_a_function_that_returns_a_struct_is_one(self):
        self.assertEqual(self.names("struct stat Get(int fd) {\n  return {};\n}\n"), [("Get", 3)])

    def test_macro_braces_do_not_count(self):
        self.assertEqual(self.names("#define X(a) \\\n  do { \\\n  a\nint F() {\n}\n"), [("F", 2)])


class CppRulesTest(unittest.TestCase):
    def test_words_of_a_name(self):
        self.assertEqual(cpp_rules.banned_words_in("FastPath"), ["fast"])
        self.assertEqual(cpp_rules.banned_words_in("kernel_v2.cc"), ["v2"])
        self.assertEqual(cpp_rules.banned_words_in("KernelV2"), ["v2"])
        self.assertEqual(cpp_rules.banned_words_in("string_utils.h"), ["utils"])
        for name in ("NewsItem", "breakfast.cc", "Options", "renewal.h", "Avx2", "option_v"):
            self.assertEqual(cpp_rules.banned_words_in(name), [], name)

    def calls(self, text, path="runtime/plan/a.cc"):
        return [line for line, _ in cpp_rules.check_calls(path, text)]

    def test_calls_with_a_home(self):
        self.assertEqual(self.calls("::close(fd);\nfile.close();\nClose(fd);\nx->close();"), [1])
        self.assertEqual(self.calls("::close(fd);", "runtime/base/file.cc"), [])
        self.assertEqual(self.calls("run_time(nullptr);\nstd::time(nullptr);"), [2])
        self.assertEqual(self.calls("operand(1);\nrand();\nStrand();"), [2])
        self.assertEqual(self.calls("throw 1;", "tests/a_test.cc"), [])
        self.assertEqual(self.calls("int x() throw();\nthrow;"), [2])

    def test_static_state(self):
        text = ("static int a;\nstatic const int b = 1;\nstatic constexpr int c{2};\n"
                "static absl::StatusOr<int> F(int x);\nstatic_assert(true);\n  static bool d{};\n"
                "static const char* e = 0;\nstatic const auto& f = g;\n")
        self.assertEqual([line for line, _ in cpp_rules.check_static_state(text)], [1, 6])

    def test_size_names(self):
        text = ("uint32_t block_size = 4;\nv.block_size();\nreturn block_size;\nx = block_size;\n"
                "void F(int head_size, int b);\nstd::span<int> a_size_;\nuint64_t n_bytes;\n")
        self.assertEqual([line for line, _ in cpp_rules.check_size_names(text)], [1, 5, 6])

    def test_purpose(self):
        self.assertEqual(list(cpp_rules.check_purpose("a/b.cc", "// Why.\n")), [])
        self.assertEqual(list(cpp_rules.check_purpose("a/b.cc", '#include "a/b.h"\n')), [])
        self.assertEqual(len(list(cpp_rules.check_purpose("a/b.cc", '#include "a/c.h"\n'))), 1)
        self.assertEqual(len(list(cpp_rules.check_purpose("a/b.h", "#pragma once\n"))), 1)

    def test_function_length_counts_head_to_brace(self):
        body = "  a();\n" * (cpp_rules.FUNCTION_LINES_MAX - 2)
        check = cpp_rules.check_function_lengths
        self.assertEqual(list(check("a/b.cc", f"void F() {{\n{body}}}\n")), [])
        long = f"\nvoid F() {{\n{body}  a();\n}}\n"
        self.assertEqual([line for line, _ in check("a/b.cc", long)], [2])
        self.assertEqual(list(check("tests/a/b.cc", long)), [])


class IncludeTest(unittest.TestCase):
    def check(self, path, target, known=None):
        table = IncludeTable(TABLE)
        known = known or {path, target}
        return [message for _, message in
                check_includes(path, f'#include "{target}"\n', table, known)]

    def test_the_table_is_transitive_and_one_way(self):
        self.assertEqual(self.check("runtime/model/chat/a.h", "pack/format/b.h"), [])
        self.assertEqual(self.check("pack/reader/a.h", "runtime/base/b.h"), [])
        self.assertEqual(self.check("pack/format/a.h", "pack/reader/b.h"),
                         ["pack/format may not include pack/reader"])
        self.assertEqual(self.check("runtime/base/a.h", "pack/format/b.h"),
                         ["runtime/base may not include pack/format"])

    def test_tools_and_tests_include_anything_and_nobody_them(self):
        self.assertEqual(self.check("tools/a.cc", "runtime/model/b.h"), [])
        self.assertEqual(self.check("tests/x/a.cc", "tools/b.h"), [])
        self.assertEqual(len(self.check("runtime/model/a.h", "tools/b.h")), 1)
        self.assertEqual(len(self.check("tools/a.h", "tests/b.h")), 1)

    def test_unknown_folders_and_missing_files(self):
        self.assertEqual(len(self.check("runtime/other/a.h", "runtime/base/b.h")), 1)
        self.assertEqual(self.check("tools/a.cc", "runtime/base/gone.h", {"tools/a.cc"}),
                         ['"runtime/base/gone.h" does not exist'])
        self.assertEqual(self.check("tools/a.cc", "absl/status/status.h", {"tools/a.cc"}), [])

    def test_a_table_with_an_unknown_folder_is_refused(self):
        with self.assertRaises(ValueError):
            IncludeTable("a/b -> c/d\n")


class TextRulesTest(unittest.TestCase):
    def lines(self, found):
        return [line for line, _ in found]

    def test_one_title(self):
        check = text_rules.check_markdown_title
        self.assertEqual(self.lines(check("# A\n\n```\n# not one\n```\n## B\n")), [])
        self.assertEqual(self.lines(check("\n# A\n# B\n")), [1, 3])
        self.assertEqual(self.lines(check("text\n")), [1])

    def test_spaces_and_columns(self):
        self.assertEqual(self.lines(text_rules.check_spaces("a \nb\t\nc")), [1, 2, 2, 3])
        self.assertEqual(self.lines(text_rules.check_columns("x" * 100 + "\n" + "y" * 101)), [2])
        self.assertEqual(self.lines(text_rules.check_columns("é" * 100)), [])

    def test_file_length_by_folder(self):
        def check(path, count):
            return self.lines(text_rules.check_file_length(path, "a\n" * count, False))
        self.assertEqual(check("runtime/a.cc", 600), [])
        self.assertEqual(check("runtime/a.cc", 601), [601])
        self.assertEqual(check("tests/a.cc", 1000), [])
        self.assertEqual(check("tests/a.cc", 1001), [1001])

    def test_scripts_say_what_they_are_for(self):
        check = text_rules.check_script_purpose
        self.assertEqual(list(check("a.sh", "#!/bin/sh\n# Why.\n")), [])
        self.assertEqual(list(check("a.py", '#!/usr/bin/python3\n"""Why."""\n')), [])
        self.assertEqual(self.lines(check("a.py", "import os\n")), [1])


class TestedTest(unittest.TestCase):
    def untested(self, texts):
        return sorted(path for path, _, _ in untested(texts))

    def test_a_header_in_a_test_reaches_its_folder_and_no_farther(self):
        texts = {"tests/a_test.cc": '#include "runtime/x/a.h"\n',
                 "runtime/x/a.h": "", "runtime/x/a.cc": '#include "runtime/x/part.h"\n',
                 "runtime/x/part.h": "", "runtime/x/part.cc": '#include "runtime/y/b.h"\n',
                 "runtime/x/other.h": "", "runtime/x/other.cc": "",
                 "runtime/y/b.h": "", "runtime/y/b.cc": ""}
        self.assertEqual(self.untested(texts), ["runtime/x/other.cc", "runtime/y/b.cc"])


class AllowListTest(unittest.TestCase):
    def test_only_with_a_reason_and_only_while_needed(self):
        allow = AllowList("calls a.cc why\ncalls b/ why\ncalls c.cc\nnothing d.cc why\n", "allow")
        self.assertTrue(allow.allows("calls", "a.cc"))
        self.assertFalse(allow.allows("columns", "a.cc"))
        self.assertTrue(allow.allows("calls", "b/x.cc"))
        self.assertFalse(allow.allows("calls", "c.cc"))
        self.assertEqual([line for _, line, _, _ in allow.complaints(set())], [3, 4])


if __name__ == "__main__":
    unittest.main()
