# SPDX-License-Identifier: Apache-2.0
"""The package on torch's tensors: on the GPU where there is one, else on a CPU. Values are held to attention in
double on the same inputs."""

import math
import os
import unittest

import cases
import latent
from latent.compat.flash_mla import flash_mla_with_kvcache, get_mla_metadata
from latent.compat.flashinfer import trtllm_batch_decode_with_kv_cache_mla
from latent.compat.vllm import sm100_cutlass_mla_decode, sm100_cutlass_mla_get_workspace_size

try:
    import torch
except ImportError:
    torch = None

SEED = int(os.environ.get("LATENT_TEST_SEED", "1"))
ON_GPU = torch is not None and torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
# Relative, Frobenius (docs/contracts.md): bf16 outputs 2.2e-3; on a CPU, and where few keys leave large weights to
# round, 3.2e-3 (docs/notes/20261130-cpu-attention.md). fp16 has three bits more.
BOUNDS = {"bfloat16": 3.2e-3, "float16": 4e-4}

needs_torch = unittest.skipIf(torch is None, "torch is not installed")
needs_gpu = unittest.skipUnless(ON_GPU, "torch is not installed" if torch is None else "torch sees no GPU")


class Problem:
    """A step of `batch` requests; NaN in every cache row without a token, absurd ids past a request's pages."""

    def __init__(self, kv_lens, q_len=1, heads=16, rope=64, page=64, dtype=None, columns=None, seed=0):
        self.random = torch.Generator().manual_seed(SEED * 1000 + seed)
        self.dtype = dtype or torch.bfloat16
        self.heads, self.page, self.width, self.q_len = heads, page, 512 + rope, q_len
        self.scale = self.width ** -0.5
        self.q = self.draw(len(kv_lens), q_len, heads, self.width)
        counts = [-(-length // page) for length in kv_lens]
        columns = columns or max(counts + [1]) + 2
        order = torch.randperm(sum(counts) + 1, generator=self.random).tolist()
        self.cache = torch.full((len(order), page, self.width), math.nan, dtype=self.dtype)
        table = torch.full((len(kv_lens), columns), 2147480000, dtype=torch.int32)
        for seq, count in enumerate(counts):
            for i in range(count):
                table[seq, i] = order.pop()
                live = min(page, kv_lens[seq] - i * page)
                self.cache[table[seq, i], :live] = self.draw(live, self.width)
        self.cache, self.table = self.cache.to(DEVICE), table.to(DEVICE)
        self.q = self.q.to(DEVICE)
        self.lens = torch.tensor(kv_lens, dtype=torch.int32, device=DEVICE)

    def draw(self, *shape):
        return torch.randn(shape, generator=self.random).to(self.dtype)

    def expected(self, q=None, causal=True, lens=None):
        """([batch, q_len, heads, 512], [batch, q_len, heads]) in double."""
        q = self.q if q is None else q
        batch, q_len, heads, _ = q.shape
        out = torch.zeros(batch, q_len, heads, 512, dtype=torch.float64)
        lse = torch.full((batch, q_len, heads), -math.inf, dtype=torch.float64)
        cache, table = self.cache.cpu().double(), self.table.cpu()
        for seq, length in enumerate((self.lens if lens is None else lens).tolist()):
            pages = table[seq, :-(-length // self.page)].long()
            keys = cache[pages].reshape(-1, self.width)[:length]
            for i in range(q_len):
                seen = length - q_len + i + 1 if causal else length
                if seen <= 0:
                    continue
                logits = self.scale * q[seq, i].cpu().double() @ keys[:seen].T
                out[seq, i] = torch.softmax(logits, -1) @ keys[:seen, :512]
                lse[seq, i] = torch.logsumexp(logits, -1)
        return out, lse


def serving(heads, page):
    """Names of the backends that serve bf16 on the device under test."""
    return [b.name for b in latent.backends(heads, page, device=DEVICE) if b.can_serve]


class TorchTest(unittest.TestCase):
    def expect_out(self, got, want, dtype):
        self.assertEqual(tuple(got.shape), tuple(want.shape))
        got = got.cpu().double()
        self.assertTrue(bool(torch.isfinite(got).all()), "not finite")
        error = ((got - want).norm() / want.norm().clamp_min(1e-300)).item()
        self.assertLessEqual(error, BOUNDS[str(dtype).rpartition(".")[2]], f"seed {SEED}")

    def expect_lse(self, got, want):
        got = got.cpu().double()
        self.assertEqual(tuple(got.shape), tuple(want.shape))
        self.assertTrue(bool(((got == want) | ((got - want).abs() <= 1e-5 + 16 * 2.0 ** -24 * want.abs())).all()))


@needs_torch
class Native(TorchTest):
    def check(self, problem, **options):
        out, lse = latent.decode(problem.q, problem.cache, problem.table, problem.lens, problem.scale, return_lse=True,
                                 **options)
        want, want_lse = problem.expected()
        self.expect_out(out, want, problem.dtype)
        self.expect_lse(lse, want_lse)
        return out

    def test_heads_pages_and_queries(self):
        for heads in (1, 5, 16, 128):
            for page, q_len in ((64, 1), (16, 2), (128, 4)):
                problem = Problem([1000, 1, 333, 0, 64], q_len, heads, page=page)
                for backend in serving(heads, page):
                    with self.subTest(heads=heads, page=page, q_len=q_len, backend=backend):
                        self.check(problem, backend=backend)

    def test_without_rope_and_in_fp16(self):
        self.check(Problem([500, 77], rope=0))
        if ON_GPU:
            self.check(Problem([500, 77], dtype=torch.float16))

    def test_strided_queries_caches_and_outputs(self):
        problem = Problem([300, 64, 10], q_len=2)
        plain = self.check(problem)
        room = torch.full((3, 2, 20, 640), math.nan, dtype=problem.dtype, device=DEVICE)
        room[:, :, 2:18, :576] = problem.q
        problem.q = room[:, :, 2:18, :576]
        pages = torch.full((problem.cache.shape[0], 2, 64, 584), math.nan, dtype=problem.dtype, device=DEVICE)
        pages[:, 1, :, :576] = problem.cache
        problem.cache = pages[:, 1, :, :576]
        target = torch.full((3, 2, 20, 512), 7.0, dtype=problem.dtype, device=DEVICE)
        out = self.check(problem, out=target[:, :, 2:18])
        if ON_GPU:  # a CPU may read a packed cache in place and copy another
            self.assertTrue(torch.equal(out, plain))
        self.assertTrue(bool((target[:, :, :2] == 7).all() and (target[:, :, 18:] == 7).all()))

    def test_ragged_steps(self):
        problem = Problem([100, 9, 40], q_len=3)
        rows = torch.cat([problem.q[0, 2:], problem.q[1], problem.q[2, 1:]])
        starts = torch.tensor([0, 1, 4, 6], dtype=torch.int32, device=DEVICE)
        out = latent.decode(rows, problem.cache, problem.table, problem.lens, problem.scale, q_starts=starts, max_q_len=3)
        want, _ = problem.expected()
        self.expect_out(out, torch.cat([want[0, 2:], want[1], want[2, 1:]]), problem.dtype)

    def test_ids_of_64_bits_are_refused(self):
        problem = Problem([10])
        problem.lens = problem.lens.long()
        with self.assertRaisesRegex(ValueError, "kv_lens.*int64"):
            self.check(problem)

    @needs_gpu
    def test_memory_that_does_not_start_at_16_bytes_is_refused(self):
        problem = Problem([10])
        room = torch.zeros(problem.cache.numel() + 1, dtype=problem.dtype, device=DEVICE)
        problem.cache = room[1:].view(problem.cache.shape)
        with self.assertRaisesRegex(ValueError, "cache at 0x.*16"):
            self.check(problem)

    @needs_gpu
    def test_the_gpu_is_served_by_a_gpu_backend(self):
        attention = latent.Attention(16, 64)
        self.assertTrue(attention.backend.startswith("cuda"), attention.backend)
        with self.assertRaisesRegex(NotImplementedError, "device memory"):
            latent.Attention(16, 64, backend="cpu")
        with self.assertRaisesRegex(NotImplementedError, "f32"):
            latent.Attention(16, 64, dtype=torch.float32)

    @needs_gpu
    def test_poisoned_workspaces_and_outputs_do_not_show(self):
        problem = Problem([3000, 64, 0, 7], heads=16)
        attention = latent.Attention(16, 64)
        plan = attention.plan(max_tokens=4, max_seqs=4, max_kv_len=4096)
        results = []
        for byte in (0xFF, 0x7F, 0x00, 0x5A):
            workspace = torch.full((plan.workspace_bytes + 256,), byte, dtype=torch.uint8, device=DEVICE)
            out = torch.full((4, 1, 16, 1024), byte, dtype=torch.uint8, device=DEVICE).view(torch.bfloat16)
            lse = torch.full((4, 1, 64), byte, dtype=torch.uint8, device=DEVICE).view(torch.float32)
            plan.run(problem.q, problem.cache, problem.table, problem.lens, problem.scale, out=out, lse=lse,
                     workspace=workspace)
            results.append((out, lse))
        for out, lse in results[1:]:
            self.assertTrue(torch.equal(out, results[0][0]) and torch.equal(lse, results[0][1]))
        self.expect_out(results[0][0], problem.expected()[0], problem.dtype)

    @needs_gpu
    def test_the_current_stream_is_honoured(self):
        problem = Problem([2000, 3000])
        want = latent.decode(problem.q, problem.cache, problem.table, problem.lens, problem.scale)
        late = torch.zeros_like(problem.q)
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)  # about 0.1 s: work on any other stream would see zeros
            late.copy_(problem.q)
            got = latent.decode(late, problem.cache, problem.table, problem.lens, problem.scale)
        stream.synchronize()
        self.assertTrue(torch.equal(got, want))


@needs_gpu
class Graphs(TorchTest):
    """Captured once, replayed with other lengths, tables and queries."""

    def replay(self, problem, call):
        """`call()` returns [batch, q_len, heads, 512]; captured without a warm-up for its plan."""
        call()  # loads the kernel's code, which a capture may not
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call()
        for lens in ([700, 64, 1, 0], [1, 0, 0, 640], [0, 0, 0, 0], [704, 704, 704, 704]):
            fresh = Problem(lens, problem.q_len, problem.heads, page=problem.page, columns=problem.table.shape[1],
                            seed=sum(lens))
            problem.q.copy_(fresh.q)
            problem.cache.fill_(math.nan)
            problem.cache[:fresh.cache.shape[0]].copy_(fresh.cache)
            problem.table.copy_(fresh.table)
            problem.lens.copy_(fresh.lens)
            out.fill_(math.nan)
            graph.replay()
            torch.cuda.synchronize()
            self.expect_out(out, fresh.expected()[0], fresh.dtype)
            first = out.clone()
            graph.replay()
            self.assertTrue(torch.equal(out, first))

    def test_native(self):
        problem = Problem([704, 704, 704, 704], columns=13)
        for name in serving(16, 64):
            with self.subTest(name):
                self.replay(problem, lambda backend=name: latent.decode(
                    problem.q, problem.cache, problem.table, problem.lens, problem.scale, backend=backend))

    def test_a_plan_of_ones_own(self):
        problem = Problem([704, 704, 704, 704], q_len=2, heads=5, columns=13)
        plan = latent.Attention(5, 64).plan(max_tokens=8, max_seqs=4, max_kv_len=832)
        workspace = torch.empty(plan.workspace_bytes + 256, dtype=torch.uint8, device=DEVICE)
        out = torch.empty(4, 2, 5, 512, dtype=torch.bfloat16, device=DEVICE)
        self.replay(problem, lambda: plan.run(problem.q, problem.cache, problem.table, problem.lens, problem.scale,
                                              out=out, workspace=workspace))

    def test_a_replay_may_not_outgrow_its_capture(self):
        plan = latent.Attention(5, 64).plan(max_tokens=8, max_seqs=4, max_kv_len=832)
        with self.assertRaisesRegex(ValueError, "not captured"):
            plan.prepare_replay(num_seqs=3, q_len=1)
        plan.step(num_seqs=3, q_len=2)
        plan.prepare_capture()
        plan.prepare_replay(num_seqs=3, q_len=2)
        plan.prepare_replay(num_seqs=2, q_len=1)
        for step, words in (({"num_seqs": 4, "q_len": 1}, "3 were captured"),
                            ({"num_seqs": 3, "q_len": 3}, "3 query rows: 2 were captured")):
            with self.assertRaisesRegex(ValueError, words):
                plan.prepare_replay(**step)

    def test_flash_mla(self):
        problem = Problem([704, 704, 704, 704], heads=128, columns=13)
        meta, splits = get_mla_metadata()
        self.replay(problem, lambda: flash_mla_with_kvcache(
            problem.q, problem.cache.unsqueeze(2), problem.table, problem.lens, 512, meta, splits, problem.scale)[0])

    def test_vllm(self):
        problem = Problem([704, 704, 704, 704], page=128, columns=7)
        workspace = torch.empty(sm100_cutlass_mla_get_workspace_size(704, 4, 0, -1), dtype=torch.uint8, device=DEVICE)
        out = torch.empty(4, 128, 512, dtype=torch.bfloat16, device=DEVICE)

        def call():
            q = problem.q[:, 0]
            sm100_cutlass_mla_decode(out, torch.Tensor(), q[..., :512], q[..., 512:], problem.cache, problem.lens,
                                     problem.table, workspace, problem.scale, -1)
            return out[:, None, :16]

        self.replay(problem, call)

    def test_flashinfer(self):
        problem = Problem([704, 704, 704, 704], q_len=2, page=32, columns=24)
        workspace = torch.zeros(128 << 20, dtype=torch.uint8, device=DEVICE)
        self.replay(problem, lambda: trtllm_batch_decode_with_kv_cache_mla(
            problem.q, problem.cache, workspace, 128, 512, 64, problem.table, problem.lens, 704,
            bmm1_scale=problem.scale))


@needs_torch
class Compatible(TorchTest):
    def test_flash_mla(self):
        for q_len in (1, 2):
            for causal in (True, False):
                problem = Problem([900, 64, 7, 0], q_len, 128 if ON_GPU else 8)
                meta, splits = get_mla_metadata()
                for _ in range(2):  # two layers on the same metadata
                    out, lse = flash_mla_with_kvcache(problem.q, problem.cache.unsqueeze(2), problem.table,
                                                      problem.lens, 512, meta, splits, causal=causal)
                want, want_lse = problem.expected(causal=causal)
                self.expect_out(out, want, problem.dtype)
                self.expect_lse(lse, want_lse.transpose(1, 2))

    def test_flash_mla_copies_queries_that_lie_apart(self):
        problem = Problem([100, 64], q_len=2)
        problem.q = problem.q.transpose(1, 2).contiguous().transpose(1, 2)
        out, _ = flash_mla_with_kvcache(problem.q, problem.cache.unsqueeze(2), problem.table, problem.lens, 512,
                                        get_mla_metadata()[0])
        self.expect_out(out, problem.expected(causal=False)[0], problem.dtype)

    def test_vllm(self):
        for heads in (16, 128):
            problem = Problem([900, 128, 7, 0], heads=heads, page=128)
            batch = 4
            size = sm100_cutlass_mla_get_workspace_size(1024, batch, 0, num_kv_splits=1)
            workspace = torch.empty(size, dtype=torch.uint8, device=DEVICE)
            out = torch.full((batch, 128, 512), math.nan, dtype=problem.dtype, device=DEVICE)
            lse = torch.full((batch, 128), math.nan, device=DEVICE)
            q = problem.q[:, 0]
            sm100_cutlass_mla_decode(out, lse, q[..., :512].contiguous(), q[..., 512:].contiguous(), problem.cache,
                                     problem.lens, problem.table, workspace, problem.scale, 1)
            want, want_lse = problem.expected()
            self.expect_out(out[:, None, :heads], want, problem.dtype)
            self.expect_lse(lse[:, None, :heads], want_lse)
            self.assertTrue(bool((out[:, heads:] == 0).all() and (lse[:, heads:] == -math.inf).all()))

    def test_flashinfer(self):
        workspace = torch.zeros(128 << 20, dtype=torch.uint8, device=DEVICE)
        for page, q_len in ((32, 1), (64, 3)):
            problem = Problem([900, 64, 7], q_len, page=page)
            want, want_lse = problem.expected()
            given = torch.empty(3, q_len, 16, 512, dtype=problem.dtype, device=DEVICE)
            for out in (None, given):
                result, lse = trtllm_batch_decode_with_kv_cache_mla(
                    problem.q, problem.cache.unsqueeze(1), workspace, 128, 512, 64, problem.table, problem.lens, 900,
                    out=out, bmm1_scale=problem.scale, return_lse=True)
                self.expect_out(result, want, problem.dtype)
                self.expect_lse(lse.view(3, q_len, 16), want_lse)
            self.assertIs(result, given)
            starts = torch.arange(0, 3 * q_len + 1, q_len, dtype=torch.int32, device=DEVICE)
            ragged = trtllm_batch_decode_with_kv_cache_mla(
                problem.q.flatten(0, 1), problem.cache, workspace, 128, 512, 64, problem.table, problem.lens, 900,
                bmm1_scale=problem.scale, cum_seq_lens_q=starts)
            self.assertTrue(torch.equal(ragged.view_as(given), given))


if __name__ == "__main__":
    cases.main()
