# SPDX-License-Identifier: Apache-2.0
"""The native interface: describe attention, plan a step, run its layers. See include/latent/attention.h for what
is computed; shapes and dtypes below are those of the tensors that go in."""

import ctypes
import dataclasses

from . import _library, _tensors
from ._library import library
from ._layer import Layer
from .errors import InvalidArgument


@dataclasses.dataclass(frozen=True)
class Backend:
    name: str
    is_built: bool
    can_serve: bool
    reason: str  # why it cannot; "" if it can


def _dtype_code(name, dtype):
    text = _tensors.dtype_name(dtype)
    if text not in _library.DTYPES:
        raise InvalidArgument(f"{name} is {text}; it may be {', '.join(_library.DTYPES)}")
    return _library.DTYPES[text]


def _desc(heads, page, latent, rope, dtype, cache_dtype, out_dtype, device, nope, v, kv_b_dtype):
    multi_head = v != 0
    if device not in ("cpu", "cuda"):
        raise InvalidArgument(f"device '{device}': it may be 'cpu' or 'cuda'")
    return _library.Desc(
        form=_library.MULTI_HEAD if multi_head else _library.ABSORBED,
        memory=_library.DEVICE if device == "cuda" else _library.HOST,
        num_heads=heads, latent_dim=latent, rope_dim=rope, nope_dim=nope, v_dim=v, page_tokens=page,
        q_dtype=_dtype_code("dtype", dtype), cache_dtype=_dtype_code("cache_dtype", cache_dtype or dtype),
        out_dtype=_dtype_code("out_dtype", out_dtype) if out_dtype else 0,
        kv_b_dtype=_dtype_code("kv_b_dtype", kv_b_dtype) if kv_b_dtype else 0)


def backends(heads=128, page=64, latent=512, rope=64, dtype="bfloat16", cache_dtype=None, out_dtype=None,
             device="cuda", nope=0, v=0, kv_b_dtype=None):
    """Every backend, best first, and for each that cannot serve the description the reason."""
    desc = _desc(heads, page, latent, rope, dtype, cache_dtype, out_dtype, device, nope, v, kv_b_dtype)
    found = []
    for index in range(library().num_backends()):
        info = _library.BackendInfo()
        library().check(library().query_backend(index, ctypes.byref(desc), ctypes.byref(info)))
        found.append(Backend(info.name.decode(), bool(info.is_built), bool(info.can_serve), info.reason.decode()))
    return found


class Attention:
    """A description and the backend that serves it. Usable by any thread.

    heads, page: query heads (any number, never padded) and tokens a page; latent, rope: widths of the two parts of
    a cache row; dtype: of the queries, the cache (unless cache_dtype) and the output (unless out_dtype, which on
    a CPU may be float32). With v (and nope) it is the multi-head form, which needs kv_b. backend: None chooses the
    best, or what LATENT_ATTENTION_BACKEND names."""

    def __init__(self, heads, page, latent=512, rope=64, dtype="bfloat16", cache_dtype=None, out_dtype=None,
                 device="cuda", backend=None, nope=0, v=0, kv_b_dtype=None):
        self.heads, self.page, self.latent, self.rope, self.nope, self.v = heads, page, latent, rope, nope, v
        self.dtype = _tensors.dtype_name(dtype)
        self.cache_dtype = _tensors.dtype_name(cache_dtype or dtype)
        self.out_dtype = _tensors.dtype_name(out_dtype or dtype)
        self.device = device
        desc = _desc(heads, page, latent, rope, dtype, cache_dtype, out_dtype, device, nope, v, kv_b_dtype)
        self._handle = ctypes.c_void_p()
        self._library = library()
        forced = backend.encode() if backend else None
        self._library.check(self._library.create(ctypes.byref(desc), forced, ctypes.byref(self._handle)))

    def __del__(self):
        if getattr(self, "_handle", None):
            self._library.destroy(self._handle)

    @property
    def backend(self):
        return self._library.backend(self._handle).decode()

    def workspace_bytes(self, max_tokens, max_seqs, max_kv_len, num_threads=0, deterministic=False):
        """Scratch that a plan with these limits needs."""
        limits = _library.Limits(max_tokens=max_tokens, max_seqs=max_seqs, max_kv_len=max_kv_len,
                                 num_threads=num_threads, deterministic=deterministic)
        size = ctypes.c_size_t()
        self._library.check(self._library.workspace_size(self._handle, ctypes.byref(limits), ctypes.byref(size)))
        return size.value

    def plan(self, max_tokens, max_seqs, max_kv_len, num_threads=0, deterministic=False):
        """A Plan for steps of at most so many query rows, requests and cached tokens a request."""
        return Plan(self, max_tokens, max_seqs, max_kv_len, num_threads, deterministic)


class Plan:
    """The division of a step's work. For one stream (or thread) at a time; keep it as long as a graph that captured
    its run()."""

    def __init__(self, attention, max_tokens, max_seqs, max_kv_len, num_threads=0, deterministic=False):
        self.attention, self.max_kv_len = attention, max_kv_len
        self.workspace_bytes = attention.workspace_bytes(max_tokens, max_seqs, max_kv_len, num_threads, deterministic)
        limits = _library.Limits(max_tokens=max_tokens, max_seqs=max_seqs, max_kv_len=max_kv_len,
                                 num_threads=num_threads, deterministic=deterministic)
        self._handle = ctypes.c_void_p()
        self._library = library()
        self._library.check(self._library.plan_create(attention._handle, ctypes.byref(limits),
                                                      ctypes.byref(self._handle)))
        self._planned = None

    def __del__(self):
        if getattr(self, "_handle", None):
            self._library.plan_destroy(self._handle)

    def run(self, q, cache, block_table, kv_lens, softmax_scale, q_starts=None, max_q_len=None, out=None, lse=None,
            return_lse=False, workspace=None, kv_b=None, cache_scale=1.0):
        """One layer of a step; returns out, or (out, lse) if lse is given or asked for.

        q            [tokens, heads, latent + rope], [batch, q_len, heads, latent + rope], or a pair (q_nope, q_pe)
        cache        [pages, page, latent + rope], any stride between pages and tokens; float8_e4m3fn is multiplied by
                     cache_scale. uint8: [pages, page, bytes], rows of latent e4m3 codes, a float scale for each 128
                     of them, and the rope key in bfloat16 (656 bytes for 512 and 64)
        block_table  [batch, columns] int32; kv_lens [batch] int32, this step's tokens included
        q_starts     [batch + 1] int32 for ragged steps (q of 3 dimensions); else every request has as many rows.
                     On a device give max_q_len, too: the host does not read device memory
        out, lse     written if given: [.., heads, latent] and [.., heads] float32, natural logarithm; any strides
                     but a contiguous last dimension of out. Rows without keys become 0 and -inf
        workspace    at least workspace_bytes of memory where the tensors live; else allocated"""
        layer = Layer(self.attention, q, cache, block_table, kv_lens, softmax_scale, q_starts, max_q_len, kv_b,
                      cache_scale)
        out, lse = layer.outputs(out, lse, return_lse)
        layer.run(self, workspace)
        return out if lse is None else (out, lse)

    def step(self, num_seqs, q_len, kv_lens=None, q_starts=None):
        """Plans for lengths in host memory (addresses of int32); on a device kv_lens may be left out."""
        key = (num_seqs, q_len, q_starts) if kv_lens is None else None
        if key is not None and key == self._planned:
            return
        self._planned = None
        step = _library.Step(num_seqs=num_seqs, max_q_len=q_len, q_starts=q_starts, kv_lens=kv_lens)
        self._library.check(self._library.plan_step(self._handle, ctypes.byref(step)))
        self._planned = key

    def prepare_capture(self):
        self._library.check(self._library.prepare_capture(self._handle))

    def prepare_replay(self, num_seqs, q_len, kv_lens=None, q_starts=None):
        """Before a captured run is replayed with other lengths."""
        step = _library.Step(num_seqs=num_seqs, max_q_len=q_len, q_starts=q_starts, kv_lens=kv_lens)
        self._library.check(self._library.prepare_replay(self._handle, ctypes.byref(step)))

    def launch(self, operands, workspace, num_bytes, stream):
        self._library.check(self._library.run(self._handle, ctypes.byref(operands), workspace, num_bytes, stream))
