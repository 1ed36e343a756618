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


def shared_functions(objects):
    """(object, weak function that it defines), from one run of nm."""
    listing = subprocess.run(["nm", "-A", "--defined-only", *map(str, objects)], capture_output=True, text=True,
                             check=True)
    for line in listing.stdout.splitlines():
        match = re.match(r"^(.*):[0-9a-f]+ [Wu] (\S+)$", line)
        if match:
            yield pathlib.PurePath(match.group(1)).name, match.group(2)


def check(objects):
    emitted = {}  # function -> {instruction set: object}
    for name, function in shared_functions(objects):
        match = ISA.search(name)
        emitted.setdefault(function, {}).setdefault(match.group(1) if match else "", name)
    for function, names in sorted(emitted.items()):
        if len(names) > 1:
            yield f"{function}: emitted by {', '.join(sorted(names.values()))}"


def main():
    objects = sorted((pathlib.Path(sys.argv[1]) / "src").rglob("*.cc.o"))
    if not any(ISA.search(p.name) for p in objects):
        print("no object built for an instruction set")
        return 77
    problems = list(check(objects))
    print("\n".join(problems) or "objects built for an instruction set share no function with others")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
