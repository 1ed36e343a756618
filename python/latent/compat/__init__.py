# SPDX-License-Identifier: Apache-2.0
"""Calls of other libraries under their names, in their argument order, with their layouts: a caller changes one
import.

    latent.compat.flash_mla    get_mla_metadata, flash_mla_with_kvcache            FlashMLA, dense decode
    latent.compat.vllm         sm100_cutlass_mla_decode, sm100_cutlass_mla_get_workspace_size     vllm._custom_ops
    latent.compat.flashinfer   trtllm_batch_decode_with_kv_cache_mla               flashinfer.mla

What an original accepts is accepted, what it refuses is refused with the same kind of exception. An argument that
asks for something this library does not do (sparse indices, fp8 caches, attention sinks, ...) is refused by name. Rows
without keys get the LSE -inf, which is +inf in FlashMLA. signatures.json holds the signatures of the originals."""
