# SPDX-License-Identifier: Apache-2.0
"""A decode step over stand-in tensors, and what plain arithmetic makes of it."""

import math
import os
import random
import struct
import unittest

import standin

SEED = int(os.environ.get("LATENT_TEST_SEED", "1"))
# Frobenius, relative: bf16 rounds the output (2^-9) and, on a CPU with AVX-512 BF16, the weights
# (docs/notes/20261130-cpu-attention.md); fp16 is rounded once, by the reference alone.
BOUNDS = {standin.bfloat16: 3.2e-3, standin.float16: 3e-4, standin.float32: 1e-5}


def decode_e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    size = mantissa * 2.0 ** -9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -size if code & 0x80 else size


class Problem:
    """Requests of kv_lens tokens, q_lens query rows each; pages in random order, page 0 among them; NaN wherever no
    token lives, absurd ids past a request's pages. gap: spare columns between heads, and pages apart."""

    def __init__(self, kv_lens, q_lens=None, heads=3, latent=512, rope=64, page=64, dtype=standin.bfloat16, gap=0,
                 columns=None, salt=0):
        self.random = random.Random(SEED * 1000 + salt)
        self.kv_lens, self.q_lens = kv_lens, q_lens or [1] * len(kv_lens)
        self.heads, self.latent, self.rope, self.page, self.dtype = heads, latent, rope, page, dtype
        self.starts = [sum(self.q_lens[:i]) for i in range(len(kv_lens) + 1)]
        width = latent + rope
        self.q = standin.empty((self.starts[-1], heads, width + gap), dtype)[:, :, :width].fill_random(self.random, 1.5)
        self.scale = 1 / 24
        counts = [-(-length // page) for length in kv_lens]
        pages = list(range(sum(counts)))
        self.random.shuffle(pages)
        columns = columns or max(counts + [1]) + 1
        self.table = standin.empty((len(kv_lens), columns), standin.int32).fill_(2147480000)
        self.cache = standin.empty((len(pages), page, width + gap), dtype)[:, :, :width]
        self.rows = []  # of each request, what its cache rows hold
        for seq, length in enumerate(kv_lens):
            mine = [pages.pop() for _ in range(counts[seq])]
            self.table[seq:seq + 1, :len(mine)].assign(mine)
            for token in range(length):
                self.cache[mine[token // page], token % page].fill_random(self.random)
            self.rows.append([self.cache[mine[t // page], t % page].flat() for t in range(length)])
        self.lens = standin.tensor(kv_lens) if kv_lens else standin.empty((0,), standin.int32)

    def store_as_codes(self, dtype, scale):
        """Other rows, in a cache of e4m3 codes: times one scale, or uint8 rows of 512 codes, 4 scales and a rope key."""
        width = 656 if dtype is standin.uint8 else 576
        pages = standin.empty(self.cache.shape[:2] + (width,), standin.uint8)
        for seq, length in enumerate(self.kv_lens):
            for token in range(length):
                codes = [self.random.randrange(0x41) | self.random.randrange(2) << 7 for _ in range(576)]  # up to 2.25
                values, row = [scale * decode_e4m3(code) for code in codes], codes
                if dtype is standin.uint8:
                    scales = [struct.unpack("f", struct.pack("f", self.random.uniform(0.1, 1)))[0] for _ in range(4)]
                    rope = self.rows[seq][token][512:]  # bfloat16
                    values = [scales[i // 128] * decode_e4m3(codes[i]) for i in range(512)] + rope
                    row = codes[:512] + list(struct.pack("4f", *scales))
                    row += [byte for x in rope for byte in struct.pack("f", x)[2:]]
                page = self.table[seq, token // self.page].flat()[0]
                pages[page, token % self.page].assign(row)
                self.rows[seq][token] = values
        self.cache = standin.Tensor(pages.memory, pages.offset, pages.shape, pages.strides, dtype)

    def batched(self, tensor):
        """[rows, ..] as [batch, q_len, ..]; every request has as many rows."""
        batch = len(self.kv_lens)
        q_len = tensor.shape[0] // batch
        return standin.Tensor(tensor.memory, tensor.offset, (batch, q_len) + tensor.shape[1:],
                              (tensor.strides[0] * q_len,) + tensor.strides, tensor.dtype)

    def expected(self, causal=True):
        """([row][head][latent], [row][head]) in double."""
        outs, lses = [], []
        for seq, length in enumerate(self.kv_lens):
            for i in range(self.q_lens[seq]):
                seen = length - self.q_lens[seq] + i + 1 if causal else length
                results = [self._attend(seq, self.starts[seq] + i, head, seen) for head in range(self.heads)]
                outs.append([out for out, _ in results])
                lses.append([lse for _, lse in results])
        return outs, lses

    def _attend(self, seq, row, head, seen):
        if seen <= 0:
            return [0.0] * self.latent, -math.inf
        query = self.q[row, head].flat()
        keys = self.rows[seq][:seen]
        logits = [self.scale * sum(map(float.__mul__, query, key)) for key in keys]
        largest = max(logits)
        weights = [math.exp(x - largest) for x in logits]
        total = sum(weights)
        out = [0.0] * self.latent
        for weight, key in zip(weights, keys):
            share = weight / total
            out = [o + share * x for o, x in zip(out, key)]
        return out, largest + math.log(total)


class ProblemTest(unittest.TestCase):
    def expect_out(self, out, want, dtype):
        """`out` in any nesting that flattens to [row][head][latent]."""
        got = out.flat()
        flat = [x for row in want for head in row for x in head]
        self.assertEqual(len(got), len(flat))
        error = math.sqrt(sum((a - b) ** 2 for a, b in zip(got, flat)))
        norm = math.sqrt(sum(x * x for x in flat))
        self.assertTrue(error <= BOUNDS[dtype] * norm, f"relative error {error / norm if norm else error} seed {SEED}")

    def expect_lse(self, lse, want):
        """`lse` flattens to [row][head]."""
        got, flat = lse.flat(), [x for row in want for x in row]
        self.assertEqual(len(got), len(flat))
        for a, b in zip(got, flat):
            if math.isinf(b):
                self.assertEqual(a, b)
            else:
                self.assertLessEqual(abs(a - b), 1e-5 + 16 * 2 ** -24 * abs(b), f"seed {SEED}")

    def refused(self, exception, *words):
        """assertRaises for an exception whose text has all the words."""
        return _Refused(self, exception, words)


class _Refused:
    def __init__(self, test, exception, words):
        self.test, self.exception, self.words = test, exception, words

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.test.assertIsNotNone(kind, f"nothing was raised; expected {self.exception.__name__} with {self.words}")
        if not issubclass(kind, self.exception):
            return False
        for word in self.words:
            self.test.assertIn(word, str(value))
        return True
