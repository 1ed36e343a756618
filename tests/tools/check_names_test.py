# SPDX-License-Identifier: Apache-2.0
import unittest

from tree import TreeTest
import check_names


class CheckNames(TreeTest):
    def test_places_of_one_machine_are_named_with_their_line(self):
        self.write("a.txt", "fine\ncd " + "/wo" + "rk/tree\n")
        status, output = self.check(check_names)
        self.assertEqual(status, 1)
        self.assertIn("a.txt:2: a path of one machine", output)

    def test_registry_hosts_are_found(self):
        self.write("a.txt", "https://" + "registry." + "example.org/x\n")
        self.assertIn("a registry host", self.check(check_names)[1])

    def test_relative_paths_and_other_hosts_pass(self):
        self.write("a.txt", "src/work/x build/home/y https://www.apache.org/licenses\n")
        self.assertEqual(self.check(check_names)[0], 0)


if __name__ == "__main__":
    unittest.main()
