#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests that a build registered with ctest and counts them case by case.

A GoogleTest binary (<build>/tests/*_tests) counts as its cases; so does a command with the ctest label `cases`,
which prints `PASSED name`, `FAILED name` and what went wrong, or `SKIPPED name: reason` for each; any other
command counts as one test whose exit status 77 means skipped. Prints a line a command, the text of every failure and the reason of every skip, and
as the last line `N passed, N failed, N skipped`, unless --totals has somebody else add up. Exit status 1 if a test
failed, 2 if there was none."""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree

SKIPPED_STATUS = 77
HEARTBEAT_S = 30  # a line that long tests are alive
SLOW_FILTER = "-Slow*:*/Slow*"  # suites whose name begins with Slow


@dataclasses.dataclass
class Outcome:
    passed: int = 0
    failures: list = dataclasses.field(default_factory=list)  # (test, text)
    skips: list = dataclasses.field(default_factory=list)  # (test, reason)


def last_lines(text, count=60):
    return "\n".join(text.splitlines()[-count:])


def parse_report(path):
    """Outcome of a GoogleTest XML report."""
    outcome = Outcome()
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        failures = case.findall("failure")
        skipped = case.find("skipped")
        if failures:
            outcome.failures.append((name, "\n".join(f.get("message", "") for f in failures)))
        elif skipped is not None or case.get("result") == "skipped":
            reason = skipped.get("message", "") if skipped is not None else ""
            outcome.skips.append((name, " ".join(reason.split("\n")[1:]).strip() or "no reason given"))
        elif case.get("status") == "run":
            outcome.passed += 1
    return outcome


def parse_crash(binary, output, status):
    """Outcome of a GoogleTest binary that ended without a report: what it printed, and the case it died in."""
    outcome = Outcome()
    outcome.passed = len(re.findall(r"\[       OK \] \S+", output))
    running = re.findall(r"\[ RUN      \] (\S+)", output)
    failed = set(re.findall(r"\[  FAILED  \] (\S+)(?=.* \(\d+ ms\))", output))
    outcome.failures = [(name, "failed; see the output of the binary") for name in sorted(failed)]
    where = running[-1] if running else binary
    outcome.failures.append((where, f"{binary} ended with status {status}; cases after it did not run\n"
                             + last_lines(output)))
    return outcome


def parse_cases(test, output, status):
    """Outcome of a command that reports its cases; an end that its lines do not explain is a failure, too."""
    outcome = Outcome()
    for line in output.splitlines():
        word, _, rest = line.partition(" ")
        if word == "PASSED":
            outcome.passed += 1
        elif word == "SKIPPED":
            name, _, reason = rest.partition(": ")
            outcome.skips.append((name, reason or "no reason given"))
        elif word == "FAILED":
            outcome.failures.append((rest, ""))
        elif outcome.failures and not line.startswith(("PASSED ", "SKIPPED ")):
            name, text = outcome.failures[-1]
            outcome.failures[-1] = (name, f"{text}{line}\n")
    outcome.failures = [(name, last_lines(text)) for name, text in outcome.failures]
    if (status != 0) != bool(outcome.failures) or not (outcome.passed or outcome.skips or outcome.failures):
        outcome.failures.append((test, f"exit status {status}\n{last_lines(output)}"))
    return outcome


class Runner:
    def __init__(self, options):
        self.options = options
        self.print_lock = threading.Lock()

    def say(self, text):
        with self.print_lock:
            print(text, flush=True)

    def command_environment(self, test):
        environment = dict(os.environ)
        environment.setdefault("OMP_WAIT_POLICY", "passive")  # two commands may share the cores: waiting threads sleep
        for entry in test["properties"].get("ENVIRONMENT", []):
            key, _, value = entry.partition("=")
            environment[key] = value
        return environment

    def execute(self, test, command):
        """(status, output); the status of a command that ran too long is 'timeout'."""
        limit = float(test["properties"].get("TIMEOUT", self.options.timeout))
        process = subprocess.Popen(command, cwd=test["properties"].get("WORKING_DIRECTORY"),
                                   env=self.command_environment(test), stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
        began = time.monotonic()
        while True:
            try:
                output, _ = process.communicate(timeout=HEARTBEAT_S)
                return process.returncode, output
            except subprocess.TimeoutExpired:
                elapsed = time.monotonic() - began
                if elapsed > limit:
                    process.kill()
                    output, _ = process.communicate()
                    return f"timeout after {limit:.0f} s", output
                self.say(f"  {test['name']}: still running after {elapsed:.0f} s")

    def run_binary(self, test):
        with tempfile.TemporaryDirectory() as folder:
            report = os.path.join(folder, "report.xml")
            command = test["command"] + [f"--gtest_output=xml:{report}"]
            pattern = self.options.filter or ("*" if self.options.slow else SLOW_FILTER)
            command.append(f"--gtest_filter={pattern}")
            status, output = self.execute(test, command)
            if not os.path.exists(report):
                return parse_crash(test["name"], output, status)
            outcome = parse_report(report)
            if status != 0 and not outcome.failures:  # a sanitizer's word at exit, say
                outcome.failures.append((test["name"], f"exit status {status}\n{last_lines(output)}"))
            return outcome

    def run_script(self, test):
        status, output = self.execute(test, test["command"])
        if "cases" in test["properties"].get("LABELS", []):
            return parse_cases(test["name"], output, status)
        if status == 0:
            return Outcome(passed=1)
        if status == SKIPPED_STATUS:
            return Outcome(skips=[(test["name"], last_lines(output, 1) or "no reason given")])
        return Outcome(failures=[(test["name"], f"exit status {status}\n{last_lines(output)}")])

    def run(self, test):
        began = time.monotonic()
        if not test.get("command") or not os.path.exists(test["command"][0]):
            outcome = Outcome(failures=[(test["name"], "is not built")])
        elif is_gtest(test):
            outcome = self.run_binary(test)
        else:
            outcome = self.run_script(test)
        counts = f"{outcome.passed} passed"
        counts += f", {len(outcome.failures)} FAILED" if outcome.failures else ""
        counts += f", {len(outcome.skips)} skipped" if outcome.skips else ""
        self.say(f"  {test['name']:<24} {counts} ({time.monotonic() - began:.1f} s)")
        for name, text in outcome.failures:
            self.say(f"    FAILED {name}\n      " + text.replace("\n", "\n      "))
        for name, reason in outcome.skips:
            self.say(f"    skipped {name}: {reason}")
        return outcome


def is_gtest(test):
    """Of a test that was not built ctest knows the name alone."""
    return os.path.basename(test.get("command", [test["name"] + "_tests"])[0]).endswith("_tests")


def list_tests(build):
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True,
                             capture_output=True, text=True)
    tests = json.loads(listing.stdout)["tests"]
    for test in tests:
        test["properties"] = {p["name"]: p["value"] for p in test.get("properties", [])}
    return tests


def select(tests, options):
    def wanted(test):
        labels = set(test["properties"].get("LABELS", []))
        if labels & set(options.without_label) or ("slow" in labels and not options.slow):
            return False
        if options.filter and not is_gtest(test):
            return False
        return re.search(options.only, test["name"]) is not None

    return [test for test in tests if wanted(test)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", help="build folder")
    parser.add_argument("--filter", help="run only the GoogleTest cases that match, as in --gtest_filter")
    parser.add_argument("--only", default="", help="run only the commands whose name matches this regular expression")
    parser.add_argument("--without-label", action="append", default=[], help="leave out tests with this ctest label")
    parser.add_argument("--slow", action="store_true", help="run slow tests, too")
    parser.add_argument("--jobs", type=int, default=1, help="commands at a time")
    parser.add_argument("--timeout", type=float, default=900, help="seconds a command may take")
    parser.add_argument("--totals", help="append 'passed failed skipped' to this file, and print no total")
    options = parser.parse_args()

    tests = select(list_tests(options.build), options)
    runner = Runner(options)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        outcomes = list(pool.map(runner.run, tests))
    passed = sum(o.passed for o in outcomes)
    failed = sum(len(o.failures) for o in outcomes)
    skipped = sum(len(o.skips) for o in outcomes)
    if options.totals:
        with open(options.totals, "a", encoding="utf-8") as file:
            file.write(f"{passed} {failed} {skipped}\n")
    else:
        print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0 if passed + skipped else 2


if __name__ == "__main__":
    sys.exit(main())
