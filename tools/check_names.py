#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no tracked text names a place that exists on one machine only: absolute paths of homes and work
folders, and hosts of package registries (clients know theirs)."""

import pathlib
import re
import sys

import source_tree

FORBIDDEN = [
    ("a path of one machine", re.compile(r"(?<![\w.$}>/-])/(?:work|home|root|Users|mnt)/\w")),
    ("a registry host", re.compile(r"\b(?:deb|registry|files|proxy|index|mirrors?|security|snapshot|ppa)"
                                   r"(?:\.[a-z0-9-]+)+\.(?:org|io|com|dev|net)\b|\bpypi\.[a-z]+\b|\bcrates\.io\b")),
]
BINARY_SUFFIXES = (".safetensors", ".png", ".bin", ".gz")


def check(root, files):
    for file in files:
        if file.endswith(BINARY_SUFFIXES):
            continue
        text = (root / file).read_bytes().decode("utf-8", errors="replace")
        for what, pattern in FORBIDDEN:
            for match in pattern.finditer(text):
                line = text.count("\n", 0, match.start()) + 1
                yield f"{file}:{line}: {what}: {match.group(0)}"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else source_tree.repository_root()
    files = source_tree.tracked_files(root)
    return source_tree.report(list(check(root, files)), f"{len(files)} files name no machine and no registry host")


if __name__ == "__main__":
    sys.exit(main())
