# SPDX-License-Identifier: Apache-2.0
import unittest

from tree import TreeTest
import check_docs

LATENT = """#!/bin/sh
case "$*" in
  "--help") echo "Commands: run";;
  "run --help") echo "  --prompt TEXT";;
  "run --prompt hello") echo hello;;
  *) exit 2;;
esac
"""


class CheckDocs(TreeTest):
    def setUp(self):
        super().setUp()
        self.write("scripts/demo")
        self.write("src/io/a.h")
        self.latent = self.write("build/latent", LATENT)
        self.latent.chmod(0o755)

    def check_text(self, text):
        self.write("README.md", text)
        return self.check(check_docs, "--latent", str(self.latent))

    def test_what_is_there_passes(self):
        status, output = self.check_text("`src/io/a.h`, `io/a.h`, `src/io/{a}.h`, `and/or`, [demo](scripts/demo)\n"
                                         "```sh\nscripts/demo\nlatent run --prompt x\n```\n")
        self.assertEqual(status, 0, output)

    def test_a_path_or_link_that_leads_nowhere_is_named(self):
        output = self.check_text("`src/io/b.h` and [x](docs/x.md)\n")[1]
        self.assertIn("`src/io/b.h` does not exist", output)
        self.assertIn("docs/x.md leads nowhere", output)

    def test_an_unknown_command_or_flag_is_named(self):
        output = self.check_text("```sh\nlatent fly\nlatent run --wings 2\nscripts/gone\n```\n")[1]
        self.assertIn("latent has no command fly", output)
        self.assertIn("run has no flag --wings", output)
        self.assertIn("scripts/gone does not exist", output)

    def test_blocks_marked_run_are_run(self):
        self.assertEqual(self.check_text("```sh run\nlatent run --prompt hello\n```\n")[0], 0)
        self.assertIn("status 3", self.check_text("```sh run\nexit 3\n```\n")[1])


if __name__ == "__main__":
    unittest.main()
