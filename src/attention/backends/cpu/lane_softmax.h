// SPDX-License-Identifier: Apache-2.0
// What the engines share: packing a query tile, the softmax of a block, merging and finishing states.
#pragma once

#include "attention/backends/cpu/lane_engine.h"
#include "attention/backends/cpu/lanes16.h"

namespace latent::attention::cpu {
namespace {

constexpr float kMinusInfinity = -__builtin_huge_valf();

// Addresses to ask for, one a round of a loop.
struct Stream {
  const char* at;
  int64_t step;
};

inline void ask(Stream* s) {
  __builtin_prefetch(s->at, 0, 3);
  s->at += s->step;
}

// What is asked for while `tile` is scored, in so many rounds.
inline Stream stream(const Prefetch& p, int tile, int64_t rounds) {
  return {static_cast<const char*>(p.tile[tile]), p.tile_bytes / rounds};
}

// -inf, the maximum of a lane without keys, becomes 0, so that differences from it are never NaN.
inline F32x16 finite_maximum(F32x16 m) { return select_less(m, set1(-3.4e38f), set1(0.0f), m); }

// Scales and masks scores [num_tokens, kLanes] in place; returns the new running maximum of the lanes.
inline F32x16 scale_and_mask(const StepArgs& a, float* scores, F32x16 largest) {
  const F32x16 scale = set1(a.scale), hidden = set1(kMinusInfinity);
  const F32x16 limits = a.limits != nullptr ? load(a.limits) : set1(static_cast<float>(kBlockTokens));
  for (int t = 0; t < a.num_tokens; ++t) {
    const F32x16 s =
        select_less(set1(static_cast<float>(t)), limits, load(scores + t * kLanes) * scale, hidden);
    store(scores + t * kLanes, s);
    largest = max(s, largest);
  }
  return largest;
}

// The state's factor for what it holds so far, [kLanes] in `factors`; its maximum moves to `largest`.
inline F32x16 rescale_sums(const StepArgs& a, F32x16 largest, float* factors) {
  const LaneState& s = a.state;
  const F32x16 old = a.first ? set1(kMinusInfinity) : load(s.max());
  const F32x16 factor = exp_non_positive(old - finite_maximum(largest));
  store(factors, factor);
  store(s.max(), largest);
  return factor;
}

inline void add_sums(const StepArgs& a, F32x16 factor, F32x16 sum, F32x16 weight_sum) {
  const LaneState& s = a.state;
  const F32x16 nothing = set1(0.0f);
  store(s.sum(), fma(a.first ? nothing : load(s.sum()), factor, sum));
  store(s.weight_sum(), fma(a.first ? nothing : load(s.weight_sum()), factor, weight_sum));
}

inline void merge_states(const LaneState& total, const LaneState& part) {
  const F32x16 a = load(total.max()), b = load(part.max());
  const F32x16 largest = max(a, b), shift = finite_maximum(largest);
  float from_a[kLanes], from_b[kLanes];
  const F32x16 factor_a = exp_non_positive(a - shift), factor_b = exp_non_positive(b - shift);
  store(from_a, factor_a);
  store(from_b, factor_b);
  store(total.max(), largest);
  store(total.sum(), fma(load(part.sum()), factor_b, load(total.sum()) * factor_a));
  store(total.weight_sum(), fma(load(part.weight_sum()), factor_b, load(total.weight_sum()) * factor_a));
  for (int lane = 0; lane < total.num_lanes; ++lane) {
    const F32x16 fa = set1(from_a[lane]), fb = set1(from_b[lane]);
    float* to = total.out + int64_t{lane} * total.width;
    const float* from = part.out + int64_t{lane} * total.width;
    for (int i = 0; i < total.width; i += 16) store(to + i, fma(load(from + i), fb, load(to + i) * fa));
  }
}

// 1 / weight_sum; 0 for a lane without keys. A NaN stays one.
inline float normaliser(const LaneState& s, int lane) {
  const float sum = s.weight_sum()[lane];
  return sum == 0.0f ? 0.0f : 1.0f / sum;
}

template <class T>
inline void widen_elements(const T* from, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) store(to + i, load(from + i));
  for (; i < count; ++i) to[i] = load_float(from[i]);
}

inline void widen(const void* from, DType dtype, int64_t count, float* to) {
  if (dtype == DType::kF32) return widen_elements(static_cast<const float*>(from), count, to);
  if (dtype == DType::kF16) return widen_elements(static_cast<const Float16*>(from), count, to);
  widen_elements(static_cast<const BFloat16*>(from), count, to);
}

inline void narrow(const float* from, int64_t count, DType dtype, void* to) {
  if (dtype == DType::kF32) return widen_elements(from, count, static_cast<float*>(to));
  auto* out = static_cast<BFloat16*>(to);
  for (int64_t i = 0; i < count; ++i) out[i] = BFloat16::from_float(from[i]);
}

// Sixteen query elements of one lane from `at` on, zeros past the width.
template <class T>
inline F32x16 load_queries(const void* query, int64_t stride, int at, int width) {
  const T* q = static_cast<const T*>(query);
  if (query != nullptr && stride == 1 && at + 16 <= width) return load(q + at);
  float values[16] = {};
  if (query != nullptr)
    for (int i = at; i < width && i < at + 16; ++i) values[i - at] = load_float(q[i * stride]);
  return load(values);
}

}  // namespace
}  // namespace latent::attention::cpu
