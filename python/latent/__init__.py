# SPDX-License-Identifier: Apache-2.0
"""Multi-head latent attention from latent.cpp: its C interface (include/latent/attention.h) for torch tensors.

    import latent
    out = latent.decode(q, cache, block_table, kv_lens, softmax_scale=1 / 24)

`latent.Attention` and `latent.Plan` are the same in steps of your own. `latent.compat` has the calls of FlashMLA, vLLM
and FlashInfer under their names. Needs liblatent_attention.so and nothing else; torch is used if the tensors are its."""

from ._library import library
from .attention import Attention, Backend, Plan, backends
from ._decode import decode
from .errors import Exhausted, InvalidArgument, LatentError, LibraryNotFound, Unsupported


def version():
    """Version of the library that is loaded."""
    return library().version().decode()


__all__ = ["Attention", "Backend", "Exhausted", "InvalidArgument", "LatentError", "LibraryNotFound", "Plan",
           "Unsupported", "backends", "decode", "version"]
