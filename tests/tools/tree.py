# SPDX-License-Identifier: Apache-2.0
"""A folder of files made for one test."""

import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))


class TreeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def write(self, name, text=""):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def run_main(self, module, *arguments):
        """(exit status, everything printed) of a tool's main() on this tree."""
        output = io.StringIO()
        with mock.patch.object(sys, "argv", [module.__name__, *arguments]), \
                contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = module.main()
        return status, output.getvalue()

    def check(self, module, *arguments):
        return self.run_main(module, str(self.root), *arguments)
