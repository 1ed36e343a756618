// SPDX-License-Identifier: Apache-2.0
// The f32 engine, for the instruction set of the including file, which defines nothing else.
#pragma once

#include "attention/backends/cpu/lane_softmax.h"

namespace latent::attention::cpu {
namespace {

// Adds one part of kScoreTokens keys to their scores: acc[t][lane] += sum_d q[d][lane] * key[t][d]. Four rows
// a pointer, so that every row is reached without an addition of its own.
inline void score_part(F32x16 (&acc)[kScoreTokens], const float* queries, const float* keys, int64_t stride,
                       int width, Stream* ahead) {
  constexpr int kPointers = kScoreTokens / 4;
  static_assert(kScoreTokens % 4 == 0);
  const int64_t three = 3 * stride;
  const float* rows[kPointers];
  for (int i = 0; i < kPointers; ++i) rows[i] = keys + 4 * i * stride;
  for (int d = 0; d < width; ++d) {
    const F32x16 q = load(queries + d * kLanes);
    ask(ahead);
#pragma GCC unroll 4
    for (int i = 0; i < kPointers; ++i) {
      acc[4 * i] = fma(q, set1(rows[i][0]), acc[4 * i]);
      acc[4 * i + 1] = fma(q, set1(rows[i][stride]), acc[4 * i + 1]);
      acc[4 * i + 2] = fma(q, set1(rows[i][2 * stride]), acc[4 * i + 2]);
      acc[4 * i + 3] = fma(q, set1(rows[i][three]), acc[4 * i + 3]);
      ++rows[i];
    }
  }
}

inline void score_block(const StepArgs& a, const F32Block& b, float* scores) {
  const auto* queries = static_cast<const float*>(a.queries);
  constexpr int kParts = kTileTokens / kScoreTokens;
  for (int tile = 0; tile * kTileTokens < a.num_tokens; ++tile) {
    Stream ahead = stream(b.prefetch, tile, int64_t{kParts} * (b.nope_width + b.rope_width));
    for (int64_t t = 0; t < kTileTokens; t += kScoreTokens) {
      F32x16 acc[kScoreTokens];
      for (F32x16& x : acc) x = set1(0.0f);
      score_part(acc, queries, b.tile[tile].nope + t * b.nope_stride, b.nope_stride, b.nope_width, &ahead);
      score_part(acc, queries + int64_t{b.nope_width} * kLanes, b.tile[tile].rope + t * b.rope_stride,
                 b.rope_stride, b.rope_width, &ahead);
#pragma GCC unroll 16
      for (int i = 0; i < kScoreTokens; ++i) store(scores + (tile * kTileTokens + t + i) * kLanes, acc[i]);
    }
  }
}

// out[lane][c..] = factor[lane] * out + sum_t weight[t][lane] * value[t][c..] for kValueLanes lanes, 32
// columns.
inline void add_values(const StepArgs& a, const F32Block& b, const float* weights, const float* factors,
                       int lane, int column) {
  F32x16 acc[kValueLanes][2];
  float* out = a.state.out + int64_t{lane} * a.state.width + column;
#pragma GCC unroll 8
  for (int h = 0; h < kValueLanes; ++h) {
    const float* row = out + int64_t{h} * a.state.width;
    const F32x16 factor = set1(factors[lane + h]);
    acc[h][0] = a.first ? set1(0.0f) : load(row) * factor;
    acc[h][1] = a.first ? set1(0.0f) : load(row + 16) * factor;
  }
  const float* weight = weights + lane;
  for (int tile = 0; tile * kTileTokens < a.num_tokens; ++tile) {
    const float* value = b.tile[tile].value + column;
    const int rest = a.num_tokens - tile * kTileTokens, count = rest < kTileTokens ? rest : kTileTokens;
    for (int t = 0; t < count; ++t, value += b.value_stride, weight += kLanes) {
      const F32x16 v0 = load(value), v1 = load(value + 16);
#pragma GCC unroll 8
      for (int h = 0; h < kValueLanes; ++h) {
        const F32x16 w = set1(weight[h]);
        acc[h][0] = fma(w, v0, acc[h][0]);
        acc[h][1] = fma(w, v1, acc[h][1]);
      }
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < kValueLanes; ++h) {
    store(out + int64_t{h} * a.state.width, acc[h][0]);
    store(out + int64_t{h} * a.state.width + 16, acc[h][1]);
  }
}

void step_f32(const StepArgs& a, const F32Block& b) {
  float* scores = a.scratch;
  float factors[kLanes];
  score_block(a, b, scores);
  const F32x16 largest = scale_and_mask(a, scores, a.first ? set1(kMinusInfinity) : load(a.state.max()));
  const F32x16 factor = rescale_sums(a, largest, factors);
  const F32x16 shift = finite_maximum(largest);
  F32x16 sum = set1(0.0f);
  for (int t = 0; t < a.num_tokens; ++t) {
    const F32x16 weight = exp_non_positive(load(scores + t * kLanes) - shift);
    store(scores + t * kLanes, weight);
    sum = sum + weight;
  }
  add_sums(a, factor, sum, sum);
  for (int column = 0; column < a.state.width; column += 32)
    for (int lane = 0; lane < a.state.num_lanes; lane += kValueLanes)
      add_values(a, b, scores, factors, lane, column);
}

int64_t packed_bytes_f32(int nope_width, int rope_width) {
  // A tile is transposed whole: sixteen rows, whatever the width leaves of the last.
  return (int64_t{nope_width} + rope_width + 16) * kLanes * int64_t{sizeof(float)};
}

template <class T>
inline void pack_part(const void* const* queries, int64_t stride, int width, float* packed) {
  for (int d = 0; d < width; d += 16) {
    F32x16 rows[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) rows[lane] = load_queries<T>(queries[lane], stride, d, width);
    transpose(rows, packed + int64_t{d} * kLanes);
  }
}

// [nope_width + rope_width, kLanes]. The rope part overwrites what the last nope tile left past its width.
void pack_f32(const LaneQueries& q, void* packed) {
  auto* to = static_cast<float*>(packed);
  const auto pack = [](DType dtype) { return dtype == DType::kF32 ? pack_part<float> : pack_part<BFloat16>; };
  pack(q.nope_dtype)(q.nope, q.nope_stride, q.nope_width, to);
  pack(q.rope_dtype)(q.rope, q.rope_stride, q.rope_width, to + int64_t{q.nope_width} * kLanes);
}

void finish_f32(const LaneState& state, int lane, float* row) {
  const float scale = normaliser(state, lane);
  const float* from = state.out + int64_t{lane} * state.width;
  for (int i = 0; i < state.width; i += 16)
    store(row + i, scale == 0.0f ? set1(0.0f) : load(from + i) * set1(scale));
}

constexpr LaneEngine kEngine = {.packed_bytes = packed_bytes_f32,
                                .pack = pack_f32,
                                .step_f32 = step_f32,
                                .step_bf16 = nullptr,
                                .merge = merge_states,
                                .finish = finish_f32,
                                .widen = widen,
                                .narrow = narrow};

}  // namespace
}  // namespace latent::attention::cpu
