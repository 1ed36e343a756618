# SPDX-License-Identifier: Apache-2.0
import shutil
import subprocess
import unittest

from tree import TreeTest
import check_isa

SOURCE = "template <class T> struct Box {{ static __attribute__((noinline)) T get(T x) {{ return x + 1; }} }};\n" \
         "struct {tag};\n{type} {name}({type} x) {{ return Box<{type}>::get(x); }}\n"


@unittest.skipIf(shutil.which("g++") is None, "no g++")
class CheckIsa(TreeTest):
    def compile(self, name, type_):
        source = self.write(f"{name}.cc", SOURCE.format(tag="Tag", type=type_, name=name))
        (self.root / "src").mkdir(exist_ok=True)
        subprocess.run(["g++", "-c", str(source), "-o", str(self.root / f"src/{name}.cc.o")], check=True)

    def test_a_function_that_both_emit_is_named(self):
        self.compile("plain", "int")
        self.compile("kernel_avx512", "int")
        status, output = self.check(check_isa)
        self.assertEqual(status, 1)
        self.assertIn("kernel_avx512.cc.o, plain.cc.o", output)

    def test_functions_of_their_own_pass(self):
        self.compile("plain", "int")
        self.compile("kernel_avx512", "long")
        self.assertEqual(self.check(check_isa)[0], 0)

    def test_nothing_to_check_is_skipped(self):
        self.compile("plain", "int")
        self.assertEqual(self.check(check_isa)[0], 77)


if __name__ == "__main__":
    unittest.main()
