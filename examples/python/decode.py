#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One decode step over a paged latent cache from Python, checked against plain arithmetic.

Two requests with 100 and 37 tokens in the cache, one new token each, 4 heads, a latent of 512 and a rope key of 64
numbers, bf16; on the GPU if there is one. Prints the backend and the largest error; the exit status is 0 if that is
within bf16's rounding. Without torch, the tensors are those that the package's tests stand on."""

import math
import pathlib
import random
import sys

import latent

try:
    import torch
except ImportError:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/python"))
    import standin as torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HEADS, LATENT, ROPE, PAGE, SCALE = 4, 512, 64, 64, 1 / 24
KV_LENS = [100, 37]  # tokens in the cache, the new one included
BLOCK_TABLE = [[2, 0], [1, -1]]  # the second request needs one page


def random_tensor(*shape):
    def numbers(extents):
        return [numbers(extents[1:]) for _ in range(extents[0])] if extents else random.uniform(-1, 1)

    return torch.tensor(numbers(shape), dtype=torch.bfloat16, device=DEVICE)


def attend(query, keys):
    """One head over its keys, in double: (output, LSE)."""
    logits = [SCALE * sum(a * b for a, b in zip(query, key)) for key in keys]
    largest = max(logits)
    weights = [math.exp(x - largest) for x in logits]
    out = [sum(w * key[i] for w, key in zip(weights, keys)) / sum(weights) for i in range(LATENT)]
    return out, largest + math.log(sum(weights))


def main():
    random.seed(1)
    query = random_tensor(2, 1, HEADS, LATENT + ROPE)  # [batch, query tokens, heads, latent | rope]
    cache = random_tensor(3, PAGE, LATENT + ROPE)  # [pages, tokens a page, latent | rope]
    table = torch.tensor(BLOCK_TABLE, dtype=torch.int32, device=DEVICE)
    kv_lens = torch.tensor(KV_LENS, dtype=torch.int32, device=DEVICE)

    # A plan of our own; latent.decode(query, cache, table, kv_lens, SCALE) would do the same in one line.
    attention = latent.Attention(heads=HEADS, page=PAGE, latent=LATENT, rope=ROPE, dtype=torch.bfloat16, device=DEVICE)
    plan = attention.plan(max_tokens=2, max_seqs=2, max_kv_len=2 * PAGE)
    out, lse = plan.run(query, cache, table, kv_lens, SCALE, return_lse=True)
    print("backend", attention.backend)

    queries, pages, outs, lses = query.tolist(), cache.tolist(), out.tolist(), lse.tolist()
    error = norm = lse_error = 0.0
    for seq, length in enumerate(KV_LENS):
        keys = [pages[BLOCK_TABLE[seq][token // PAGE]][token % PAGE] for token in range(length)]
        for head in range(HEADS):
            want, want_lse = attend(queries[seq][0][head], keys)
            error += sum((a - b) ** 2 for a, b in zip(outs[seq][0][head], want))
            norm += sum(b * b for b in want)
            lse_error = max(lse_error, abs(lses[seq][0][head] - want_lse))
    print(f"relative error {math.sqrt(error / norm):.2e}, of lse {lse_error:.2e}")
    # bf16 rounds the output by up to 2^-9 of it, and the weights that meet the values by as much.
    return 0 if math.sqrt(error / norm) < 4e-3 and lse_error < 1e-4 else 1


if __name__ == "__main__":
    sys.exit(main())
