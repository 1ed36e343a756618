#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the includes of src/ against src/layers.txt.

Includes in quotes are relative to src/; a folder includes only itself and what its line allows; neither
folders nor headers form a cycle; CUDA's runtime is seen only where GPU code lives; and no header that
another folder can reach brings in a third-party JSON, HTTP or command-line type."""

import pathlib
import re
import sys

import source_tree

CUDA_FOLDERS = ("device", "prim", "kernels/cuda", "attention/backends/cuda", "cli/attention_bench/cuda")
CUDA_HEADERS = re.compile(r"^cuda|^cublas|^nccl")
PRIVATE_HEADERS = re.compile(r"^(nlohmann|boost|CLI|asio|openssl|httplib)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def read_layers(path):
    layers = {}
    for line in path.read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            folder, _, allowed = line.partition(":")
            layers[folder.strip()] = allowed.split()
    return layers


def read_includes(src):
    """file relative to src -> ([quoted], [angled])"""
    files = {}
    for path in sorted(src.rglob("*")):
        if path.suffix in (".h", ".cc", ".cu", ".cuh"):
            found = INCLUDE.findall(path.read_text(errors="replace"))
            files[str(path.relative_to(src))] = ([n for k, n in found if k == '"'], [n for k, n in found if k == "<"])
    return files


def folder_of(file):
    return file.split("/")[0]


def check_layer_table(layers):
    seen = set()
    for folder, allowed in layers.items():
        for other in allowed:
            if other not in seen:
                yield f"src/layers.txt: {folder} may include {other}, which stands not above it"
        seen.add(folder)


def check_edges(files, layers):
    for file, (quoted, angled) in files.items():
        folder = folder_of(file)
        if folder not in layers:
            yield f"src/{file}: src/layers.txt has no folder {folder}"
            continue
        for name in quoted:
            if name not in files:
                yield f'src/{file}: "{name}" is no file of src/ (includes are relative to src/)'
            elif folder_of(name) not in [folder, *layers[folder]]:
                yield f'src/{file}: "{name}": src/layers.txt has no edge from {folder} to {folder_of(name)}'
        if not file.startswith(CUDA_FOLDERS):
            for name in angled:
                if CUDA_HEADERS.match(name):
                    yield f"src/{file}: <{name}> outside {', '.join(CUDA_FOLDERS)}"


def reachable(file, files, found):
    for name in files.get(file, ([], []))[0]:
        if name in files and name not in found:
            found.add(name)
            reachable(name, files, found)
    return found


def check_headers(files):
    for file in files:
        headers = reachable(file, files, set())
        if file in headers:
            yield f"src/{file}: includes itself through other headers"
        for header in sorted(headers):
            if folder_of(header) == folder_of(file):
                continue
            for name in files[header][1]:
                if PRIVATE_HEADERS.match(name):
                    yield f"src/{header}: <{name}> reaches src/{file}; keep it in .cc files"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else source_tree.repository_root()
    layers = read_layers(root / "src/layers.txt")
    files = read_includes(root / "src")
    problems = [*check_layer_table(layers), *check_edges(files, layers), *check_headers(files)]
    return source_tree.report(problems, f"{len(files)} files of {len(layers)} layers")


if __name__ == "__main__":
    sys.exit(main())
