#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs every libFuzzer target of a build for a while, from the seeds in tests/fuzz/seeds/<name>/.

Targets are the executables called *_fuzz. Each counts as one test; an input that crashes one is kept beside it
in <build>/fuzz_findings/ and named. The last line is `N passed, N failed, N skipped`, unless --totals has somebody
else add up."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import source_tree


def find_targets(build):
    return sorted(p for p in build.rglob("*_fuzz") if p.is_file() and os.access(p, os.X_OK))


def seeds_of(target):
    folder = source_tree.repository_root() / "tests/fuzz/seeds" / target.name.removesuffix("_fuzz")
    return [str(folder)] if folder.is_dir() else []


def run_target(target, seconds, findings):
    """(whether it held, what to print)"""
    with tempfile.TemporaryDirectory() as corpus:
        command = [str(target), f"-max_total_time={seconds}", "-timeout=25", "-rss_limit_mb=2048",
                   f"-artifact_prefix={findings}/{target.name}-", "-print_final_stats=1", corpus, *seeds_of(target)]
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False,
                                stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        return False, "\n".join(result.stderr.splitlines()[-60:])
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", result.stderr)
    return True, f"{runs.group(1) if runs else '?'} inputs"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seconds", type=int, default=20, help="how long each target runs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--totals", help="append 'passed failed skipped' to this file, and print no total")
    options = parser.parse_args()
    targets = find_targets(options.build)
    findings = options.build / "fuzz_findings"
    findings.mkdir(parents=True, exist_ok=True)

    def run(target):
        held, text = run_target(target, options.seconds, findings)
        print(f"  {target.name:<28} {'held' if held else 'FAILED'}: {text}", flush=True)
        return held

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(run, targets))
    passed, failed = results.count(True), results.count(False)
    if options.totals:
        with open(options.totals, "a", encoding="utf-8") as file:
            file.write(f"{passed} {failed} 0\n")
    else:
        print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
