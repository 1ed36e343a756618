# SPDX-License-Identifier: Apache-2.0
"""What the checks of this folder share: the files git knows, and how a check ends."""

import pathlib
import subprocess
import sys


def repository_root():
    return pathlib.Path(__file__).resolve().parent.parent


def tracked_files(root):
    """Paths relative to root of all files that git tracks or would add; all files where root is no repository."""
    listing = subprocess.run(["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"],
                             capture_output=True, check=False)
    if listing.returncode == 0 and (root / ".git").exists():
        names = listing.stdout.decode().split("\0")
    else:
        names = [str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()]
    return sorted(n for n in names if n and (root / n).is_file())


def report(problems, what):
    """Prints the problems, or what was found in order; returns the exit status."""
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(f"{len(problems)} problems", file=sys.stderr)
        return 1
    print(what)
    return 0
