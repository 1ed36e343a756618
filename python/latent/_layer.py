# SPDX-License-Identifier: Apache-2.0
"""The operands of one layer: tensors checked and turned into addresses and strides."""

import threading

from . import _library, _tensors
from ._tensors import View
from .errors import InvalidArgument

WORKSPACE_ALIGNMENT = 256


def cache_width(latent, rope, dtype):
    """Elements in a row of the cache; bytes of uint8 are codes, a float for each 128 of them, and a bfloat16 rope."""
    return latent + latent // 128 * 4 + rope * 2 if dtype == "uint8" else latent + rope


class Layer:
    """Checked operands of one layer, as addresses and strides."""

    def __init__(self, attention, q, cache, block_table, kv_lens, scale, q_starts, max_q_len, kv_b=None,
                 cache_scale=1.0):
        self.attention, self.scale, self.kv_b, self.cache_scale = attention, scale, kv_b, cache_scale
        if not cache_scale > 0:
            raise InvalidArgument(f"cache_scale is {cache_scale}; it is positive")
        self.like = q[0] if isinstance(q, tuple) else q
        tensors = {"q": self.like, "cache": cache, "block_table": block_table, "kv_lens": kv_lens}
        tensors |= {"q_pe": q[1]} if isinstance(q, tuple) else {}
        tensors |= {"q_starts": q_starts} if q_starts is not None else {}
        _tensors.same_device(tensors)
        if _tensors.memory(self.like) != attention.device:
            raise InvalidArgument(f"q is on {self.like.device}, and this attention was made for '{attention.device}'")
        self._read_queries(q)
        width = cache_width(attention.latent, attention.rope, attention.cache_dtype)
        _tensors.expect("cache", cache, (None, attention.page, width), (attention.cache_dtype,))
        _tensors.expect("kv_lens", kv_lens, (None,), ("int32",))
        self.num_seqs = kv_lens.shape[0]
        _tensors.expect("block_table", block_table, (self.num_seqs, None), ("int32",))
        self.cache, self.table, self.kv_lens = View.of(cache), View.of(block_table), View.of(kv_lens)
        self._read_starts(q_starts, max_q_len)

    def _read_queries(self, q):
        a = self.attention
        nope = a.nope if a.v else a.latent
        pair = q if isinstance(q, tuple) else (q,)
        widths = (nope, a.rope) if isinstance(q, tuple) else (nope + a.rope,)
        views = []
        for name, tensor, width in zip(("q_nope", "q_pe") if len(pair) > 1 else ("q",), pair, widths):
            lead = (None,) * (len(tensor.shape) - 2) + (a.heads, width)
            if len(tensor.shape) not in (3, 4):
                raise InvalidArgument(f"{name} has {len(tensor.shape)} dimensions; it has 3 or 4")
            _tensors.expect(name, tensor, lead, (a.dtype,))
            view = View.of(tensor)
            views.append(_tensors.joined(name, view, 0) if len(view.shape) == 4 else view)
        self.lead = tuple(self.like.shape[:-2])
        if len(views) == 1:
            views = [views[0].narrow(0, nope), views[0].narrow(nope, a.rope)]
        self.q_nope, self.q_pe = views
        self.num_tokens = self.q_nope.shape[0]
        if self.q_pe.shape[0] != self.num_tokens:
            raise InvalidArgument(f"q_pe has {self.q_pe.shape[0]} rows, and q_nope {self.num_tokens}")

    def _read_starts(self, q_starts, max_q_len):
        self.starts_tensor, self.host_starts = q_starts, None
        if q_starts is not None:
            _tensors.expect("q_starts", q_starts, (self.num_seqs + 1,), ("int32",))
            if _tensors.is_cuda(q_starts):
                if max_q_len is None:
                    raise InvalidArgument("q_starts in device memory needs max_q_len: the host does not read it")
            else:
                self.host_starts = q_starts.data_ptr()
            self.q_len = max_q_len or 0
            return
        if len(self.lead) == 2 and self.lead[0] != self.num_seqs:
            raise InvalidArgument(f"q holds {self.lead[0]} requests, and kv_lens {self.num_seqs}")
        if self.num_seqs == 0 or self.num_tokens % self.num_seqs != 0:
            raise InvalidArgument(f"q has {self.num_tokens} rows for {self.num_seqs} requests: give q_starts")
        self.q_len = self.num_tokens // self.num_seqs
        self.starts_tensor = _uniform_starts(self.like, self.num_seqs, self.q_len)

    def outputs(self, out, lse, return_lse):
        """Checks or allocates out and lse, and returns them."""
        a = self.attention
        width = a.v if a.v else a.latent
        lead = self.lead
        if out is None:
            out = self.like.new_empty(lead + (a.heads, width), dtype=_tensors.dtype_called(self.like, a.out_dtype))
        if lse is None and return_lse:
            lse = self.like.new_empty(lead + (a.heads,), dtype=_tensors.dtype_called(self.like, "float32"))
        _tensors.expect("out", out, lead + (a.heads, width), (a.out_dtype,))
        _tensors.same_device({"q": self.like, "out": out} | ({"lse": lse} if lse is not None else {}))
        self.out = View.of(out)
        self.lse = None
        if lse is not None:
            self.lse = View.of(lse)
            if self.lse.shape != lead + (a.heads,) or self.lse.dtype != "float32":
                raise InvalidArgument(f"lse has shape {list(lse.shape)} and dtype {self.lse.dtype}; it must be "
                                      f"{list(lead + (a.heads,))} of float32")
        if len(lead) == 2:
            self.out = _tensors.joined("out", self.out, 0)
            self.lse = self.lse and _tensors.joined("lse", self.lse, 0)
        return out, lse

    def operands(self):
        o = _library.Operands(
            num_tokens=self.num_tokens, num_seqs=self.num_seqs, num_pages=self.cache.shape[0],
            max_pages=self.table.shape[1], softmax_scale=self.scale, cache_scale=self.cache_scale,
            q_nope=self.q_nope.address, q_nope_token_stride=self.q_nope.strides[0],
            q_nope_head_stride=self.q_nope.strides[1],
            q_pe=self.q_pe.address, q_pe_token_stride=self.q_pe.strides[0], q_pe_head_stride=self.q_pe.strides[1],
            cache=self.cache.address, cache_page_stride=self.cache.strides[0],
            cache_token_stride=self.cache.strides[1],
            q_starts=self.starts_tensor.data_ptr(), kv_lens=self.kv_lens.address,
            block_table=self.table.address, block_table_stride=self.table.strides[0],
            out=self.out.address, out_token_stride=self.out.strides[0], out_head_stride=self.out.strides[1])
        if self.lse is not None:
            o.lse, o.lse_token_stride, o.lse_head_stride = self.lse.address, *self.lse.strides
        if self.kv_b is not None:
            o.kv_b, o.kv_b_row_stride = self.kv_b.data_ptr(), self.kv_b.stride(0)
        return o

    def run(self, plan, workspace):
        like = self.like
        with _tensors.device_guard(like):
            on_device = _tensors.is_cuda(like)
            plan.step(self.num_seqs, self.q_len, None if on_device else self.kv_lens.address, self.host_starts)
            if _tensors.is_capturing(like):
                plan.prepare_capture()
            memory, address, num_bytes = _workspace(like, workspace, plan.workspace_bytes)
            plan.launch(self.operands(), address, num_bytes, _tensors.stream(like))
            del memory  # its allocator keeps the order of the stream


def _workspace(like, given, needed):
    """(owner, aligned address, usable bytes) of a given tensor or of a new one."""
    if given is None:
        given = like.new_empty((needed + WORKSPACE_ALIGNMENT,), dtype=_tensors.dtype_called(like, "uint8"))
    size = given.numel() * _tensors.ITEM_BYTES[_tensors.dtype_name(given.dtype)]
    address = given.data_ptr()
    skipped = -address % WORKSPACE_ALIGNMENT
    if size - skipped < needed:
        raise InvalidArgument(f"workspace has {size} bytes; this step needs {needed + skipped}")
    return given, address + skipped, size - skipped


_lock = threading.Lock()
_starts = {}


def _uniform_starts(like, num_seqs, q_len):
    """[0, q_len, 2 * q_len, ..] beside a tensor. Kept, except where a captured graph would be the one to fill it."""
    key = (_tensors.place(like), type(like.dtype).__module__, _tensors.stream(like), num_seqs, q_len)
    known = _starts.get(key)
    if known is None:
        known = _tensors.module_of(like).arange(0, (num_seqs + 1) * max(q_len, 1), max(q_len, 1),
                                                dtype=_tensors.dtype_called(like, "int32"), device=like.device)
        if q_len == 0:
            known.zero_()
        if not _tensors.is_capturing(like):
            with _lock:
                _starts[key] = known
    return known
