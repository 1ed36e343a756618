# SPDX-License-Identifier: Apache-2.0
"""Runs the unittest cases of the calling file and prints a line each for tools/run_tests.py: `PASSED name`,
`FAILED name` or `SKIPPED name: reason`, then what went wrong."""

import sys
import unittest


class Lines(unittest.TestResult):
    def name(self, test):
        return test.id().removeprefix("__main__.")

    def addSuccess(self, test):
        print(f"PASSED {self.name(test)}", flush=True)

    def addSkip(self, test, reason):
        print(f"SKIPPED {self.name(test)}: {reason}", flush=True)

    def fail(self, test, error):
        print(f"FAILED {self.name(test)}\n{self._exc_info_to_string(error, test)}", flush=True)

    def addError(self, test, error):
        super().addError(test, error)
        self.fail(test, error)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.fail(test, error)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.fail(subtest, error)


def main(module="__main__"):
    names = sys.argv[1:]
    loader = unittest.TestLoader()
    suite = (loader.loadTestsFromNames(names, sys.modules[module]) if names
             else loader.loadTestsFromModule(sys.modules[module]))
    result = Lines()
    suite.run(result)
    sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
