#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no function of a file built for AVX2 or AVX-512 can stand in for another file's.

An inline function or template that is not inlined is emitted in every object that uses it, and the linker keeps
one copy. If that copy comes from an object built for AVX-512, a machine without it dies in code that asked for
nothing special. So no such function of a *_avx*.cc object may also be emitted by an object built otherwise."""

import pathlib
import re
import subprocess
import sys

ISA = re.compile(r"_(avx\w+)\.cc\.o$")


def shared_functions(path):
    """Weak functions that the object defines."""
    listing = subprocess.run(["nm", "--defined-only", str(path)], capture_output=True, text=True, check=True)
    return {line.split()[2] for line in listing.stdout.splitlines() if re.match(r"^[0-9a-f]+ [Wu] ", line)}


def check(build):
    emitted = {}  # function -> {instruction set: object}
    for path in sorted((build / "src").rglob("*.cc.o")):
        match = ISA.search(path.name)
        for function in shared_functions(path):
            emitted.setdefault(function, {}).setdefault(match.group(1) if match else "", path.name)
    for function, objects in sorted(emitted.items()):
        if len(objects) > 1:
            yield f"{function}: emitted by {', '.join(sorted(objects.values()))}"


def main():
    build = pathlib.Path(sys.argv[1])
    if not any(ISA.search(p.name) for p in (build / "src").rglob("*.cc.o")):
        print("no object built for an instruction set")
        return 77
    problems = list(check(build))
    print("\n".join(problems) or "objects built for an instruction set share no function with others")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
