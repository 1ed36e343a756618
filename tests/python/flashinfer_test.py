# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's call on host memory."""

import ctypes

import cases
import standin
from latent.compat.flashinfer import trtllm_batch_decode_with_kv_cache_mla
from problem import Problem, ProblemTest

# The 128 MiB that its users give; what a call leaves there is what the next one finds.
WORKSPACE = standin.empty((128 << 20,), standin.int8)


def call(problem, **changed):
    arguments = dict(
        query=problem.batched(problem.q), kv_cache=problem.cache,
        workspace_buffer=WORKSPACE, qk_nope_head_dim=128, kv_lora_rank=512, qk_rope_head_dim=64, block_tables=problem.table,
        seq_lens=problem.lens, max_seq_len=max(problem.kv_lens), bmm1_scale=problem.scale, bmm2_scale=1.0)
    return trtllm_batch_decode_with_kv_cache_mla(**(arguments | changed))


class FlashInfer(ProblemTest):
    def test_its_decode_test(self):
        # Pages of 32 and 64, one or more queries a request (causal inside the step), out given or not.
        for page, q_len in ((32, 1), (64, 1), (64, 3)):
            problem = Problem([100, 33, 64], q_lens=[q_len] * 3, page=page)
            with self.subTest(page=page, q_len=q_len):
                out = call(problem)
                self.assertEqual(out.shape, (3, q_len, 3, 512))
                self.assertEqual(out.dtype, standin.bfloat16)
                self.expect_out(out, problem.expected()[0], problem.dtype)
                given = standin.empty((3, q_len, 3, 512), standin.bfloat16)
                self.assertIs(call(problem, out=given), given)
                self.assertEqual(given.flat(), out.flat())

    def test_an_out_without_the_query_axis(self):
        # Earlier versions take [batch, heads, rank] for one query a request.
        problem = Problem([40, 3])
        out = standin.empty((2, 3, 512), standin.bfloat16)
        self.assertIs(call(problem, out=out), out)
        self.expect_out(out, problem.expected()[0], problem.dtype)

    def test_a_cache_of_four_dimensions(self):
        problem = Problem([70])
        self.assertEqual(call(problem, kv_cache=problem.cache.unsqueeze(1)).flat(), call(problem).flat())

    def test_ragged_queries(self):
        problem = Problem([70, 5, 33], q_lens=[2, 1, 3])
        starts = standin.tensor(problem.starts)
        for extra in ({}, {"max_q_len": 3}):
            out = call(problem, query=problem.q, cum_seq_lens_q=starts, **extra)
            self.assertEqual(out.shape, (6, 3, 512))
            self.expect_out(out, problem.expected()[0], problem.dtype)
        with self.refused(ValueError, "cum_seq_lens_q"):
            call(problem, query=problem.q, cum_seq_lens_q=standin.tensor([0, 2, 1, 6]))
        with self.refused(ValueError, "max_q_len"):
            call(Problem([9]), max_q_len=1)

    def test_the_lse_in_both_of_its_shapes(self):
        problem = Problem([70, 5], q_lens=[2, 2])
        want = problem.expected()[1]
        for backend, shape in (("auto", (4, 3)), ("cute-dsl", (2, 2, 3))):
            out, lse = call(problem, return_lse=True, backend=backend)
            self.assertEqual(lse.shape, shape)
            self.expect_lse(lse, want)
        for shape in ((4, 3), (2, 2, 3)):
            lse = standin.empty(shape, standin.float32)
            self.assertIs(call(problem, lse=lse, return_lse=True)[1], lse)
            self.expect_lse(lse, want)
        with self.refused(NotImplementedError, "trtllm-gen", "base 2"):
            call(problem, return_lse=True, backend="trtllm-gen")

    def test_the_workspace_needs_no_zeros(self):
        problem = Problem([200])
        dirty = call(problem).flat()
        ctypes.memset(WORKSPACE.data_ptr(), 0, WORKSPACE.numel())
        self.assertEqual(call(problem).flat(), dirty)
        with self.refused(ValueError, "workspace", "64 bytes"):
            call(problem, workspace_buffer=standin.empty((64,), standin.int8))

    def test_what_is_not_dense_decode_is_refused_by_name(self):
        problem, some = Problem([9]), standin.tensor([1])
        for name, value in dict(sparse_mla_top_k=2048, sinks=[some], skip_softmax_threshold_scale_factor=1.0,
                                uses_shared_paged_kv_idx=False, kv_scale_format="pow2_fp32", bmm2_scale=0.5,
                                multi_ctas_kv_counter_buffer=some).items():
            with self.subTest(name), self.refused(NotImplementedError, name):
                call(problem, **{name: value})
        with self.refused(NotImplementedError, "bmm1_scale"):
            call(problem, bmm1_scale=some)
        call(problem, bmm2_scale=1, enable_pdl=True, is_var_seq=False, backend="xqa")

    def test_wrong_tensors_are_refused_as_there(self):
        problem = Problem([40, 2])
        for changed, words in (
            (dict(kv_cache=standin.empty((2, 128, 576), standin.bfloat16)), ("pages of 128", "32 and 64")),
            (dict(kv_cache=standin.empty((2, 2, 64, 576), standin.bfloat16)), ("kv_cache", "2 heads")),
            (dict(kv_cache=standin.empty((2, 64, 512), standin.bfloat16)), ("kv_cache", "576")),
            (dict(kv_cache=standin.empty((2, 64, 576), standin.float8_e4m3fn)), ("kv_cache", "float8_e4m3fn")),
            (dict(query=standin.empty((2, 1, 3, 576), standin.float8_e4m3fn)), ("query", "float8_e4m3fn")),
            (dict(query=standin.empty((2, 3, 576), standin.bfloat16)), ("query", "[2, 3, 576]")),
            (dict(query=standin.empty((3, 1, 3, 576), standin.bfloat16)), ("query", "2 seq_lens")),
            (dict(seq_lens=None), ("seq_lens",)),
            (dict(seq_lens=standin.tensor([40, 2], standin.int64)), ("seq_lens", "int64")),
            (dict(block_tables=standin.tensor([[0, 1], [2, 3]], standin.int64)), ("block_tables", "int64")),
            (dict(block_tables=standin.empty((2, 0), standin.int32)), ("block_tables", "no column")),
            (dict(out=standin.empty((2, 1, 3, 256), standin.bfloat16)), ("out", "[2, 1, 3, 256]")),
            (dict(out=standin.empty((2, 1, 3, 512), standin.float16)), ("out", "float16")),
            (dict(lse=standin.empty((2, 7), standin.float32)), ("lse", "[2, 7]")),
            (dict(backend="flash"), ("'flash'",)),
            (dict(cute_dsl_impl="other"), ("cute_dsl_impl",)),
        ):
            with self.subTest(words=words), self.refused(ValueError, *words):
                call(problem, **changed)


if __name__ == "__main__":
    cases.main()
