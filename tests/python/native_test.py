# SPDX-License-Identifier: Apache-2.0
"""latent.decode, Attention and Plan on host memory."""

import ctypes
import math
import threading

import cases
import latent
import standin
from problem import BOUNDS, Problem, ProblemTest


class Decode(ProblemTest):
    def expect_right(self, problem, q, **options):
        out, lse = latent.decode(q, problem.cache, problem.table, problem.lens, problem.scale, latent=problem.latent,
                                 return_lse=True, **options)
        want, want_lse = problem.expected()
        self.expect_out(out, want, problem.dtype)
        self.expect_lse(lse, want_lse)
        return out, lse

    def test_values_and_shapes(self):
        problem = Problem([100, 37, 64])
        out, lse = self.expect_right(problem, problem.batched(problem.q))
        self.assertEqual((out.shape, lse.shape), ((3, 1, 3, 512), (3, 1, 3)))
        self.assertEqual((out.dtype, lse.dtype), (standin.bfloat16, standin.float32))
        self.assertTrue(out.is_contiguous() and lse.is_contiguous())

    def test_every_dtype(self):
        for dtype in (standin.float32, standin.float16):
            problem = Problem([40], dtype=dtype)
            self.expect_right(problem, problem.batched(problem.q))

    def test_caches_of_codes(self):
        for dtype, scale in ((standin.float8_e4m3fn, 0.3), (standin.uint8, 1.0)):
            problem = Problem([40, 3])
            problem.store_as_codes(dtype, scale)
            self.expect_right(problem, problem.batched(problem.q), cache_scale=scale)
        with self.refused(latent.InvalidArgument, "cache_scale is 0"):
            latent.decode(problem.q, problem.cache, problem.table, problem.lens, problem.scale, cache_scale=0)

    def test_other_widths_and_pages(self):
        for latent_dim, rope, page in ((256, 32, 16), (512, 0, 128), (64, 8, 1)):
            problem = Problem([33, 1], latent=latent_dim, rope=rope, page=page)
            self.expect_right(problem, problem.batched(problem.q))

    def test_ragged_steps_and_rows_without_keys(self):
        problem = Problem([70, 2, 0, 9], q_lens=[2, 4, 1, 3])
        starts = standin.tensor(problem.starts)
        out, lse = self.expect_right(problem, problem.q, q_starts=starts)
        self.assertEqual(out[2].flat(), [0.0] * (3 * 512))  # 4 rows, 2 keys: the first two see none
        self.assertEqual(set(lse[6].flat()), {-math.inf})

    def test_rows_past_the_last_request_are_padding(self):
        problem = Problem([5, 0], q_lens=[1, 0])
        q = standin.empty((4, 3, 576), standin.bfloat16)  # NaN
        q[:1].assign(problem.q.flat())
        starts = standin.tensor(problem.starts)
        out = latent.decode(q, problem.cache, problem.table, problem.lens, problem.scale, q_starts=starts)
        self.expect_out(out[:1], problem.expected()[0], problem.dtype)
        self.assertEqual(set(out[1:].flat()), {0.0})

    def test_strides_of_everything(self):
        problem = Problem([50, 20], gap=24)
        out = standin.empty((2, 5, 600), standin.bfloat16)[:, 1:4, 8:520]
        lse = standin.empty((7, 2), standin.float32).transpose(0, 1)[:, 2:5]
        given = latent.decode(problem.q, problem.cache, problem.table, problem.lens, problem.scale, out=out, lse=lse)
        self.assertIs(given[0], out)
        self.assertIs(given[1], lse)
        want, want_lse = problem.expected()
        self.expect_out(out, want, problem.dtype)
        self.expect_lse(lse, want_lse)
        whole = standin.Tensor(out.memory, 0, (2, 5, 600), (3000, 600, 1), standin.bfloat16)
        self.assertTrue(all(math.isnan(x) for x in whole[:, 0].flat() + whole[:, 4].flat()))
        self.assertTrue(all(math.isnan(x) for x in whole[:, 1:4, :8].flat() + whole[:, 1:4, 520:].flat()))

    def test_queries_in_two_tensors(self):
        problem = Problem([30, 31])
        pair = problem.q[:, :, :512].contiguous(), problem.q[:, :, 512:].contiguous()
        self.expect_right(problem, pair)

    def test_f32_output_for_narrower_queries(self):
        problem = Problem([80])
        out = standin.empty((1, 3, 512), standin.float32)
        latent.decode(problem.q, problem.cache, problem.table, problem.lens, problem.scale, out=out, backend="ref")
        self.expect_out(out, problem.expected()[0], standin.float32)

    def test_a_forced_backend_gives_its_own_result(self):
        problem = Problem([64])
        self.expect_right(problem, problem.q, backend="ref")
        with self.refused(latent.Unsupported, "cuda_sm80"):
            self.expect_right(problem, problem.q, backend="cuda_sm80")
        with self.refused(ValueError, "'fast'", "ref"):
            self.expect_right(problem, problem.q, backend="fast")

    def test_a_workspace_of_ones_own(self):
        problem = Problem([64])
        attention = latent.Attention(3, 64, device="cpu", backend="ref")
        plan = attention.plan(max_tokens=1, max_seqs=1, max_kv_len=64)
        memory = standin.empty((plan.workspace_bytes + 255,), standin.uint8)
        out = plan.run(problem.q, problem.cache, problem.table, problem.lens, problem.scale, workspace=memory)
        self.expect_out(out, problem.expected()[0], problem.dtype)
        with self.refused(ValueError, "workspace", "100 bytes"):
            plan.run(problem.q, problem.cache, problem.table, problem.lens, problem.scale,
                     workspace=memory[:100])

    def test_a_plan_serves_steps_of_any_lengths_within_its_limits(self):
        attention = latent.Attention(3, 64, device="cpu")
        self.assertIn(attention.backend, ("cpu", "ref"))
        plan = attention.plan(max_tokens=4, max_seqs=2, max_kv_len=100)
        for lengths in ([100, 3], [1], [7, 90]):
            problem = Problem(lengths)
            out = plan.run(problem.q, problem.cache, problem.table, problem.lens, problem.scale)
            self.expect_out(out, problem.expected()[0], problem.dtype)
        problem = Problem([101])
        with self.refused(ValueError, "kv_lens[0] 101", "100"):
            plan.run(problem.q, problem.cache, problem.table, problem.lens, problem.scale)

    def test_threads_do_not_share_plans(self):
        problem, bits = Problem([65, 30]), []

        def work():
            for _ in range(5):
                bits.append(latent.decode(problem.q, problem.cache, problem.table, problem.lens, problem.scale).flat())

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(bits), 15)
        self.assertTrue(all(b == bits[0] for b in bits))

    def test_the_multi_head_form(self):
        # kv_b the identity for one head: keys and values are the latent.
        problem = Problem([20, 9], q_lens=[2, 3], heads=1, latent=32, rope=8, dtype=standin.float32)
        kv_b = standin.empty((64, 32), standin.float32).zero_()
        for i in range(64):
            kv_b.store(i * 32 + i % 32, 1.0)
        attention = latent.Attention(1, 64, 32, 8, "float32", device="cpu", nope=32, v=32, kv_b_dtype="float32")
        plan = attention.plan(max_tokens=5, max_seqs=2, max_kv_len=64)
        out = plan.run(problem.q, problem.cache, problem.table, problem.lens, problem.scale,
                       q_starts=standin.tensor(problem.starts), kv_b=kv_b)
        self.expect_out(out, problem.expected()[0], standin.float32)


class Refusals(ProblemTest):
    """contract: C7 C15"""

    def setUp(self):
        self.problem = Problem([70, 3])

    def decode(self, **changed):
        p = self.problem
        arguments = dict(q=p.q, cache=p.cache, block_table=p.table, kv_lens=p.lens, softmax_scale=p.scale) | changed
        return latent.decode(**arguments)

    def test_the_problem_itself_is_served(self):
        self.decode()

    def test_wrong_tensors_are_named(self):
        p = self.problem
        cuda = standin.Device("cuda", 0)
        wrong = [
            (dict(kv_lens=standin.tensor([70, 3], standin.int64)), ("kv_lens", "int64", "int32")),
            (dict(block_table=standin.tensor([[0, 1], [2, 3]], standin.int64)), ("block_table", "int64")),
            (dict(block_table=p.table[:1]), ("block_table", "[1, 3]", "[2, any]")),
            (dict(cache=standin.empty((4, 64, 576), standin.float16)[:, :, ::2]), ("cache",)),
            (dict(cache=standin.empty((4, 64, 1152), standin.bfloat16)[:, :, ::2]), ("cache", "contiguous last", "2")),
            (dict(cache=p.cache.unsqueeze(2)), ("cache", "4 dimensions")),
            (dict(cache=p.cache, latent=600), ("576", "600")),
            (dict(q=p.q.unsqueeze(0).unsqueeze(0)), ("q", "5 dimensions")),
            (dict(q=standin.empty((2, 3, 500), standin.bfloat16)), ("q", "[2, 3, 500]", "576")),
            (dict(q=standin.empty((3, 3, 576), standin.bfloat16)), ("3 rows for 2 requests", "q_starts")),
            (dict(q=standin.empty((2, 3, 576), standin.float64)), ("float64",)),
            (dict(out=standin.empty((2, 3, 500), standin.bfloat16)), ("out", "[2, 3, 500]")),
            (dict(lse=standin.empty((2, 3), standin.float16)), ("lse", "float16")),
            (dict(lse=standin.empty((3, 2), standin.float32)), ("lse", "[3, 2]")),
            (dict(q_starts=standin.tensor([0, 1], standin.int32)), ("q_starts", "[2]", "[3]")),
            (dict(q_starts=standin.tensor([0, 2, 1], standin.int32)), ("q_starts[2] 1",)),
            (dict(kv_lens=standin.tensor([70, -3])), ("kv_lens[1] -3",)),
            (dict(kv_lens=standin.tensor([7000, 3])), ("kv_lens[0] 7000",)),
            (dict(block_table=standin.tensor([[0, 9], [1, 1]])), ("block_table[0][1] is 9",)),
            (dict(softmax_scale=math.inf), ("softmax_scale is inf",)),
            (dict(kv_lens=standin.on_device(p.lens, cuda)), ("kv_lens is on cuda:0", "q on cpu")),
            (dict(q=standin.on_device(p.q, standin.Device("meta"))), ("meta",)),
        ]
        for changed, words in wrong:
            with self.subTest(words=words), self.refused(ValueError, *words):
                self.decode(**changed)

    def test_queries_that_cannot_be_flattened_say_what_to_do(self):
        q = standin.empty((2, 3, 2, 576), standin.bfloat16).transpose(1, 2)
        with self.refused(ValueError, "contiguous()"):
            self.decode(q=q)

    def test_descriptions_that_cannot_be_are_named(self):
        for changed, words in ((dict(heads=0), "num_heads 0"), (dict(rope=63), "rope_dim 63"),
                               (dict(page=-1), "page_tokens -1"), (dict(dtype="int32"), "dtype is int32"),
                               (dict(device="tpu"), "'tpu'"), (dict(out_dtype="float16"), "out_dtype f16")):
            with self.subTest(words=words), self.refused(ValueError, words):
                latent.Attention(**(dict(heads=2, page=64, device="cpu") | changed))
        with self.refused(NotImplementedError, "f8_e4m3"):
            latent.Attention(2, 64, dtype="float8_e4m3fn", cache_dtype="bfloat16", device="cpu")

    def test_errors_are_of_the_package_and_of_python(self):
        for kind in (latent.InvalidArgument, latent.LatentError, ValueError):
            with self.assertRaises(kind):
                self.decode(kv_lens=standin.tensor([70, -3]))


class Backends(ProblemTest):
    def test_every_backend_is_listed_with_its_reason(self):
        listed = {b.name: b for b in latent.backends(device="cpu")}
        self.assertTrue({"ref", "cpu", "cuda_sm80", "cuda_sm90"} <= set(listed))
        self.assertTrue(listed["ref"].can_serve and listed["cpu"].can_serve)
        self.assertEqual(listed["ref"].reason, "")
        self.assertFalse(listed["cuda_sm80"].can_serve)
        self.assertTrue(listed["cuda_sm80"].reason)

    def test_a_cpu_refuses_device_memory(self):
        for backend in latent.backends(device="cuda"):
            if backend.name in ("cpu", "ref"):
                self.assertIn("device memory", backend.reason)


class StandIn(ProblemTest):
    """The tensors that the tests stand on."""

    def test_bf16_rounds_to_nearest_even(self):
        values = [1.0, 1.00390625, 1.01171875, -2.5, 3.0e38]
        rounded = standin.empty((5,), standin.bfloat16).assign(values).flat()
        self.assertEqual(rounded[:4], [1.0, 1.0, 1.015625, -2.5])
        self.assertTrue(all(abs(a - b) <= 2 ** -8 * abs(b) for a, b in zip(rounded, values)))

    def test_slices_address_the_same_memory(self):
        t = standin.tensor([[1, 2, 3], [4, 5, 6]])
        self.assertEqual(t[1].tolist(), [4, 5, 6])
        self.assertEqual(t[:, 1:].tolist(), [[2, 3], [5, 6]])
        self.assertEqual(t.transpose(0, 1)[2].tolist(), [3, 6])
        t[:, 0].fill_(9)
        self.assertEqual(t.tolist(), [[9, 2, 3], [9, 5, 6]])
        self.assertEqual(ctypes.c_int32.from_address(t[1, 2:].data_ptr()).value, 6)

    def test_reshape_is_a_view_where_it_can_be(self):
        t = standin.tensor(list(range(24))).reshape(2, 3, 4)
        self.assertEqual(t.reshape(6, 4).strides, (4, 1))
        self.assertEqual(t[:, :, :2].reshape(2, 1, 3, 2).strides[2:], (4, 1))
        self.assertEqual(t[:, :, :2].reshape(6, 2).strides, (4, 1))
        self.assertEqual(t[:, :2].reshape(2, 8).strides, (12, 1))
        moved = t.transpose(0, 1).reshape(6, 4)
        self.assertNotEqual(moved.data_ptr(), t.data_ptr())
        self.assertEqual(moved[1].tolist(), [12, 13, 14, 15])

    def test_new_memory_is_poisoned(self):
        for dtype in BOUNDS:
            self.assertTrue(all(math.isnan(x) for x in standin.empty((3,), dtype).flat()))


if __name__ == "__main__":
    cases.main()
