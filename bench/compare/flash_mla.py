#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times an installed flash_mla module (with torch, on a Hopper GPU) on the cases of `latent bench attention`, under
its burst and warm protocols, and prints the same JSON rows. Without the module it says so and ends with 3.
plan_us is that of get_mla_metadata; newer versions plan inside the first call instead.

  python3 bench/compare/flash_mla.py --heads 16 --q-len 1 --batch 128 --len 4096 --lengths varied > rows.json
  python3 bench/compare/flash_mla.py --grid"""

import argparse
import json
import math
import statistics
import sys
import time

WIDTH, LATENT, PAGE = 576, 512, 64
SCALE = 1 / 24
GRID = [  # heads, q_len, batch, len, varied: judged_cases() of the bench
    (128, 1, 128, 8192, False), (128, 2, 128, 32768, False), (128, 1, 128, 1024, False), (64, 1, 128, 8192, False),
    (64, 1, 128, 8192, True), (16, 1, 128, 32768, False), (16, 1, 128, 4096, True), (16, 1, 32, 1024, False),
    (16, 1, 1, 8192, False), (16, 1, 1, 32768, False), (128, 1, 1, 32768, False)]  # fmt: skip


def import_modules():
    try:
        import flash_mla
        import torch
    except ImportError as error:
        print(f"flash_mla.py: {error}: install FlashMLA and torch to time them", file=sys.stderr)
        sys.exit(3)
    if not torch.cuda.is_available():
        print("flash_mla.py: needs an NVIDIA GPU, and torch sees none", file=sys.stderr)
        sys.exit(3)
    return torch, flash_mla


class Case:
    """Input sets of one case over a shared pool of pages, and calls on them."""

    def __init__(self, torch, flash_mla, pool, order, case):
        heads, q_len, batch, length, varied = case
        self.torch, self.flash_mla, self.case, self.pool = torch, flash_mla, case, pool
        generator = torch.Generator().manual_seed(20261130)
        lens = torch.full((batch,), float(length))
        if varied:
            lens = (lens + torch.randn(batch, generator=generator) * length / 2).round().clamp(16, 2 * length)
        lens = lens.to(torch.int32)
        pages = [math.ceil(n / PAGE) for n in lens.tolist()]
        self.tokens = int(lens.sum())
        self.sets = min(200, math.ceil(1e9 / (sum(pages) * PAGE * WIDTH * 2)))
        self.lens = lens.cuda()
        self.q = torch.randn(self.sets, batch, q_len, heads, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.tables, at = [], 0
        for _ in range(self.sets):
            table = torch.zeros(batch, max(pages), dtype=torch.int32)
            for request, count in enumerate(pages):
                index = (torch.arange(count) + at) % len(order)
                table[request, :count] = order[index]
                at += count
            self.tables.append(table.cuda())
        began = time.perf_counter()
        self.metadata = flash_mla.get_mla_metadata(self.lens, q_len * heads, 1)
        torch.cuda.synchronize()
        self.plan_us = 1e6 * (time.perf_counter() - began)

    def call(self, index):
        s, (_, q_len, *_rest) = index % self.sets, self.case
        return self.flash_mla.flash_mla_with_kvcache(
            self.q[s], self.pool, self.tables[s], self.lens, LATENT, *self.metadata, softmax_scale=SCALE,
            causal=q_len > 1)  # fmt: skip

    def burst_us(self):
        torch, rounds, at = self.torch, [], 0
        for _ in range(3):
            torch.cuda.synchronize()
            time.sleep(0.2)
            events = [torch.cuda.Event(enable_timing=True) for _ in range(13)]
            torch.cuda._sleep(20_000_000)  # some 10 ms: Python enqueues slowly
            events[0].record()
            for i in range(12):
                self.call(at + i)
                events[i + 1].record()
            at += 12
            torch.cuda.synchronize()
            rounds.append(statistics.median(1e3 * a.elapsed_time(b) for a, b in zip(events[1:], events[2:])))
        return statistics.median(rounds)

    def warm_us(self):
        torch = self.torch
        self.call(0)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(self.sets):
                self.call(i)
        began = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        for _ in range(math.ceil(0.02 / seconds)):
            graph.replay()
        events = [torch.cuda.Event(enable_timing=True) for _ in range(max(12, math.ceil(0.08 / seconds)) + 1)]
        events[0].record()
        for event in events[1:]:
            graph.replay()
            event.record()
        torch.cuda.synchronize()
        return statistics.median(1e3 * a.elapsed_time(b) for a, b in zip(events, events[1:])) / self.sets


def rows_of(case):
    heads, q_len, batch, length, varied = case.case
    queries = batch * q_len * heads
    size = 2 * (case.tokens * WIDTH + queries * (WIDTH + LATENT))
    flops = 2 * heads * q_len * case.tokens * (WIDTH + LATENT)
    for protocol, us in (("burst", case.burst_us()), ("warm", case.warm_us())):
        yield {"heads": heads, "q_len": q_len, "batch": batch, "len": length,
               "lengths": "varied" if varied else "equal", "mean_len": case.tokens / batch, "input_sets": case.sets,
               "backend": "flash_mla (module)", "protocol": protocol, "us": us, "bytes_per_s": size / us * 1e6,
               "flops_per_s": flops / us * 1e6, "plan_us": case.plan_us}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for flag, value in (("--heads", 16), ("--q-len", 1), ("--batch", 128), ("--len", 4096)):
        parser.add_argument(flag, type=int, default=value)
    parser.add_argument("--lengths", choices=("equal", "varied"), default="equal")
    parser.add_argument("--pool-gb", type=float, default=14)
    parser.add_argument("--grid", action="store_true", help="the judged cases")
    flags = parser.parse_args()
    torch, flash_mla = import_modules()
    torch.manual_seed(1)
    num_pages = int(flags.pool_gb * 1e9 / (PAGE * WIDTH * 2))
    pool = torch.randn(num_pages, PAGE, 1, WIDTH, device="cuda", dtype=torch.bfloat16)
    order = torch.randperm(num_pages).to(torch.int32)
    one = (flags.heads, flags.q_len, flags.batch, flags.len, flags.lengths == "varied")
    rows = []
    for case in GRID if flags.grid else [one]:
        rows += rows_of(Case(torch, flash_mla, pool, order, case))
    ceilings = {"machine": torch.cuda.get_device_name(), "pool_gb": flags.pool_gb}
    print(json.dumps({"schema": "latent.bench.attention/1", "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                      "command": " ".join(sys.argv), "ceilings": ceilings, "rows": rows}))  # fmt: skip


if __name__ == "__main__":
    main()
