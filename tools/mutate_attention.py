#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves the guards of the Hopper decode kernels: removes one at a time and wants the tests on the emulator
(tests/gpu_emulator) to fail. No GPU is needed.

    tools/mutate_attention.py build/release [NAME...]

After attention_tests was built. A mutant is a copy of one source file with one line changed; the emulated kernels are
compiled with it and linked in front of the others. Ends with 1 if a mutant survives, or if one that must not matter is
killed."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
KERNELS = "attention/backends/"
SOURCE = "emulated_sm90.cc"
FILTER = "*EmulatedDecode*"

# name: file, what is changed, into what, whether the suite must fail
MUTANTS = {
    "mask": ("cuda_sm90/narrow_attend.cuh", "if (token >= keys) s[c / 2 * 4 + c % 2] = -INFINITY;", "", True),
    "tail zeros": ("cuda_sm90/narrow_attend.cuh", "if (live < Config::kTokens) zero_tail(live, cursor_);", "", True),
    "empty rows": ("cuda_sm90/narrow_cta.cuh", "write_empty_rows<T>(p_, Config::kRank, companion, 96);", "", True),
    "row bound": ("cuda_sm90/narrow_merge.cuh", "if (!valid || r >= num_rows_) return;", "if (!valid) return;", True),
    "rounded sums": ("cuda_sm90/narrow_merge.cuh", "rounded == 0 ? 0.0f : 1.0f / rounded;", "rounded == 0 ? 0.0f : 1.0f / exact;", True),
    "box is free": ("cuda_sm90/narrow_attend.cuh", "ptx::mbarrier_wait(&small_.empty[next.slot], next.phase ^ 1);", "", True),
    "box is full": ("cuda_sm90/narrow_attend.cuh", "ptx::mbarrier_wait(&small_.full[cursor.slot], cursor.phase);", "", True),
    "weights to all": ("cuda_sm90/narrow_attend.cuh", "group_sync();  // weights and zeros: all to the tensor cores", "", True),
    "maxima to all": ("cuda_sm90/narrow_attend.cuh", "group_sync();  // maxima: every warp's to every warp", "", True),
    "boxes to all": ("cuda_sm90/narrow_merge.cuh", "consumer_sync();  // boxes and factors: all to all", "", True),
    "piece to leader": ("cuda_sm90/narrow_merge.cuh", "consumer_sync();  // the piece: all to the leader", "", True),
    "wait for pieces": ("cuda_common/piece_meeting.cuh", "if ((now & 0xFFFF) >= count) return true;", "return true;", True),
    "counter cleared": ("cuda_common/piece_meeting.cuh", "*counter = 0;", ";", True),
    "wide: mask": ("cuda_sm90/wide_attend.cuh", "if ((tile + 1) * Config::kTokens > kv_len_ - q_len_ + 1) mask(s, tile);", "", True),
    "wide: tail zeros": ("cuda_sm90/wide_attend.cuh", "if (live < Config::kTokens) zero_tail(i, live);", "", True),
    "wide: box is free": ("cuda_sm90/wide_attend.cuh", "ptx::mbarrier_wait(&small_.empty[slot], phase ^ 1);", "", True),
    "wide: box is full": ("cuda_sm90/wide_attend.cuh", "ptx::mbarrier_wait(&small_.full[first + b], parity);", "", True),
    "wide: values are added": ("cuda_sm90/wide_attend.cuh", "ptx::wgmma_wait<kPending>();", "", True),
    "wide: query is free": ("cuda_sm90/wide_attend.cuh", "ptx::mbarrier_wait(&small_.query_empty, requests_ % 2 ^ 1);", "", True),
    "wide: query is there": ("cuda_sm90/wide_attend.cuh", "ptx::mbarrier_wait(&small_.query_full, requests_ % 2);", "", True),
    "wide: no lane late": ("cuda_sm90/wide_attend.cuh", "__syncwarp();  // no lane waits for this query any more", "", True),
    "wide: row bound": ("cuda_sm90/wide_merge.cuh", "const bool live = row(local) < num_rows_;", "const bool live = true;", True),
    "wide: piece to leader": ("cuda_sm90/wide_merge.cuh", "consumer_sync();  // the piece: all to the leader", "", True),
    "wide: sums to all": ("cuda_sm90/wide_merge.cuh", "consumer_sync();  // sums: each group's to the other; both are done with weights and maxima", "", True),
    "sm80: mask": ("cuda_sm80/decode_attend.cuh", "x[j] = token < keys ? score * scale : -INFINITY;", "x[j] = score * scale;", True),
    "sm80: tail zeros": ("cuda_sm80/decode_attend.cuh", "ptx::cp_async_16(to + i + at, from + i + at, live);", "ptx::cp_async_16(to + i + at, from + i + at, true);", True),
    "sm80: tile is there": ("cuda_sm80/decode_attend.cuh", "wait_for_all_but(stages_ - 2);", "wait_for_all_but(stages_ - 1);", True),
    "sm80: query to all": ("cuda_sm80/decode_attend.cuh", "__syncthreads();  // the query: all to all", "", True),
    "sm80: scores to all": ("cuda_sm80/decode_attend.cuh", "__syncthreads();  // scores: warps to softening threads", "", True),
    "sm80: weights to all": ("cuda_sm80/decode_attend.cuh", "__syncthreads();  // weights, rescale: softening threads to warps", "", True),
    "sm80: row bound": ("cuda_sm80/decode_merge.cuh", "if (row(local) >= num_rows_) return;", "", True),
    # Nobody waits for anybody: slower, and the same bits.
    "no patience": ("cuda_sm90/narrow_config.cuh", "kPatience = 1 << 18", "kPatience = 0", False),
}


def commands(build):
    """The compile command of the emulated kernels, and the link command of the tests."""
    lines = subprocess.run(["ninja", "-C", build, "-t", "commands", "attention_tests"], check=True, capture_output=True,
                           text=True).stdout.splitlines()
    link = next(line for line in reversed(lines) if re.search(r"-o \S*attention_tests\b", line))
    return (next(line for line in lines if f"{SOURCE}.o -c" in line or f"/{SOURCE}.o " in line),
            next(part for part in link.split(" && ") if re.search(r"-o \S*attention_tests\b", part)))


def run(command, build, log, **environment):
    with open(log, "ab") as out:
        return subprocess.run(command, shell=True, cwd=build, stdout=out, stderr=out, timeout=400,
                              env=os.environ | environment).returncode


def build_mutant(name, build, folder, lines):
    file, old, new, _ = MUTANTS[name]
    folder.mkdir(parents=True)
    text = (ROOT / "src" / KERNELS / file).read_text(encoding="utf-8")
    if old not in text:
        raise SystemExit(f"{name}: {file} has no line '{old}'")
    target = folder / "src" / KERNELS / file
    target.parent.mkdir(parents=True)
    target.write_text(text.replace(old, new), encoding="utf-8")
    line, link = lines
    target = f"{folder}/{SOURCE}.o"
    line = re.sub(r"(-o|-MT) \S+/" + re.escape(SOURCE) + r"\.o\b", lambda m: f"{m[1]} {target}", line)
    line = re.sub(r"-MF \S+", f"-MF {target}.d", line).replace(" -I", f" -I{folder}/src -I", 1) + " -w"
    if run(line, build, folder / "build.log") != 0:
        raise SystemExit(f"{name}: does not compile, see {folder}/build.log")
    link = re.sub(r"-o \S*attention_tests\b", f"-o {folder}/attention_tests {target}", link)
    if run(link, build, folder / "build.log") != 0:
        raise SystemExit(f"{name}: does not link, see {folder}/build.log")


def test_mutant(build, folder):
    """Whether the tests fail, and how."""
    log = folder / "mutants.log"
    log.unlink(missing_ok=True)
    failed = run(f"timeout 300 {folder}/attention_tests --gtest_filter='{FILTER}'", build, log,
                 LATENT_TEST_CASES=os.environ.get("LATENT_TEST_CASES", "8")) != 0
    text = log.read_text(encoding="utf-8", errors="replace")
    if " ran. (" not in text and not failed:
        raise SystemExit(f"{folder}/attention_tests ran nothing")
    signs = {"stuck": "a kernel that does not end", "counters are left": "counters left standing",
             "times the bound": "wrong values", "bits differ": "bits that differ", "part ways": "lanes that part ways"}
    return failed, ", ".join(what for sign, what in signs.items() if sign in text) or "a crash"


def main():
    build = str(pathlib.Path(sys.argv[1]).resolve())
    names = sys.argv[2:] or list(MUTANTS)
    lines = commands(build)
    failed, how = test_mutant(build, pathlib.Path(build) / "tests")
    if failed:
        raise SystemExit(f"without a mutant the tests must pass; failed with {how}")
    base = pathlib.Path(tempfile.mkdtemp(prefix="mutants."))
    folder = {name: base / name.replace(" ", "_") for name in names}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda name: build_mutant(name, build, folder[name], lines), names))
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, (failed, how) in zip(names, pool.map(lambda name: test_mutant(build, folder[name]), names)):
            right = failed == MUTANTS[name][3]
            wrong += not right
            print(f"{'ok ' if right else 'BAD'} {name:<21} {'killed by ' + how if failed else 'survives'}", flush=True)
    sys.exit(wrong != 0)


if __name__ == "__main__":
    main()
