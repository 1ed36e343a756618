// SPDX-License-Identifier: Apache-2.0
#include "graph/tiny_graph.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "graph/builder.h"

namespace latent::testing {

using namespace latent::graph;  // NOLINT: a test

Graph tiny_graph(DType dtype) {
  constexpr int kHeads = 2, kRank = 8, kRope = 4, kNope = 6, kV = 5, kHidden = 12, kPage = 16;
  GraphBuilder b("tiny", dtype);
  const auto w = [&](const char* name, Dims dims) { return b.weight(name, std::move(dims), {dtype}); };
  const ValueId ids = b.input("token_ids", DType::kI32, {Symbol::kNumTokens});
  const ValueId positions = b.input("positions", DType::kI32, {Symbol::kNumTokens});
  const ValueId slots = b.input("slots", DType::kI32, {Symbol::kNumTokens});
  const ValueId q_starts = b.input("q_starts", DType::kI32, {Symbol::kNumSeqsPlusOne});
  const ValueId kv_lens = b.input("kv_lens", DType::kI32, {Symbol::kNumSeqs});
  const ValueId table = b.input("block_table", DType::kI32, {Symbol::kNumSeqs, Symbol::kMaxPages});
  const ValueId rows = b.input("output_rows", DType::kI32, {Symbol::kNumOutputs});
  const ValueId cos_sin = b.weight("rope.cos_sin", {64, kRope}, {DType::kF32});
  const ValueId embed = w("embed", {32, kHidden});
  const ValueId x = b.embedding(ids, embed, 1.0f);

  b.set_layer(0);
  const ValueId h = b.rms_norm(x, w("layers.0.attention_norm", {kHidden}), 1e-6f);
  const ValueId q = b.reshape(b.linear(h, w("layers.0.q", {kHeads * (kNope + kRope), kHidden})),
                              {Symbol::kNumTokens, kHeads, kNope + kRope});
  const ValueId q_pe =
      b.rope(b.slice(q, 2, kNope, kNope + kRope), positions, cos_sin, ops::RopeStyle::kInterleaved);
  const ValueId kv_a = b.linear(h, w("layers.0.kv_a", {kRank + kRope, kHidden}));
  const ValueId kv_c = b.rms_norm(b.slice(kv_a, 1, 0, kRank), w("layers.0.kv_a_norm", {kRank}), 1e-6f);
  const ValueId k_heads = b.reshape(b.slice(kv_a, 1, kRank, kRank + kRope), {Symbol::kNumTokens, 1, kRope});
  const ValueId k_pe = b.reshape(b.rope(k_heads, positions, cos_sin, ops::RopeStyle::kInterleaved),
                                 {Symbol::kNumTokens, kRope});
  const ValueId cache =
      b.cache("layers.0.cache", {.kv_rank = kRank, .rope_dim = kRope, .page_tokens = kPage, .dtype = dtype});
  const ValueId written = b.kv_cache_write(kv_c, k_pe, slots, cache);
  const ValueId attention = b.mla_attention({.q_nope = b.slice(q, 2, 0, kNope),
                                             .q_pe = q_pe,
                                             .cache = written,
                                             .q_starts = q_starts,
                                             .kv_lens = kv_lens,
                                             .block_table = table,
                                             .kv_b = w("layers.0.kv_b", {kHeads * (kNope + kV), kRank})},
                                            {.form = ops::AttentionForm::kMultiHead,
                                             .num_heads = kHeads,
                                             .kv_rank = kRank,
                                             .rope_dim = kRope,
                                             .nope_dim = kNope,
                                             .v_dim = kV,
                                             .page_tokens = kPage,
                                             .softmax_scale = 0.25f});
  b.rename(attention, "layers.0.attention");
  const ValueId o = b.linear(b.reshape(attention, {Symbol::kNumTokens, kHeads * kV}),
                             w("layers.0.o", {kHidden, kHeads * kV}));
  const ValueId y = b.add(x, o);
  const ValueId gate = b.linear(y, w("layers.0.gate", {20, kHidden}));
  const ValueId up = b.linear(y, w("layers.0.up", {20, kHidden}));
  const ValueId mlp = b.linear(b.mul(b.silu(gate), up), w("layers.0.down", {kHidden, 20}));
  const ValueId out = b.add(y, mlp);
  b.rename(out, "layers.0.out");

  b.set_layer(kNoLayer);
  const ValueId last = b.gather_rows(out, rows);
  const ValueId logits = b.linear(last, embed, DType::kF32);
  b.rename(logits, "logits");
  b.output(logits);
  return std::move(b).finish();
}

void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(LATENT_SOURCE_DIR) + "/tests/golden/graph/" + name;
  if (std::getenv("LATENT_UPDATE_GOLDEN") != nullptr) {
    std::ofstream(path) << text;
    return;
  }
  std::stringstream golden;
  golden << std::ifstream(path).rdbuf();
  EXPECT_EQ(golden.str(), text) << path << " (LATENT_UPDATE_GOLDEN=1 rewrites it)";
}

}  // namespace latent::testing
