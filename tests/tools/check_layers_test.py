# SPDX-License-Identifier: Apache-2.0
import unittest

from tree import TreeTest
import check_layers


class CheckLayers(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("src/layers.txt", "# table\nbase:\nio: base\ntext: base io\n")
        self.write("src/base/a.h", "#pragma once\n#include <string>\n")
        self.write("src/io/b.cc", '#include "base/a.h"\n#include <nlohmann/json.hpp>\n')

    def expect_problem(self, words):
        status, output = self.check(check_layers)
        self.assertEqual(status, 1, output)
        self.assertIn(words, output)

    def test_a_tree_in_order_passes(self):
        self.assertEqual(self.check(check_layers)[0], 0)

    def test_an_edge_that_the_table_lacks_is_named(self):
        self.write("src/base/c.cc", '#include "io/d.h"\n')
        self.write("src/io/d.h")
        self.expect_problem("no edge from base to io")

    def test_includes_are_relative_to_the_root(self):
        self.write("src/io/c.cc", '#include "b.h"\n')
        self.write("src/io/b.h")
        self.expect_problem('"b.h" is no file of src/')

    def test_a_cycle_of_folders_is_refused(self):
        self.write("src/layers.txt", "base: io\nio: base\ntext: base io\n")
        self.expect_problem("base may include io")

    def test_a_cycle_of_headers_is_refused(self):
        self.write("src/base/a.h", '#include "base/b.h"\n')
        self.write("src/base/b.h", '#include "base/a.h"\n')
        self.expect_problem("src/base/a.h: includes itself")

    def test_a_json_type_may_not_leave_its_folder(self):
        self.write("src/io/deep.h", "#include <nlohmann/json.hpp>\n")
        self.write("src/io/c.h", '#include "io/deep.h"\n')
        self.write("src/text/t.cc", '#include "io/c.h"\n')
        self.expect_problem("src/io/deep.h: <nlohmann/json.hpp> reaches src/text/t.cc")

    def test_cuda_stays_where_gpu_code_lives(self):
        self.write("src/io/c.cc", "#include <cuda_runtime.h>\n")
        self.expect_problem("<cuda_runtime.h> outside")


if __name__ == "__main__":
    unittest.main()
