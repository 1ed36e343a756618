#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what README.md, CONTRIBUTING.md and docs/*.md say about the repository.

Every path in backticks and every relative link exists; every `scripts/…` command exists; every `latent …`
command of a code block names a subcommand and flags that the built binary knows (--latent BINARY); a block
that opens with ```sh run is run from the repository's root, with `latent` on the PATH. docs/ROADMAP.md speaks
of what is not there yet and is left out."""

import argparse
import glob
import os
import pathlib
import re
import shlex
import subprocess
import sys

import source_tree

LEFT_OUT = ("docs/ROADMAP.md",)
PATH = re.compile(r"^[\w.-]+(?:/[\w.{},*-]+)+/?$")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def documents(root):
    names = ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (root / "docs").glob("*.md"))]
    return sorted(n for n in names if n not in LEFT_OUT and (root / n).exists())


def expand(pattern):
    """`a/{b,c}.h` -> [a/b.h, a/c.h]"""
    match = re.search(r"\{([^{}]*)\}", pattern)
    if not match:
        return [pattern]
    heads = [pattern[: match.start()] + choice + pattern[match.end():] for choice in match.group(1).split(",")]
    return [path for head in heads for path in expand(head)]


def exists(root, pattern):
    """A header may be named as an include names it, relative to src/."""
    return any(glob.glob(str(base / pattern)) for base in (root, root / "src"))


def is_ours(root, path):
    """Whether the first part of the path is a folder here: else it is a type, a ratio, someone else's file."""
    first = path.split("/")[0]
    if re.search(r"/x\.\w+$", path):  # x stands for any name
        return False
    return (root / first).is_dir() and first not in (".", "..") and first != "build"


def check_paths(root, name, text):
    prose = FENCE.sub("", text)
    for span in re.findall(r"`([^`\n]+)`", prose):
        for path in expand(span) if PATH.match(span) else []:
            if is_ours(root, path) and not exists(root, path):
                yield f"{name}: `{span}` does not exist"
    for target in LINK.findall(prose):
        if "://" not in target and not (root / name).parent.joinpath(target).exists():
            yield f"{name}: the link to {target} leads nowhere"


def commands(text):
    """(words, whether its block is to be run) of every command line in fenced blocks and in backticks."""
    for info, body in FENCE.findall(text):
        if info.split()[:1] in (["sh"], ["console"], ["bash"]):
            for line in body.replace("\\\n", " ").splitlines():
                yield line.removeprefix("$ ").strip()
    for span in re.findall(r"`([^`\n]+)`", FENCE.sub("", text)):
        yield span


def split_command(line):
    try:
        return shlex.split(line, comments=True)
    except ValueError:
        return []


class LatentHelp:
    """What `latent SUBCOMMAND… --help` prints, asked once each."""

    def __init__(self, binary):
        self.binary = binary
        self.texts = {}

    def text(self, subcommands):
        if subcommands not in self.texts:
            result = subprocess.run([self.binary, *subcommands, "--help"], capture_output=True, text=True,
                                    stdin=subprocess.DEVNULL, check=False)
            self.texts[subcommands] = result.stdout if result.returncode == 0 else None
        return self.texts[subcommands]


def check_latent(words, latent):
    """Problem of one `latent …` command, or None."""
    if words[0].startswith("-"):
        known = latent.text(())
        return None if known and words[0].split("=")[0] in known else f"latent has no flag {words[0]}"
    subcommands = (words[0],)
    help_text = latent.text(subcommands)
    if help_text is None:
        return f"latent has no command {words[0]}"
    if len(words) > 1 and re.match(r"^[a-z-]+$", words[1]) and not words[1].startswith("-"):
        nested = latent.text((words[0], words[1]))
        if nested is not None and re.search(rf"^\s+{re.escape(words[1])}\b", help_text, re.MULTILINE):
            help_text = nested
    for word in words:
        flag = word.split("=")[0]
        if re.match(r"^--[a-z]", flag) and not re.search(rf"{re.escape(flag)}\b", help_text):
            return f"{' '.join(subcommands)} has no flag {flag}"
    return None


def check_commands(root, name, text, latent):
    for line in commands(text):
        words = split_command(line.replace("…", ""))
        while words and re.match(r"^[A-Z_]+=", words[0]):
            words = words[1:]
        if not words:
            continue
        if re.match(r"^(?:\./)?(?:scripts|tools|\.ci)/[\w./-]+$", words[0]) and not (root / words[0]).exists():
            yield f"{name}: {words[0]} does not exist"
        if latent and os.path.basename(words[0]) == "latent" and len(words) > 1 and re.match(r"^[a-z-]", words[1]):
            problem = check_latent(words[1:], latent)
            if problem:
                yield f"{name}: {problem}  ({line})"


def run_blocks(root, name, text, binary):
    environment = dict(os.environ, PATH=f"{os.path.dirname(os.path.abspath(binary))}:{os.environ['PATH']}")
    for info, body in FENCE.findall(text):
        if info.split() != ["sh", "run"]:
            continue
        print(f"{name}: running\n{body}", flush=True)
        result = subprocess.run(["bash", "-euo", "pipefail", "-c", body], cwd=root, env=environment, text=True,
                                stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if result.returncode != 0:
            yield f"{name}: this block ended with status {result.returncode}:\n{body}{result.stdout}{result.stderr}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=source_tree.repository_root())
    parser.add_argument("--latent", help="the built binary: checks its commands and runs what is to be run")
    options = parser.parse_args()
    latent = LatentHelp(options.latent) if options.latent else None
    problems = []
    names = documents(options.root)
    for name in names:
        text = (options.root / name).read_text()
        problems += check_paths(options.root, name, text)
        problems += check_commands(options.root, name, text, latent)
        if options.latent:
            problems += run_blocks(options.root, name, text, options.latent)
    return source_tree.report(problems, f"{len(names)} documents say what is there")


if __name__ == "__main__":
    sys.exit(main())
