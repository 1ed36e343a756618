#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves the guards of the narrow Hopper decode kernel: removes one at a time and wants the conformance suite to fail.

    tools/gpu/mutate_attention.py build/cuda [NAME...]

On a GPU machine, after attention_tests was built there. A mutant is a copy of one source file with one line changed; the
instances that the suite uses most are compiled with it, all mutants at once, and linked in front of the others. Ends with 1
if a mutant survives, or if one that must not matter is killed."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNEL = "attention/backends/cuda_sm90/"
INSTANCES = ["decode_bf16_256_32.cu", "decode_bf16_512_64.cu"]
FILTER = "*Conformance*cuda_sm90*"

# name: file, what is changed, into what, whether the suite must fail
MUTANTS = {
    "mask": ("narrow_attend.cuh", "if (token >= keys) s[c / 2 * 4 + c % 2] = -INFINITY;", "", True),
    "tail zeros": ("narrow_attend.cuh", "if (live < Config::kTokens) zero_tail(live, cursor_);", "", True),
    "empty rows": ("narrow_cta.cuh", "write_empty_rows<T>(p_, Config::kRank, companion, 96);", "", True),
    "row bound": ("narrow_merge.cuh", "if (!valid || r >= num_rows_) return;", "if (!valid) return;", True),
    "rounded sums": ("narrow_merge.cuh", "rounded == 0 ? 0.0f : 1.0f / rounded;", "rounded == 0 ? 0.0f : 1.0f / exact;", True),
    "box is free": ("narrow_attend.cuh", "ptx::mbarrier_wait(&small_.empty[next.slot], next.phase ^ 1);", "", True),
    "box is full": ("narrow_attend.cuh", "ptx::mbarrier_wait(&small_.full[cursor.slot], cursor.phase);", "", True),
    "weights to all": ("narrow_attend.cuh", "group_sync();  // weights and zeros: all to the tensor cores", "", True),
    "maxima to all": ("narrow_attend.cuh", "group_sync();  // maxima: every warp's to every warp", "", True),
    "boxes to all": ("narrow_merge.cuh", "consumer_sync();  // boxes and factors: all to all", "", True),
    "piece to leader": ("narrow_merge.cuh", "consumer_sync();  // the piece: all to the leader", "", True),
    "wait for pieces": ("narrow_merge.cuh", "if ((now & 0xFFFF) >= count) return true;", "return true;", True),
    "counter cleared": ("narrow_merge.cuh", "p_.arrived[state_of(pieces, 0)] = 0;", ";", True),
    # Nobody waits for anybody: slower, and the same bits.
    "no patience": ("narrow_config.cuh", "kPatience = 1 << 18", "kPatience = 0", False),
}


def commands(build):
    """The compile commands of the instances, and the link command of the tests."""
    lines = subprocess.run(["ninja", "-C", build, "-t", "commands", "attention_tests"], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    compile_lines = {i: next(line for line in lines if f"cuda_sm90/inst/{i}.o" in line) for i in INSTANCES}
    link = next(line for line in reversed(lines) if re.search(r"-o \S*attention_tests\b", line))
    return compile_lines, next(part for part in link.split(" && ") if re.search(r"-o \S*attention_tests\b", part))


def run(command, build, log, **environment):
    with open(log, "ab") as out:
        return subprocess.run(command, shell=True, cwd=build, stdout=out, stderr=out, timeout=120,
                              env=os.environ | environment).returncode


def build_mutant(name, build, folder, lines):
    file, old, new, _ = MUTANTS[name]
    folder.mkdir(parents=True)
    text = (ROOT / "src" / KERNEL / file).read_text(encoding="utf-8")
    if old not in text:
        raise SystemExit(f"{name}: {file} has no line '{old}'")
    target = folder / "src" / KERNEL / file
    target.parent.mkdir(parents=True)
    target.write_text(text.replace(old, new), encoding="utf-8")
    compile_lines, link = lines
    objects = []
    for instance, line in compile_lines.items():
        objects.append(str(folder / f"{instance}.o"))
        line = re.sub(r"(-o|-MF|-MT) \S+/" + re.escape(instance) + r"(\.o(\.d)?)", lambda m: f"{m[1]} {folder}/{instance}{m[2]}", line)
        if run(line.replace(" -I", f" -I{folder}/src -I", 1), build, folder / "build.log") != 0:
            raise SystemExit(f"{name}: {instance} does not compile, see {folder}/build.log")
    link = re.sub(r"-o \S*attention_tests\b", f"-o {folder}/attention_tests {' '.join(objects)}", link)
    if run(link, build, folder / "build.log") != 0:
        raise SystemExit(f"{name}: does not link, see {folder}/build.log")


def test_mutant(build, folder):
    """Whether the suite fails, where, and whether it found a GPU."""
    log = folder / "test.log"
    log.unlink(missing_ok=True)
    failed = run(f"timeout 30 {folder}/attention_tests --gtest_filter='{FILTER}'", build, log,
                 LATENT_TEST_CASES=os.environ.get("LATENT_TEST_CASES", "100")) != 0
    text = log.read_text(encoding="utf-8", errors="replace")
    tests = sorted(set(re.findall(r"FAILED  \] All/Conformance\.(\w+)/", text)))
    ran = "OK ] All/Conformance.any_number_of_heads/" in text
    return failed, ", ".join(tests) or ("nothing" if ran else "a hang or a crash"), ran


def main():
    build = str(pathlib.Path(sys.argv[1]).resolve())
    names = sys.argv[2:] or list(MUTANTS)
    lines = commands(build)
    failed, tests, ran = test_mutant(build, pathlib.Path(build) / "tests")
    if failed or not ran:
        raise SystemExit(f"without a mutant the suite must run and pass; killed by {tests}")
    base = pathlib.Path(tempfile.mkdtemp(prefix="mutants."))
    folder = {name: base / name.replace(" ", "_") for name in names}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda name: build_mutant(name, build, folder[name], lines), names))
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for name, (failed, tests, _) in zip(names, pool.map(lambda name: test_mutant(build, folder[name]), names)):
            right = failed == MUTANTS[name][3]
            wrong += not right
            print(f"{'ok ' if right else 'BAD'} {name:<16} {'killed by ' + tests if failed else 'survives'}", flush=True)
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
