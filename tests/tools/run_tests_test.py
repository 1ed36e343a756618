# SPDX-License-Identifier: Apache-2.0
import shutil
import unittest
from unittest import mock

from tree import TreeTest
import run_tests

REPORT = """<testsuites><testsuite name="A">
<testcase name="ok" status="run" result="completed" classname="A"/>
<testcase name="off" status="notrun" result="suppressed" classname="A"/>
<testcase name="skip" status="run" result="skipped" classname="A"><skipped message="a.cc:1&#x0A;no GPU"/></testcase>
%s</testsuite></testsuites>
"""
FAILURE = '<testcase name="bad" status="run" classname="A"><failure message="1 is not 2"/></testcase>'


class RunTests(TreeTest):
    def run_binary(self, report, status=0, output=""):
        """Counts of a script that stands for a GoogleTest binary."""
        self.write("report.xml", report or "")
        copy = f'for a in "$@"; do case $a in --gtest_output=xml:*) cp {self.root}/report.xml "${{a#*xml:}}";; esac; done'
        binary = self.write("a_tests", f"#!/bin/sh\ncat <<'E'\n{output}\nE\n{copy if report else ''}\nexit {status}\n")
        binary.chmod(0o755)
        return self.run_listed([{"name": "a", "command": [str(binary)], "properties": {}}])

    def run_listed(self, tests, *options):
        with mock.patch.object(run_tests, "list_tests", return_value=tests):
            status, output = self.run_main(run_tests, "build", "--totals", str(self.root / "totals"), *options)
        return status, output, (self.root / "totals").read_text().strip()

    def test_cases_are_counted_and_reasons_printed(self):
        status, output, totals = self.run_binary(REPORT % "")
        self.assertEqual((status, totals), (0, "1 0 1"))
        self.assertIn("skipped A.skip: no GPU", output)
        self.assertNotIn("1 passed, 0 failed, 1 skipped", output)  # whoever reads the file adds up

    def test_without_a_file_of_totals_the_last_line_is_the_total(self):
        with mock.patch.object(run_tests, "list_tests", return_value=[]):
            output = self.run_main(run_tests, "build")[1]
        self.assertEqual(output.splitlines()[-1], "0 passed, 0 failed, 0 skipped")

    def test_a_failure_is_printed_and_fails_the_run(self):
        status, output, totals = self.run_binary(REPORT % FAILURE, status=1)
        self.assertEqual((status, totals), (1, "1 1 1"))
        self.assertIn("1 is not 2", output)

    def test_a_bad_exit_after_good_cases_is_a_failure(self):
        self.assertEqual(self.run_binary(REPORT % "", status=23)[2], "1 1 1")

    def test_a_crash_counts_what_ran_and_names_where(self):
        output = "[ RUN      ] A.x\n[       OK ] A.x (0 ms)\n[ RUN      ] A.y\nSegmentation fault"
        status, output, totals = self.run_binary(None, status=139, output=output)
        self.assertEqual((status, totals), (1, "1 1 0"))
        self.assertIn("FAILED A.y", output)

    def test_scripts_count_as_one_and_77_means_skipped(self):
        def script(name, status):
            path = self.write(name, f"#!/bin/sh\necho because\nexit {status}\n")
            path.chmod(0o755)
            return {"name": name, "command": [str(path)], "properties": {"LABELS": ["source"]}}

        tests = [script("good", 0), script("skips", 77), script("bad", 1)]
        self.assertEqual(self.run_listed(tests)[2], "1 1 1")
        (self.root / "totals").unlink()
        self.assertEqual(self.run_listed(tests, "--without-label", "source")[0], 2)  # none ran

    def run_cases(self, text, status=0):
        path = self.write("cases.sh", f"#!/bin/sh\ncat <<'E'\n{text}\nE\nexit {status}\n")
        path.chmod(0o755)
        return self.run_listed([{"name": "c", "command": [str(path)], "properties": {"LABELS": ["cases"]}}])

    def test_a_script_that_reports_cases_counts_as_them(self):
        status, output, totals = self.run_cases("PASSED a\nPASSED b\nSKIPPED c: no torch\nchatter")
        self.assertEqual((status, totals), (0, "2 0 1"))
        self.assertIn("skipped c: no torch", output)

    def test_a_failed_case_shows_what_followed_it(self):
        status, output, totals = self.run_cases("PASSED a\nFAILED b\n1 is not 2\nPASSED c", status=1)
        self.assertEqual((status, totals), (1, "2 1 0"))
        self.assertIn("FAILED b", output)
        self.assertIn("1 is not 2", output)

    def test_an_end_that_no_case_explains_is_a_failure(self):
        for text, status, totals in (("PASSED a", 139, "1 1 0"), ("FAILED a", 0, "0 2 0"), ("", 0, "0 1 0")):
            self.assertEqual(self.run_cases(text, status)[2].splitlines()[-1], totals)

    def test_what_is_not_built_is_a_failure(self):
        tests = [{"name": "a", "command": [str(self.root / "gone_tests")], "properties": {}}]
        self.assertEqual(self.run_listed(tests)[2], "0 1 0")

    def test_a_filter_of_cases_leaves_scripts_out_but_not_what_is_not_built(self):
        tests = [{"name": "a", "properties": {}}, {"name": "b", "command": ["/bin/false"], "properties": {}}]
        self.assertEqual(self.run_listed(tests, "--filter=-A.*")[2], "0 1 0")
        (self.root / "totals").unlink()
        self.assertEqual(self.run_listed(tests, "--filter=-A.*", "--only", "c")[2], "0 0 0")

    @unittest.skipIf(shutil.which("sleep") is None, "no sleep")
    def test_a_test_that_hangs_is_ended(self):
        tests = [{"name": "a", "command": [shutil.which("sleep"), "600"], "properties": {"TIMEOUT": 0}}]
        with mock.patch.object(run_tests, "HEARTBEAT_S", 0.1):
            status, output, _ = self.run_listed(tests)
        self.assertEqual(status, 1)
        self.assertIn("timeout", output)


if __name__ == "__main__":
    unittest.main()
