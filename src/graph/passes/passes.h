// SPDX-License-Identifier: Apache-2.0
// The passes, one file each. A pass rewrites the graph in place and returns how many places it changed; the
// graph verifies before and after. Order, names and switches: pipeline.h.
#pragma once

#include "graph/ir.h"

namespace latent::graph {

// Attention over the latent with absorbed weights, for generated tokens:
//
//   out = mla_attention[multi-head](q_nope, q_pe, cache, …, kv_b)
//
// becomes, with kv_b seen as [heads, nope + v, latent],
//
//   w_uk_t   = transpose(kv_b[:, :nope, :])            constant, folded
//   w_uv     = kv_b[:, nope:, :]                       constant, a view
//   q_latent = head_linear(q_nope, w_uk_t)
//   o_latent = mla_attention[absorbed](q_latent, q_pe, cache, …)
//   out      = head_linear(o_latent, w_uv)
int absorb_weights(Graph& graph);

// Moves nodes that depend on weights alone to the prologue, which runs once at load.
int fold_constants(Graph& graph);

//   t = silu(gate); out = mul(t, up)      becomes      out = silu_mul(gate, up)
// where t has no other reader.
int fuse_silu_mul(Graph& graph);

//   r = rope(reshape(k_pe)); cache' = kv_cache_write(kv_c, reshape(r), slots, cache)
// becomes
//   cache' = rope_kv_cache_write(kv_c, k_pe, slots, cache, positions, cos_sin)
// where r has no other reader.
int fuse_rope_cache_write(Graph& graph);

// Removes nodes whose results nobody reads; writes to a cache stay.
int eliminate_dead_code(Graph& graph);

// Marks every intermediate to be filled with the pattern before it is written (contract C3).
int mark_poison(Graph& graph, PoisonPattern pattern);

}  // namespace latent::graph
