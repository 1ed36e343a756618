# SPDX-License-Identifier: Apache-2.0
"""FlashMLA's calls on host memory."""

import math

import cases
import standin
from latent.compat.flash_mla import FlashMLASchedMeta, flash_mla_with_kvcache, get_mla_metadata
from problem import Problem, ProblemTest


def call(problem, causal=False, meta=None, **changed):
    arguments = dict(q=problem.batched(problem.q), k_cache=problem.cache.unsqueeze(2), block_table=problem.table,
                     cache_seqlens=problem.lens, head_dim_v=512,
                     tile_scheduler_metadata=meta or get_mla_metadata()[0], causal=causal)
    return flash_mla_with_kvcache(**(arguments | changed))


class FlashMla(ProblemTest):
    def expect_right(self, problem, causal, got):
        out, lse = got
        want, want_lse = problem.expected(causal)
        batch, s_q = len(problem.kv_lens), problem.q_lens[0]
        self.assertEqual(out.shape, (batch, s_q, problem.heads, 512))
        self.assertEqual(lse.shape, (batch, problem.heads, s_q))
        self.assertEqual((out.dtype, lse.dtype), (problem.dtype, standin.float32))
        self.expect_out(out, want, problem.dtype)
        self.expect_lse(lse.transpose(1, 2), want_lse)

    def test_the_loop_of_its_readme(self):
        # One call for the metadata, then one a layer: other queries and caches, the same lengths.
        layers = [Problem([100, 64, 1], salt=layer) for layer in range(3)]
        s_q, h_q, h_kv = 1, layers[0].heads, 1
        tile_scheduler_metadata, num_splits = get_mla_metadata(layers[0].lens, s_q * h_q // h_kv, h_kv, h_q, False, None)
        for layer in layers:
            o, lse = flash_mla_with_kvcache(layer.batched(layer.q), layer.cache.unsqueeze(2), layer.table,
                                            layers[0].lens, 512, tile_scheduler_metadata, num_splits, layer.scale,
                                            causal=True)
            self.expect_right(layer, True, (o, lse))

    def test_its_dense_decoding_test(self):
        # Lengths drawn around a mean and some of them zero, one or two queries, causal or not; NaN behind each
        # request, 2147480000 behind its pages.
        random = Problem([1]).random
        for s_q in (1, 2):
            for causal in (False, True):
                lengths = [max(int(random.gauss(60, 30)), s_q) for _ in range(3)] + [0]
                problem = Problem(lengths, q_lens=[s_q] * 4, heads=4)
                with self.subTest(s_q=s_q, causal=causal, lengths=lengths):
                    self.expect_right(problem, causal, call(problem, causal))

    def test_the_default_scale_is_of_the_whole_head(self):
        problem = Problem([30])
        self.assertEqual(problem.scale, 576 ** -0.5)
        self.expect_right(problem, False, call(problem))

    def test_heads_of_512_without_rope_and_fp16(self):
        problem = Problem([70, 5], rope=0, dtype=standin.float16)
        self.expect_right(problem, False, call(problem, softmax_scale=problem.scale))

    def test_queries_that_lie_apart_are_copied_where_needed(self):
        problem = Problem([20, 33], q_lens=[2, 2], gap=8)
        wide = standin.empty((2, 3, 3, 584), standin.bfloat16)[:, :2, :, :576]  # a third token that is not meant
        wide.assign(problem.q.flat())
        self.expect_right(problem, False, call(problem, q=wide))
        with self.refused(ValueError, "contiguous()"):
            call(problem, causal=True, q=wide)

    def test_metadata_serves_other_lengths_of_the_same_shapes(self):
        meta, _ = get_mla_metadata()
        for lengths in ([100, 3], [5, 6], [64, 64]):
            problem = Problem(lengths, columns=3)
            self.expect_right(problem, False, call(problem, meta=meta))
        grown = Problem([300, 2])
        self.expect_right(grown, False, call(grown, meta=meta))

    def test_metadata_of_other_shapes_is_refused(self):
        meta, nothing = get_mla_metadata()
        self.assertIsInstance(meta, FlashMLASchedMeta)
        self.assertIsNone(nothing)
        self.assertFalse(meta.have_initialized)
        call(Problem([9, 9]), meta=meta)
        self.assertTrue(meta.have_initialized)
        self.assertEqual((meta.config.b, meta.config.s_q, meta.config.h_q, meta.config.page_block_size), (2, 1, 3, 64))
        for problem, word in ((Problem([9]), " b 2"), (Problem([9, 9], q_lens=[2, 2]), "s_q 1"),
                              (Problem([9, 9], heads=2), "h_q 3")):
            with self.subTest(word), self.refused(AssertionError, word):
                call(problem, meta=meta)
        with self.refused(AssertionError, "causal False"):
            call(Problem([9, 9]), causal=True, meta=meta)

    def test_what_is_not_dense_decode_is_refused_by_name(self):
        problem, some = Problem([9]), standin.tensor([1])
        for name, value in dict(is_fp8_kvcache=True, indices=some, attn_sink=some, extra_k_cache=some,
                                extra_indices_in_kvcache=some, topk_length=some, extra_topk_length=some).items():
            with self.subTest(name), self.refused(NotImplementedError, name, "flash_mla_with_kvcache"):
                call(problem, **{name: value})

    def test_wrong_tensors_are_refused_as_there(self):
        problem = Problem([9, 20])
        for changed, words in (
            (dict(block_table=standin.tensor([[0, 1], [2, 3]], standin.int64)), ("block_table", "int64", "int32")),
            (dict(cache_seqlens=standin.tensor([9, 20], standin.int64)), ("cache_seqlens", "int64")),
            (dict(k_cache=standin.empty((2, 64, 1, 576), standin.float16)), ("k_cache", "float16")),
            (dict(k_cache=standin.empty((2, 32, 1, 576), standin.bfloat16)), ("page_block_size 32", "64")),
            (dict(k_cache=standin.empty((2, 64, 2, 576), standin.bfloat16)), ("2 heads",)),
            (dict(k_cache=problem.cache), ("k_cache", "[2, 64, 576]")),
            (dict(head_dim_v=256), ("head_dim_v 256",)),
            (dict(q=standin.empty((2, 1, 3, 576), standin.float32)), ("q", "float32")),
            (dict(q=standin.empty((3, 1, 3, 576), standin.bfloat16)), ("cache_seqlens", "[2]", "[3]")),
        ):
            with self.subTest(words=words), self.refused(RuntimeError, *words):
                call(problem, **changed)
        with self.refused(AssertionError, "num_splits"):
            call(problem, num_splits=standin.tensor([0]))
        with self.refused(AssertionError, "get_mla_metadata"):
            call(problem, tile_scheduler_metadata=standin.tensor([0]))
        with self.refused(AssertionError, "block_table"):
            call(problem, block_table=None)

    def test_rows_without_keys_are_zero_and_minus_infinity(self):
        problem = Problem([0, 4])
        out, lse = call(problem)
        self.assertEqual(set(out[0].flat()), {0.0})
        self.assertEqual(set(lse[0].flat()), {-math.inf})


if __name__ == "__main__":
    cases.main()
