# SPDX-License-Identifier: Apache-2.0
"""FlashMLA's interface to dense decode.

Differences: queries of several tokens without `causal` need their heads and tokens to lie in one run of memory or are
copied; rows without keys have the LSE -inf (FlashMLA: +inf); the scheduler's metadata holds a plan that does not
depend on the lengths, so it may be kept when they change, and a captured graph needs nothing but new lengths."""

import dataclasses
from typing import Any, Optional

from .. import _decode, _tensors
from ._refuse import refuse

FUNCTION = "flash_mla_with_kvcache"


@dataclasses.dataclass
class FlashMLASchedMeta:
    """What flash_mla_with_kvcache keeps between calls of the same shapes."""

    @dataclasses.dataclass
    class Config:
        b: int
        s_q: int
        h_q: int
        page_block_size: int
        h_k: int

        causal: bool
        is_fp8_kvcache: bool
        topk: Optional[int]

        extra_page_block_size: Optional[int]
        extra_topk: Optional[int]

    have_initialized: bool = False
    config: Optional[Config] = None
    tile_scheduler_metadata: Any = None  # a latent.Plan here
    num_splits: Any = None


def get_mla_metadata(*args, **kwargs):
    """(empty scheduler metadata, None). Takes the arguments of older versions and needs none."""
    return FlashMLASchedMeta(), None


def flash_mla_with_kvcache(
    q,
    k_cache,
    block_table,
    cache_seqlens,
    head_dim_v,
    tile_scheduler_metadata,
    num_splits=None,
    softmax_scale=None,
    causal=False,
    is_fp8_kvcache=False,
    indices=None,
    attn_sink=None,
    extra_k_cache=None,
    extra_indices_in_kvcache=None,
    topk_length=None,
    extra_topk_length=None,
):
    """q [batch, s_q, heads, 576 or 512]; k_cache [pages, 64, 1, 576 or 512]; block_table [batch, columns] and
    cache_seqlens [batch] int32. Returns out [batch, s_q, heads, 512] and the LSE [batch, heads, s_q], fp32."""
    meta = tile_scheduler_metadata
    assert isinstance(meta, FlashMLASchedMeta), "tile_scheduler_metadata must come from get_mla_metadata"
    assert num_splits is None, "num_splits must be None"
    refuse(FUNCTION, "dense caches in bf16 and fp16 only", is_fp8_kvcache=(is_fp8_kvcache, False))
    refuse(FUNCTION, "dense attention only", indices=(indices, None), attn_sink=(attn_sink, None),
           extra_k_cache=(extra_k_cache, None), extra_indices_in_kvcache=(extra_indices_in_kvcache, None),
           topk_length=(topk_length, None), extra_topk_length=(extra_topk_length, None))
    assert block_table is not None and cache_seqlens is not None, "block_table and cache_seqlens must be given"
    if softmax_scale is None:
        softmax_scale = q.shape[-1] ** (-0.5)
    _check_tensors(q, k_cache, block_table, cache_seqlens, head_dim_v)
    _check_metadata(meta, _config(q, k_cache, causal))
    out, lse = _attend(q, k_cache, block_table, cache_seqlens, head_dim_v, softmax_scale, causal, meta)
    meta.have_initialized = True
    return out, lse


def _config(q, k_cache, causal):
    return FlashMLASchedMeta.Config(q.shape[0], q.shape[1], q.shape[2], k_cache.shape[1], k_cache.shape[2], causal,
                                    False, None, None, None)


def _check_tensors(q, k_cache, block_table, cache_seqlens, head_dim_v):
    _tensors.expect("q", q, (None, None, None, None), ("bfloat16", "float16"), RuntimeError)
    batch, _, _, head_dim = q.shape
    dtype = _tensors.dtype_name(q.dtype)
    _tensors.expect("k_cache", k_cache, (None, None, None, head_dim), (dtype,), RuntimeError)
    _tensors.expect("cache_seqlens", cache_seqlens, (batch,), ("int32",), RuntimeError)
    _tensors.expect("block_table", block_table, (batch, None), ("int32",), RuntimeError)
    _tensors.same_device({"q": q, "k_cache": k_cache, "block_table": block_table, "cache_seqlens": cache_seqlens},
                         RuntimeError)
    if head_dim not in (576, 512):
        raise RuntimeError(f"q has head_dim {head_dim}; only 576 and 512 are supported")
    if head_dim_v != 512:
        raise RuntimeError(f"head_dim_v {head_dim_v}: only 512 is supported")
    if k_cache.shape[1] != 64:
        raise RuntimeError(f"k_cache has page_block_size {k_cache.shape[1]}; it must be 64")
    if k_cache.shape[2] != 1:
        raise RuntimeError(f"k_cache has {k_cache.shape[2]} heads; a latent cache has 1")
    if batch == 0:
        raise RuntimeError("q has batch size 0; it must be positive")


def _check_metadata(meta, config):
    if not meta.have_initialized:
        meta.config = config
        return
    for field in dataclasses.fields(config):
        known, given = getattr(meta.config, field.name), getattr(config, field.name)
        assert known == given, (f"tile_scheduler_metadata was made with {field.name} {known}, and this call has "
                                f"{given}: get new metadata for other shapes")


def _attend(q, k_cache, block_table, cache_seqlens, width, scale, causal, meta):
    batch, s_q, heads, head_dim = q.shape
    out = q.new_empty((batch, s_q, heads, width))
    lse = q.new_empty((batch, s_q, heads), dtype=_tensors.dtype_called(q, "float32"))
    call = {"q": q, "out": out, "lse": lse}
    if s_q > 1 and not causal:
        # Every token sees every key: tokens are as good as further heads of one token.
        call = {"q": _tokens_as_heads(q), "out": out.reshape(batch, 1, s_q * heads, width),
                "lse": lse.reshape(batch, 1, s_q * heads)}
    cache = k_cache[:, :, 0]
    plan = _plan(meta, call["q"], cache, block_table.shape[1] * cache.shape[1], width)
    _decode.decode(cache=cache, block_table=block_table, kv_lens=cache_seqlens, softmax_scale=scale, latent=width,
                   plan=plan, **call)
    return out, lse.transpose(1, 2)


def _tokens_as_heads(q):
    batch, s_q, heads, head_dim = q.shape
    if _tensors.View.of(q).join(1) is None:
        q = q.contiguous()
    return q.reshape(batch, 1, s_q * heads, head_dim)


def _plan(meta, q, cache, max_kv_len, width):
    """The metadata's plan; a new one if it has none or the block table has grown."""
    plan = meta.tile_scheduler_metadata
    if plan is None or plan.max_kv_len < max_kv_len:
        limits = _decode.limits_for(q.shape[0] * q.shape[1], q.shape[0], max_kv_len)
        with _tensors.device_guard(q):
            plan = _decode.describe(q, cache, width).plan(**limits)
        meta.tile_scheduler_metadata = plan
    return plan
