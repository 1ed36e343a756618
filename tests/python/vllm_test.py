# SPDX-License-Identifier: Apache-2.0
"""vLLM's calls on host memory."""

import math
from unittest import mock

import cases
import standin
from latent.compat import vllm
from latent.compat.vllm import sm100_cutlass_mla_decode, sm100_cutlass_mla_get_workspace_size
from problem import Problem, ProblemTest


class Call:
    """The operands of vLLM's own test: queries in two tensors, outputs of 128 heads, a workspace as large as said."""

    def __init__(self, problem, with_lse=True):
        self.problem, batch = problem, len(problem.kv_lens)
        size = sm100_cutlass_mla_get_workspace_size(max(problem.kv_lens) * problem.page, batch, 132, num_kv_splits=1)
        self.out = standin.empty((batch, 128, 512), problem.dtype)
        self.lse = standin.empty((batch, 128) if with_lse else (0,), standin.float32)
        self.arguments = dict(
            out=self.out, lse=self.lse, q_nope=problem.q[:, :, :512].contiguous(),
            q_pe=problem.q[:, :, 512:].contiguous(), kv_c_and_k_pe_cache=problem.cache, seq_lens=problem.lens,
            page_table=problem.table, workspace=standin.empty((size,), standin.uint8), scale=problem.scale,
            num_kv_splits=1)

    def __call__(self, **changed):
        return sm100_cutlass_mla_decode(**(self.arguments | changed))


class Vllm(ProblemTest):
    def setUp(self):
        no_gpu = mock.patch.object(vllm, "backends", return_value=[])  # these tensors are on a CPU in any case
        no_gpu.start()
        self.addCleanup(no_gpu.stop)

    def expect_right(self, call):
        heads = call.problem.heads
        want, want_lse = call.problem.expected()
        self.expect_out(call.out[:, :heads], want, call.problem.dtype)
        self.assertEqual(set(call.out[:, heads:].flat()), {0.0})
        if call.lse.numel():
            self.expect_lse(call.lse[:, :heads], want_lse)
            self.assertEqual(set(call.lse[:, heads:].flat()), {-math.inf})

    def test_its_decode_test(self):
        call = Call(Problem([150, 40], page=128))
        self.assertIs(call(), call.out)
        self.expect_right(call)

    def test_its_arguments_go_by_position(self):
        call = Call(Problem([9], page=128))
        sm100_cutlass_mla_decode(*call.arguments.values())
        self.expect_right(call)

    def test_pages_of_64_with_an_even_table(self):
        call = Call(Problem([150, 40], page=64, columns=4))
        call()
        self.expect_right(call)
        odd = Call(Problem([100], page=64, columns=3))
        with self.refused(RuntimeError, "pages of 64", "3 columns"):
            odd()

    def test_an_empty_lse_is_none(self):
        call = Call(Problem([30, 129], page=128), with_lse=False)
        call()
        self.expect_right(call)

    def test_padded_requests_become_zero(self):
        call = Call(Problem([5, 0, 0], page=128))
        call()
        self.expect_right(call)
        self.assertEqual(set(call.out[1:].flat()), {0.0})

    def test_queries_may_stand_in_a_wider_buffer(self):
        # As vLLM pads them: 128 heads of room, the first of them meant.
        problem = Problem([60, 61], page=128)
        wide = standin.empty((2, 128, 512), standin.bfloat16)[:, :3]
        wide.assign(problem.q[:, :, :512].flat())
        call = Call(problem)
        call(q_nope=wide)
        self.expect_right(call)

    def test_any_num_kv_splits_gives_the_same_bits(self):
        call = Call(Problem([300], page=128))
        bits = [call(num_kv_splits=splits).flat() for splits in (-1, 1, 8)]
        self.assertEqual(bits[0], bits[1])
        self.assertEqual(bits[0], bits[2])

    def test_the_workspace_size_covers_smaller_batches(self):
        sizes = [sm100_cutlass_mla_get_workspace_size(4096, batch, 0, -1) for batch in (1, 2, 7, 64)]
        self.assertEqual(sizes, sorted(sizes))
        call = Call(Problem([40], page=128))
        with self.refused(RuntimeError, "workspace", "16 bytes"):
            call(workspace=standin.empty((16,), standin.uint8))

    def test_wrong_tensors_are_refused(self):
        call = Call(Problem([40, 2], page=128))
        for changed, words in (
            (dict(q_nope=standin.empty((2, 3, 512), standin.float32)), ("q_nope", "float32")),
            (dict(q_nope=standin.empty((2, 3, 256), standin.bfloat16)), ("q_nope", "512")),
            (dict(q_pe=standin.empty((2, 4, 64), standin.bfloat16)), ("q_pe", "[2, 4, 64]")),
            (dict(kv_c_and_k_pe_cache=standin.empty((2, 128, 576), standin.float16)), ("kv_c_and_k_pe_cache",)),
            (dict(seq_lens=standin.tensor([40, 2], standin.int64)), ("seq_lens", "int64")),
            (dict(page_table=standin.tensor([[0], [1]], standin.int64)), ("page_table", "int64")),
            (dict(out=standin.empty((2, 3, 512), standin.bfloat16)), ("out", "128")),
            (dict(lse=standin.empty((2, 3), standin.float32)), ("lse", "128")),
        ):
            with self.subTest(words=words), self.refused(RuntimeError, *words):
                call(**changed)


if __name__ == "__main__":
    cases.main()
