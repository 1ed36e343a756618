#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps docs/contracts.md true to the tests.

A test says which clauses it holds with a comment line above it, `// contract: C1 C3`. Below the clause CN of
docs/contracts.md stand, between `<!-- tests CN -->` and `<!-- end -->`, the tests that say so; --write brings
those lists up to date, and without it the check fails if they are not. A clause without a test must say
`(later: …)` in its text."""

import pathlib
import re
import sys

import source_tree

DOCUMENT = "docs/contracts.md"
MARKER = re.compile(r"^\s*// contract:((?: C\d+)+)\n(?:\s*//.*\n)*\s*(?:TEST|TEST_F|TEST_P|TYPED_TEST)\((\w+),\s*(\w+)\)",
                    re.MULTILINE)
LOOSE = re.compile(r"^\s*// contract:.*$", re.MULTILINE)
BLOCK = re.compile(r"(<!-- tests (C\d+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
CLAUSE = re.compile(r"^- \*\*(C\d+) ", re.MULTILINE)


def collect(root, files, problems):
    """clause -> [(file, 'Suite.case')]"""
    tests = {}
    for file in files:
        if not (file.startswith("tests/") and file.endswith("_test.cc")):
            continue
        text = (root / file).read_text()
        found = list(MARKER.finditer(text))
        if len(found) != len(LOOSE.findall(text)):
            problems.append(f"{file}: a `// contract:` comment is malformed or stands above no test")
        for match in found:
            for clause in match.group(1).split():
                tests.setdefault(clause, []).append((file, f"{match.group(2)}.{match.group(3)}"))
    return tests


def listing(tests):
    by_file = {}
    for file, case in sorted(tests):
        by_file.setdefault(file, []).append(case)
    return "".join(f"  - `{file}`: {', '.join(cases)}\n" for file, cases in by_file.items())


def clauses(text):
    """clause -> its text, up to the next clause"""
    found = list(CLAUSE.finditer(text))
    ends = [m.start() for m in found[1:]] + [len(text)]
    return {m.group(1): text[m.start():end] for m, end in zip(found, ends)}


def rewrite(text, tests):
    return BLOCK.sub(lambda m: m.group(1) + listing(tests.get(m.group(2), [])) + m.group(4), text)


def check(text, tests):
    known = clauses(text)
    for clause, body in known.items():
        if f"<!-- tests {clause} -->" not in body:
            yield f"{DOCUMENT}: {clause} has no list of tests"
        if not tests.get(clause) and "(later:" not in body:
            yield f"{clause} has no test and does not say when it will: mark one with `// contract: {clause}`"
    for clause in tests:
        if clause not in known:
            yield f"{tests[clause][0][0]}: {DOCUMENT} has no clause {clause}"
    if rewrite(text, tests) != text:
        yield f"{DOCUMENT} is not up to date: run tools/contracts.py --write"


def main():
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    root = pathlib.Path(arguments[0]) if arguments else source_tree.repository_root()
    problems = []
    tests = collect(root, source_tree.tracked_files(root), problems)
    text = (root / DOCUMENT).read_text()
    if "--write" in sys.argv:
        text = rewrite(text, tests)
        (root / DOCUMENT).write_text(text)
    problems += check(text, tests)
    return source_tree.report(problems, f"{len(clauses(text))} clauses, {sum(map(len, tests.values()))} marks")


if __name__ == "__main__":
    sys.exit(main())
