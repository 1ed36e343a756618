# SPDX-License-Identifier: Apache-2.0
import unittest

from tree import TreeTest
import contracts

DOCUMENT = """# Contracts
- **C1 First.** Text.
<!-- tests C1 -->
<!-- end -->
- **C2 Second.** (later: with the GPU)
<!-- tests C2 -->
<!-- end -->
"""


class Contracts(TreeTest):
    def setUp(self):
        super().setUp()
        self.document = self.write("docs/contracts.md", DOCUMENT)

    def test_marks_become_lists_and_stay_in_step(self):
        self.write("tests/io/a_test.cc", "// contract: C1\n// Why.\nTEST(Rows, are_written) {\n}\n")
        self.assertEqual(self.check(contracts)[0], 1)
        self.assertEqual(self.check(contracts, "--write")[0], 0)
        self.assertIn("  - `tests/io/a_test.cc`: Rows.are_written\n<!-- end -->", self.document.read_text())
        self.assertEqual(self.check(contracts)[0], 0)

    def test_a_clause_without_a_test_is_named(self):
        status, output = self.check(contracts)
        self.assertEqual(status, 1)
        self.assertIn("C1 has no test", output)
        self.assertNotIn("C2 has no test", output)

    def test_a_mark_of_an_unknown_clause_is_refused(self):
        self.write("tests/io/a_test.cc", "// contract: C1 C9\nTEST(Rows, are_written) {\n}\n")
        self.assertIn("has no clause C9", self.check(contracts)[1])

    def test_a_mark_above_no_test_is_refused(self):
        self.write("tests/io/a_test.cc", "// contract: C1\nint x;\n")
        self.assertIn("stands above no test", self.check(contracts)[1])


if __name__ == "__main__":
    unittest.main()
