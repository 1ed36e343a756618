# SPDX-License-Identifier: Apache-2.0
"""The shell scripts parse, explain themselves, and refuse what they do not know."""

import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ["scripts/setup", "scripts/test", "scripts/demo", ".ci/run", "scripts/lib.sh", "tools/check_format"]


def run(*command):
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


class Scripts(unittest.TestCase):
    def test_every_script_parses(self):
        for script in SCRIPTS:
            result = run("bash", "-n", script)
            self.assertEqual(result.returncode, 0, f"{script}: {result.stderr}")

    def test_help_explains_and_does_nothing_else(self):
        for script in ("scripts/setup", "scripts/test", "scripts/demo"):
            result = run(script, "--help")
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn(script, result.stdout)

    def test_an_unknown_option_is_an_error_with_a_remedy(self):
        result = run("scripts/test", "--fast")
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("unknown option '--fast'", result.stderr)
        self.assertIn("to mend it", result.stderr)
        self.assertEqual(result.stdout.splitlines()[-1], "0 passed, 1 failed, 0 skipped")

    def test_packages_have_a_group_and_a_reason(self):
        for line in (ROOT / "scripts/packages.txt").read_text().splitlines():
            if line and not line.startswith("#"):
                name, group, reason = line.split(maxsplit=2)
                self.assertIn(group, ("build", "test"), name)
                self.assertGreater(len(reason), 5, name)


if __name__ == "__main__":
    unittest.main()
