# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's batch decode over a latent cache (flashinfer.mla).

Differences: the work is always this library's, whatever `backend` names; `workspace_buffer` need not be zero, and
what it held is lost, so it is not to be shared with kernels that keep counters there; the LSE is a natural logarithm,
as that of FlashInfer's cute-dsl kernels is, and is refused for backend="trtllm-gen", whose LSE has base 2. enable_pdl
and is_var_seq are hints and have no effect; max_seq_len is not needed."""

from .. import _decode, _tensors
from ._refuse import refuse

FUNCTION = "trtllm_batch_decode_with_kv_cache_mla"
BACKENDS = ("auto", "trtllm-gen", "cute-dsl", "xqa")
PAGES = (32, 64)


def trtllm_batch_decode_with_kv_cache_mla(
    query,
    kv_cache,
    workspace_buffer,
    qk_nope_head_dim,
    kv_lora_rank,
    qk_rope_head_dim,
    block_tables,
    seq_lens,
    max_seq_len,
    sparse_mla_top_k=0,
    out=None,
    bmm1_scale=1.0,
    bmm2_scale=1.0,
    sinks=None,
    skip_softmax_threshold_scale_factor=None,
    enable_pdl=None,
    backend="auto",
    is_var_seq=True,
    uses_shared_paged_kv_idx=True,
    lse=None,
    return_lse=False,
    cute_dsl_impl="auto",
    kv_scale_format="auto",
    cum_seq_lens_q=None,
    max_q_len=None,
    multi_ctas_kv_counter_buffer=None,
):
    """query [batch, q_len, heads, kv_lora_rank + qk_rope_head_dim], or with cum_seq_lens_q [rows, heads, ..];
    kv_cache [pages, page, ..] or [pages, 1, page, ..] with pages of 32 or 64; block_tables [batch, columns] and
    seq_lens [batch] int32. bmm1_scale is the softmax's scale. Returns out [batch, q_len, heads, kv_lora_rank], or
    (out, lse) with return_lse."""
    refuse(FUNCTION, "dense attention only", sparse_mla_top_k=(sparse_mla_top_k, 0), sinks=(sinks, None),
           skip_softmax_threshold_scale_factor=(skip_softmax_threshold_scale_factor, None))
    refuse(FUNCTION, "one page index for keys and values",
           uses_shared_paged_kv_idx=(uses_shared_paged_kv_idx, True))
    refuse(FUNCTION, "the library keeps its own counters",
           multi_ctas_kv_counter_buffer=(multi_ctas_kv_counter_buffer, None))
    refuse(FUNCTION, "caches in bf16 and fp16 have no scale", kv_scale_format=(kv_scale_format, "auto"),
           bmm2_scale=(float(bmm2_scale) if isinstance(bmm2_scale, int) else bmm2_scale, 1.0))
    _check_names(backend, cute_dsl_impl, return_lse, lse)
    if not isinstance(bmm1_scale, (int, float)):
        refuse(FUNCTION, "the host needs the number", bmm1_scale=(bmm1_scale, 1.0))
    cache = _check_cache(kv_cache, kv_lora_rank, qk_rope_head_dim)
    _check_tensors(query, cache, block_tables, seq_lens, out)
    q_starts, max_q_len = _ragged(query, seq_lens, cum_seq_lens_q, max_q_len)
    call_lse = _lse_for(query, lse, return_lse, backend)
    result = _decode.decode(query, cache, block_tables, seq_lens, softmax_scale=float(bmm1_scale), latent=kv_lora_rank,
                            q_starts=q_starts, max_q_len=max_q_len, out=_with_tokens(query, out, kv_lora_rank),
                            lse=None if call_lse is None else _with_tokens(query, call_lse), workspace=workspace_buffer)
    written = result[0] if isinstance(result, tuple) else result
    out = written if out is None else out
    return (out, call_lse) if return_lse else out


def _check_names(backend, cute_dsl_impl, return_lse, lse):
    if backend not in BACKENDS:
        raise ValueError(f"backend '{backend}' is not supported; it may be {', '.join(BACKENDS)}")
    if cute_dsl_impl not in ("auto", "monolithic", "modular"):
        raise ValueError(f"cute_dsl_impl '{cute_dsl_impl}' is not supported")
    if return_lse or lse is not None:
        refuse(FUNCTION, "its LSE has base 2, and this library's base e", backend=(
            backend if backend in ("trtllm-gen", "xqa") else "auto", "auto"))


def _check_cache(kv_cache, rank, rope):
    """The cache as [pages, page, width]."""
    if len(kv_cache.shape) == 4:
        if kv_cache.shape[1] != 1:
            raise ValueError(f"kv_cache has {kv_cache.shape[1]} heads; a latent cache has 1")
        kv_cache = kv_cache[:, 0]
    if len(kv_cache.shape) != 3:
        raise ValueError(f"kv_cache has {len(kv_cache.shape)} dimensions; it has 3 or 4")
    if kv_cache.shape[1] not in PAGES:
        raise ValueError(f"kv_cache has pages of {kv_cache.shape[1]} tokens; supported are 32 and 64")
    if kv_cache.shape[2] != rank + rope:
        raise ValueError(f"kv_cache has {kv_cache.shape[2]} columns; kv_lora_rank {rank} and qk_rope_head_dim {rope} "
                         f"make {rank + rope}")
    return kv_cache


def _check_tensors(query, cache, block_tables, seq_lens, out):
    width = cache.shape[2]
    _tensors.expect("query", query, (None,) * (len(query.shape) - 1) + (width,), ("bfloat16", "float16"), ValueError)
    dtype = _tensors.dtype_name(query.dtype)
    _tensors.expect("kv_cache", cache, (None, None, width), (dtype,), ValueError)
    if seq_lens is None:
        raise ValueError("seq_lens is None; dense attention needs it")
    _tensors.expect("seq_lens", seq_lens, (None,), ("int32",), ValueError)
    _tensors.expect("block_tables", block_tables, (seq_lens.shape[0], None), ("int32",), ValueError)
    if block_tables.shape[1] == 0:
        raise ValueError("block_tables has no column")
    tensors = {"query": query, "kv_cache": cache, "block_tables": block_tables, "seq_lens": seq_lens}
    if out is not None:
        _tensors.expect("out", out, (None,) * len(out.shape), (dtype,), ValueError)
        tensors["out"] = out
    _tensors.same_device(tensors, ValueError)


def _ragged(query, seq_lens, cum_seq_lens_q, max_q_len):
    """(q_starts, max_q_len), both None for queries of equal length."""
    if cum_seq_lens_q is None:
        if max_q_len is not None:
            raise ValueError("max_q_len is only supported with cum_seq_lens_q")
        if len(query.shape) != 4 or query.shape[0] != seq_lens.shape[0]:
            raise ValueError(f"query has shape {list(query.shape)}; for {seq_lens.shape[0]} seq_lens it must be "
                             f"[{seq_lens.shape[0]}, q_len, heads, width]")
        return None, None
    if len(query.shape) != 3:
        raise ValueError(f"query has {len(query.shape)} dimensions; with cum_seq_lens_q it has 3")
    _tensors.expect("cum_seq_lens_q", cum_seq_lens_q, (seq_lens.shape[0] + 1,), ("int32",), ValueError)
    if max_q_len is None:
        starts = cum_seq_lens_q.tolist()  # waits for the device, as the original does
        if starts[0] != 0 or starts[-1] != query.shape[0] or any(a > b for a, b in zip(starts, starts[1:])):
            raise ValueError(f"cum_seq_lens_q must ascend from 0 to {query.shape[0]} rows")
        max_q_len = max(b - a for a, b in zip(starts, starts[1:]))
    return cum_seq_lens_q, max_q_len


def _lse_for(query, lse, return_lse, backend):
    """The LSE that is written: given, or new in the form that the backend of this name has."""
    if lse is not None or not return_lse:
        return lse
    lead = tuple(query.shape[:-1])
    if len(lead) == 3 and backend != "cute-dsl":
        lead = (lead[0] * lead[1], lead[2])
    return query.new_empty(lead, dtype=_tensors.dtype_called(query, "float32"))


def _with_tokens(query, tensor, *width):
    """out or lse with the dimensions of query in front: [batch, heads] and [rows, heads] serve for [batch, 1, heads]
    and [batch, q_len, heads]."""
    if tensor is None:
        return None
    lead = tuple(query.shape[:-1])
    if tuple(tensor.shape) == lead + width:
        return tensor
    rows = (lead[0] * lead[1],) + lead[2:] if len(lead) == 3 else lead
    if tuple(tensor.shape) != rows + width:
        raise ValueError(f"{'out' if width else 'lse'} has shape {list(tensor.shape)}; it must be "
                         f"{list(lead + width)}")
    if lead[1] == 1:
        return tensor.unsqueeze(1)
    return tensor.reshape(*(lead + width))
