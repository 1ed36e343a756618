# SPDX-License-Identifier: Apache-2.0
import unittest

from tree import TreeTest
import check_mirror


class CheckMirror(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("src/io/reader.cc")
        self.write("tests/io/reader_test.cc")

    def test_a_mirrored_tree_passes(self):
        self.assertEqual(self.check(check_mirror)[0], 0)

    def test_one_test_covers_the_variants_of_a_kernel(self):
        self.write("src/kernels/cpu/router_avx2.cc")
        self.write("src/kernels/ref/router.cc")
        self.write("tests/kernels/router_test.cc")
        self.assertEqual(self.check(check_mirror)[0], 0)

    def test_a_source_without_a_test_is_named_unless_a_reason_is_given(self):
        self.write("src/io/writer.cc")
        status, output = self.check(check_mirror)
        self.assertEqual(status, 1)
        self.assertIn("src/io/writer.cc: no test in tests/io/", output)
        self.write("tests/mirror.txt", "src/io/writer.cc: the reader's test writes with it\n")
        self.assertEqual(self.check(check_mirror)[0], 0)

    def test_a_test_that_includes_the_header_covers_the_source(self):
        self.write("src/io/parts.cc")
        self.write("tests/io/reader_test.cc", '#include "io/parts.h"\n')
        self.assertEqual(self.check(check_mirror)[0], 0)

    def test_one_exception_may_name_many(self):
        self.write("src/io/a/x.cc")
        self.write("src/io/a/y.cc")
        self.write("tests/mirror.txt", "src/io/a/*.cc: reader_test.cc runs each\n")
        self.assertEqual(self.check(check_mirror)[0], 0)

    def test_a_test_of_nothing_is_named(self):
        self.write("tests/io/gone_test.cc")
        self.assertIn("tests/io/gone_test.cc: nothing in src/io/ is called gone", self.check(check_mirror)[1])

    def test_exceptions_need_a_reason_and_a_use(self):
        self.write("tests/mirror.txt", "src/io/reader.cc: no longer\nsrc/io/writer.cc:\n")
        output = self.check(check_mirror)[1]
        self.assertIn("src/io/reader.cc needs no exception", output)
        self.assertIn("src/io/writer.cc gives no reason", output)


if __name__ == "__main__":
    unittest.main()
