#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that tests/ mirrors src/.

src/F/…/name.cc (or .cu) is covered by a test of tests/F/ called name_test.cc, or by one called after the first
words of its name (router_test.cc covers router_avx2.cc). A test must be called after a source or header of its
folder in the same way. tests/mirror.txt lists the exceptions, one `path: reason` a line; an exception that is
not needed is an error."""

import pathlib
import sys

import source_tree

# Folders of tests/ that mirror no folder of src/.
OTHER_FOLDERS = ("testing", "tools", "fuzz", "fixtures", "golden", "data")


def read_waivers(path):
    waivers = {}
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        if line.strip() and not line.startswith("#"):
            file, _, reason = line.partition(":")
            waivers[file.strip()] = reason.strip()
    return waivers


def is_called_after(name, test):
    return name == test or name.startswith(test + "_")


def split_tree(files):
    """(tests, sources, headers), each {top folder: {path: stem}}"""
    tests, sources, headers = {}, {}, {}
    for file in files:
        path = pathlib.PurePath(file)
        if len(path.parts) < 3:
            continue
        top, folder = path.parts[0], path.parts[1]
        if top == "tests" and folder not in OTHER_FOLDERS and path.stem.endswith("_test") and path.suffix in (".cc", ".cu"):
            tests.setdefault(folder, {})[file] = path.stem.removesuffix("_test")
        elif top == "src" and path.suffix in (".cc", ".cu"):
            sources.setdefault(folder, {})[file] = path.stem
        elif top == "src" and path.suffix in (".h", ".cuh"):
            headers.setdefault(folder, {})[file] = path.stem
    return tests, sources, headers


def find_holes(files):
    """path -> what is missing"""
    tests, sources, headers = split_tree(files)
    holes = {}
    for folder, members in sources.items():
        for file, stem in members.items():
            if not any(is_called_after(stem, t) for t in tests.get(folder, {}).values()):
                holes[file] = f"no test in tests/{folder}/ is called after it"
    for folder, members in tests.items():
        names = [*sources.get(folder, {}).values(), *headers.get(folder, {}).values()]
        for file, stem in members.items():
            if not any(is_called_after(n, stem) for n in names):
                holes[file] = f"nothing in src/{folder}/ is called {stem}"
    return holes


def check(files, waivers):
    holes = find_holes(files)
    for file, what in holes.items():
        if file not in waivers:
            yield f"{file}: {what}; write one, or give the reason in tests/mirror.txt"
    for file, reason in waivers.items():
        if not reason:
            yield f"tests/mirror.txt: {file} gives no reason"
        if file not in holes:
            yield f"tests/mirror.txt: {file} needs no exception"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else source_tree.repository_root()
    files = source_tree.tracked_files(root)
    waivers = read_waivers(root / "tests/mirror.txt")
    return source_tree.report(list(check(files, waivers)), f"tests/ mirrors src/ with {len(waivers)} exceptions")


if __name__ == "__main__":
    sys.exit(main())
