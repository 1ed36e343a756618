# SPDX-License-Identifier: Apache-2.0
"""vLLM's calls of its CUTLASS MLA kernel (vllm._custom_ops), for any GPU that this library serves.

Differences: any number of query heads up to that of `out` is computed, and no others are: the rows of `out` beyond
them become 0 and those of `lse` -inf. num_kv_splits is taken and has no effect: the kernel divides the work itself."""

from .. import _decode, _tensors
from ..attention import Attention, backends

FUNCTION = "sm100_cutlass_mla_decode"
MAX_HEADS, LATENT, ROPE, PAGE = 128, 512, 64, 128


def sm100_cutlass_mla_decode(
    out,
    lse,
    q_nope,
    q_pe,
    kv_c_and_k_pe_cache,
    seq_lens,
    page_table,
    workspace,
    scale,
    num_kv_splits,
):
    """q_nope [batch, heads, 512], q_pe [batch, heads, 64], the cache [pages, page, 576] with pages of 128 (or a
    divisor, and then 128 / page divides the table's columns), seq_lens [batch] and page_table [batch, columns] int32.
    Writes out [batch, 128, 512] and, unless it has no elements, lse [batch, 128]; returns out."""
    batch, heads = _check(out, lse, q_nope, q_pe, kv_c_and_k_pe_cache, seq_lens, page_table)
    with_lse = lse.numel() > 0
    _decode.decode((q_nope, q_pe), kv_c_and_k_pe_cache, page_table, seq_lens, softmax_scale=float(scale),
                   out=out[:, :heads], lse=lse[:, :heads] if with_lse else None, workspace=workspace)
    if heads < out.shape[1]:
        out[:, heads:].zero_()
        if with_lse:
            lse[:, heads:].fill_(float("-inf"))
    return out


def _check(out, lse, q_nope, q_pe, cache, seq_lens, page_table):
    dtypes = ("float16", "bfloat16")
    _tensors.expect("q_nope", q_nope, (None, None, LATENT), dtypes, RuntimeError)
    batch, heads, _ = q_nope.shape
    dtype = (_tensors.dtype_name(q_nope.dtype),)
    _tensors.expect("q_pe", q_pe, (batch, heads, ROPE), dtype, RuntimeError)
    _tensors.expect("kv_c_and_k_pe_cache", cache, (None, None, LATENT + ROPE), dtype, RuntimeError)
    _tensors.expect("seq_lens", seq_lens, (batch,), ("int32",), RuntimeError)
    _tensors.expect("page_table", page_table, (batch, None), ("int32",), RuntimeError)
    _tensors.expect("out", out, (batch, MAX_HEADS, LATENT), dtype, RuntimeError)
    tensors = {"q_nope": q_nope, "q_pe": q_pe, "kv_c_and_k_pe_cache": cache, "seq_lens": seq_lens,
               "page_table": page_table, "out": out}
    if lse.numel() > 0:
        _tensors.expect("lse", lse, (batch, MAX_HEADS), ("float32",), RuntimeError)
        tensors["lse"] = lse
    _tensors.same_device(tensors, RuntimeError)
    if not 1 <= heads <= MAX_HEADS:
        raise RuntimeError(f"q_nope has {heads} heads; it may have 1 to {MAX_HEADS}")
    page, columns = cache.shape[1], page_table.shape[1]
    if columns == 0 or page > PAGE or PAGE % page != 0 or columns % (PAGE // page) != 0:
        raise RuntimeError(f"pages of {page} tokens and a page_table of {columns} columns: {PAGE} must be a multiple "
                           f"of the page and the columns of {PAGE} / page")
    return batch, heads


def sm100_cutlass_mla_get_workspace_size(max_seq_len, num_batches, sm_count, num_kv_splits):
    """Bytes that `workspace` must have for batches of up to num_batches, whatever the lengths on a device. (vLLM
    passes its longest query, not its longest context, as max_seq_len.) sm_count and num_kv_splits have no effect."""
    device = "cuda" if any(backend.can_serve for backend in backends(page=PAGE)) else "cpu"
    attention = Attention(MAX_HEADS, PAGE, LATENT, ROPE, device=device)
    limits = _decode.limits_for(num_batches, num_batches, min(max(1, max_seq_len), 1 << 29))
    return attention.workspace_bytes(**limits) + _decode.WORKSPACE_ALIGNMENT

