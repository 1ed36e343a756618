# SPDX-License-Identifier: Apache-2.0
"""Attention in one call: descriptions and plans are kept behind the scenes."""

import threading

from . import _tensors
from ._layer import WORKSPACE_ALIGNMENT, Layer, cache_width
from .attention import Attention
from .errors import InvalidArgument

_lock = threading.Lock()
_attentions = {}
_plans = {}


def _ceil_power(value):
    return 1 << max(0, value - 1).bit_length()


def attention_for(**description):
    """A shared Attention of this description."""
    key = tuple(sorted(description.items()))
    with _lock:
        if key not in _attentions:
            _attentions[key] = Attention(**description)
        return _attentions[key]


def limits_for(num_tokens, num_seqs, max_kv_len):
    """Limits that many steps share: each rounded up to a power of two."""
    return {"max_tokens": _ceil_power(num_tokens), "max_seqs": _ceil_power(num_seqs),
            "max_kv_len": _ceil_power(max_kv_len)}


def plan_for(attention, like, num_tokens, num_seqs, max_kv_len):
    """A Plan of this thread, of the tensor's current stream, and apart from those of captured graphs."""
    limits = limits_for(num_tokens, num_seqs, max_kv_len)
    key = (id(attention), tuple(limits.values()), _tensors.place(like), _tensors.stream(like),
           _tensors.is_capturing(like), threading.get_ident())
    with _lock:
        plan = _plans.get(key)
    if plan is None:
        with _tensors.device_guard(like):
            plan = attention.plan(**limits)
        with _lock:
            _plans[key] = plan
    return plan


def describe(q, cache, latent, out=None, backend=None):
    """The shared Attention for queries (a tensor or a pair), a cache [pages, page, columns] and an output."""
    nope = q[0] if isinstance(q, tuple) else q
    if len(cache.shape) != 3:
        raise InvalidArgument(f"cache has {len(cache.shape)} dimensions; it is [pages, page, latent + rope]")
    dtype = _tensors.dtype_name(cache.dtype)
    rope = cache.shape[-1] - cache_width(latent, 0, dtype)
    if rope < 0:
        raise InvalidArgument(f"cache has {cache.shape[-1]} columns, and the latent alone "
                              f"{cache_width(latent, 0, dtype)}")
    rope = rope // 2 if dtype == "uint8" else rope
    return attention_for(heads=nope.shape[-2], page=cache.shape[1], latent=latent, rope=rope,
                         dtype=_tensors.dtype_name(nope.dtype), cache_dtype=dtype,
                         out_dtype=_tensors.dtype_name((nope if out is None else out).dtype),
                         device=_tensors.memory(nope), backend=backend)


def decode(q, cache, block_table, kv_lens, softmax_scale, latent=512, q_starts=None, max_q_len=None, out=None,
           lse=None, return_lse=False, workspace=None, backend=None, plan=None, cache_scale=1.0):
    """Attention in the latent with plans kept behind the scenes; arguments as in Plan.run.

    latent: columns of q and cache that are the latent; the rest is the rope key. A pair (q_nope, q_pe) says it
    itself. plan: a Plan of your own, for instance one for each captured graph. Without one, graphs that were captured
    on the same stream share one and must not be replayed at the same time."""
    if isinstance(q, tuple):
        latent = q[0].shape[-1]
    attention = plan.attention if plan else describe(q, cache, latent, out, backend)
    layer = Layer(attention, q, cache, block_table, kv_lens, softmax_scale, q_starts, max_q_len,
                  cache_scale=cache_scale)
    out, lse = layer.outputs(out, lse, return_lse)
    layer.run(plan or plan_for(attention, layer.like, layer.num_tokens, layer.num_seqs,
                               max(1, layer.table.shape[1] * attention.page)), workspace)
    return out if lse is None else (out, lse)
