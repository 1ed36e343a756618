#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times torch's attention (cuDNN) on the prompts by which `latent bench attention --prefill` is judged: causal, 128
heads, q and k of 192 columns, v of 128, bf16, N(0, 1); warm and burst as there. Half the square counts as work."""

import statistics
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def event():
    return torch.cuda.Event(enable_timing=True)


def seconds_each(call, count):
    events = [event() for _ in range(count + 1)]
    events[0].record()
    for i in range(count):
        call(i)
        events[i + 1].record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) * 1e-3 for a, b in zip(events, events[1:])]


def measure(heads, length, widths):
    def draw(width):
        return torch.randn(1, heads, length, width, device="cuda", dtype=torch.bfloat16)

    sets = [(draw(widths[0]), draw(widths[0]), draw(widths[1])) for _ in range(2)]

    def call(index):
        q, k, v = sets[index % len(sets)]
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    flops = 2 * heads * length * length / 2 * sum(widths)
    seconds_each(call, max(3, int(0.05 / (flops / 5e14))))
    warm = statistics.mean(seconds_each(call, max(5, int(0.1 / (flops / 5e14)))))
    time.sleep(0.2)
    burst = statistics.median(seconds_each(call, 12)[1:])
    for name, seconds in (("warm", warm), ("burst", burst)):
        print(f"cuDNN {widths[0]}/{widths[1]} heads {heads} len {length} {name}: {seconds * 1e6:.1f} us, "
              f"{flops / seconds * 1e-12:.0f} TFLOP/s", flush=True)


def main():
    lengths = [int(x) for x in sys.argv[1:]] or [2048, 4096, 8192]
    with torch.inference_mode(), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        for length in lengths:
            measure(128, length, (192, 128))


if __name__ == "__main__":
    main()
