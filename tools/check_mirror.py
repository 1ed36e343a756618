#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that tests/ mirrors src/.

src/F/…/name.cc (or .cu) is covered by a test of tests/F/ called name_test.cc, by one called after the first words
of its name (router_test.cc covers router_avx2.cc), or by one that includes its header. A test must be called
after a source or header of its folder in the same way. tests/mirror.txt lists the exceptions, one
`pattern: reason` a line; an exception that is not needed is an error."""

import fnmatch
import pathlib
import re
import sys

import source_tree

# Folders of tests/ that mirror no folder of src/.
OTHER_FOLDERS = ("testing", "tools", "fuzz", "fixtures", "golden", "data")


def read_waivers(path):
    """[(pattern, reason)]"""
    lines = path.read_text().splitlines() if path.exists() else []
    pairs = [line.partition(":") for line in lines if line.strip() and not line.startswith("#")]
    return [(pattern.strip(), reason.strip()) for pattern, _, reason in pairs]


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


def included_headers(root, tests):
    """folder -> headers that its tests include, without suffix, relative to src/"""
    pattern = re.compile(r'#include "([\w/]+)\.(?:h|cuh)"')
    return {folder: {name for file in members for name in pattern.findall((root / file).read_text())}
            for folder, members in tests.items()}


def find_holes(root, files):
    """path -> what is missing"""
    tests, sources, headers = split_tree(files)
    included = included_headers(root, tests)
    holes = {}
    for folder, members in sources.items():
        for file, stem in members.items():
            header = file.removeprefix("src/").rsplit(".", 1)[0]
            called = any(is_called_after(stem, t) for t in tests.get(folder, {}).values())
            if not called and header not in included.get(folder, ()):
                holes[file] = f"no test in tests/{folder}/ is called after it or includes its header"
    for folder, members in tests.items():
        names = [*sources.get(folder, {}).values(), *headers.get(folder, {}).values()]
        for file, stem in members.items():
            if not any(is_called_after(n, stem) for n in names):
                holes[file] = f"nothing in src/{folder}/ is called {stem}"
    return holes


def check(root, files, waivers):
    holes = find_holes(root, files)
    for file, what in holes.items():
        if not any(fnmatch.fnmatchcase(file, pattern) for pattern, _ in waivers):
            yield f"{file}: {what}; write one, or give the reason in tests/mirror.txt"
    for pattern, reason in waivers:
        if not reason:
            yield f"tests/mirror.txt: {pattern} gives no reason"
        if not fnmatch.filter(holes, pattern):
            yield f"tests/mirror.txt: {pattern} needs no exception"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else source_tree.repository_root()
    files = source_tree.tracked_files(root)
    waivers = read_waivers(root / "tests/mirror.txt")
    return source_tree.report(list(check(root, files, waivers)), f"tests/ mirrors src/ with {len(waivers)} exceptions")


if __name__ == "__main__":
    sys.exit(main())
