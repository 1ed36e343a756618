// SPDX-License-Identifier: Apache-2.0
// The bf16 engine for the absorbed form: keys and values are the latent rows of the cache itself, multiplied
// by vdpbf16ps two columns (scores) or two tokens (values) at a time. Queries are taken as they are; weights
// are rounded to bf16, and what rounding took from a lane's heaviest ones is added in a second pass: of a
// weight above 1 / kHeavy of the lane's sum so far nothing is lost that matters, and what the many lighter
// ones lose averages out. Outputs are kept in the order that unpacking two rows leaves them in, and put right
// by finish.
#include "attention/backends/cpu/lane_softmax.h"

namespace latent::attention::cpu {
namespace {

inline __m512bh as_bf16(__m512i x) { return reinterpret_cast<__m512bh>(x); }
inline __m512bh broadcast_pair(const void* pair) {
  int32_t bits;
  std::memcpy(&bits, pair, sizeof bits);
  return as_bf16(_mm512_set1_epi32(bits));
}

// Scores of one tile of sixteen tokens, two columns a round. Four rows a pointer, so that every row is
// reached without an addition of its own.
inline void score_tile(const uint32_t* queries, const Bf16Block& b, int tile, float* scores) {
  Stream ahead = stream(b.prefetch, tile, b.width / 2);
  const int64_t stride = b.stride * static_cast<int64_t>(sizeof(BFloat16)), three = 3 * stride;
  const char* rows[4];
  for (int i = 0; i < 4; ++i) rows[i] = reinterpret_cast<const char*>(b.tile[tile] + 4 * i * b.stride);
  __m512 acc[kTileTokens];
#pragma GCC unroll 16
  for (__m512& x : acc) x = _mm512_setzero_ps();
  for (int pair = 0; pair < b.width / 2; ++pair) {
    ask(&ahead);
    const __m512bh q = as_bf16(_mm512_loadu_si512(queries));
    queries += kLanes;
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      acc[4 * i] = _mm512_dpbf16_ps(acc[4 * i], q, broadcast_pair(rows[i]));
      acc[4 * i + 1] = _mm512_dpbf16_ps(acc[4 * i + 1], q, broadcast_pair(rows[i] + stride));
      acc[4 * i + 2] = _mm512_dpbf16_ps(acc[4 * i + 2], q, broadcast_pair(rows[i] + 2 * stride));
      acc[4 * i + 3] = _mm512_dpbf16_ps(acc[4 * i + 3], q, broadcast_pair(rows[i] + three));
      rows[i] += 2 * sizeof(BFloat16);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < kTileTokens; ++t) _mm512_storeu_ps(scores + t * kLanes, acc[t]);
}

constexpr int kLanesAtOnce = 8;
constexpr float kHeavy = 8;

// Weights of a block in bf16, two tokens a dword, [pair, kLanes]. Corrections are those of some pairs alone.
struct Weights {
  uint32_t* pairs;
  uint32_t* corrections;
  int num_corrections;
  uint8_t corrected[kBlockTokens / 2];  // which
};

// Two tokens' values of thirty-two columns, for eight lanes.
inline void add_pair(__m512 (&acc)[kLanesAtOnce][2], const BFloat16* value, int64_t stride,
                     const uint32_t* weights) {
  const __m512i even = _mm512_loadu_si512(value), odd = _mm512_loadu_si512(value + stride);
  const __m512bh low = as_bf16(_mm512_unpacklo_epi16(even, odd));
  const __m512bh high = as_bf16(_mm512_unpackhi_epi16(even, odd));
#pragma GCC unroll 8
  for (int h = 0; h < kLanesAtOnce; ++h) {
    const __m512bh w = broadcast_pair(weights + h);
    acc[h][0] = _mm512_dpbf16_ps(acc[h][0], low, w);
    acc[h][1] = _mm512_dpbf16_ps(acc[h][1], high, w);
  }
}

// Thirty-two columns of eight lanes: out = factor * out + sum over tokens of weight * value.
inline void add_values(const StepArgs& a, const Bf16Block& b, const Weights& weights, const float* factors,
                       int lane, int column) {
  __m512 acc[kLanesAtOnce][2];
  float* out = a.state.out + int64_t{lane} * a.state.width + column;
#pragma GCC unroll 8
  for (int h = 0; h < kLanesAtOnce; ++h) {
    const float* row = out + int64_t{h} * a.state.width;
    const __m512 factor = _mm512_set1_ps(factors[lane + h]);
    acc[h][0] = a.first ? _mm512_setzero_ps() : _mm512_mul_ps(_mm512_loadu_ps(row), factor);
    acc[h][1] = a.first ? _mm512_setzero_ps() : _mm512_mul_ps(_mm512_loadu_ps(row + 16), factor);
  }
  const uint32_t* pair = weights.pairs + lane;
  for (int tile = 0; tile * kTileTokens < a.num_tokens; ++tile) {
    const BFloat16* value = b.tile[tile] + column;
    for (int t = 0; t < kTileTokens; t += 2, value += 2 * b.stride, pair += kLanes)
      add_pair(acc, value, b.stride, pair);
  }
  for (int i = 0; i < weights.num_corrections; ++i) {
    const int token = 2 * weights.corrected[i];
    add_pair(acc, b.tile[token / kTileTokens] + token % kTileTokens * b.stride + column, b.stride,
             weights.corrections + i * kLanes + lane);
  }
#pragma GCC unroll 8
  for (int h = 0; h < kLanesAtOnce; ++h) {
    _mm512_storeu_ps(out + int64_t{h} * a.state.width, acc[h][0]);
    _mm512_storeu_ps(out + int64_t{h} * a.state.width + 16, acc[h][1]);
  }
}

// bf16 bits of each lane in the low half of its dword.
inline __m512i round_to_bf16(F32x16 x) {
  return _mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x.v)));
}
inline F32x16 widen(__m512i low_halves) { return {_mm512_castsi512_ps(_mm512_slli_epi32(low_halves, 16))}; }

inline __m512i pack_pair(__m512i even, __m512i odd) {
  return _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
}

struct Sums {
  F32x16 exact, rounded, largest;
};

// Scores become weights, in place and in bf16; those past num_tokens weigh 0.
inline Sums weigh(const StepArgs& a, float* scores, F32x16 shift, uint32_t* pairs) {
  const auto weight = [&](int t) {
    const F32x16 w = t < a.num_tokens ? exp_non_positive(load(scores + t * kLanes) - shift) : set1(0.0f);
    store(scores + t * kLanes, w);
    return w;
  };
  Sums sums{set1(0.0f), set1(0.0f), set1(0.0f)};
  for (int t = 0; t < a.num_tokens || t % kTileTokens != 0; t += 2) {
    const F32x16 even = weight(t), odd = weight(t + 1);
    const __m512i low = round_to_bf16(even), high = round_to_bf16(odd);
    sums.exact = sums.exact + even + odd;
    sums.rounded = sums.rounded + widen(low) + widen(high);
    sums.largest = max(max(even, odd), sums.largest);
    _mm512_storeu_si512(pairs + t / 2 * kLanes, pack_pair(low, high));
  }
  return sums;
}

// What rounding took from weights that are heavy in their own lane; returns its sum. A lane's corrections do
// not depend on its neighbours': where only they are heavy it adds 0.
inline F32x16 correct_heavy(const StepArgs& a, const float* scores, F32x16 threshold, Weights* weights) {
  const auto lost = [&](int t) {
    const F32x16 w = load(scores + t * kLanes);
    const F32x16 rest = w - widen(round_to_bf16(w));
    return round_to_bf16(select_less(w, threshold, set1(0.0f), rest));
  };
  F32x16 sum = set1(0.0f);
  for (int t = 0; t < a.num_tokens; t += 2) {
    const __m512i even = lost(t), odd = lost(t + 1);
    const __m512i pair = pack_pair(even, odd);
    if (_mm512_test_epi32_mask(pair, pair) == 0) continue;
    sum = sum + widen(even) + widen(odd);
    _mm512_storeu_si512(weights->corrections + weights->num_corrections * kLanes, pair);
    weights->corrected[weights->num_corrections++] = static_cast<uint8_t>(t / 2);
  }
  return sum;
}

void step_bf16(const StepArgs& a, const Bf16Block& b) {
  float* scores = a.scratch;
  Weights weights{.pairs = reinterpret_cast<uint32_t*>(scores + int64_t{kBlockTokens} * kLanes),
                  .corrections = reinterpret_cast<uint32_t*>(scores + int64_t{kBlockTokens} * kLanes * 3 / 2),
                  .num_corrections = 0,
                  .corrected = {}};
  float factors[kLanes];
  for (int tile = 0; tile * kTileTokens < a.num_tokens; ++tile)
    score_tile(static_cast<const uint32_t*>(a.queries), b, tile, scores + tile * kTileTokens * kLanes);
  const F32x16 largest = scale_and_mask(a, scores, a.first ? set1(kMinusInfinity) : load(a.state.max()));
  const F32x16 factor = rescale_sums(a, largest, factors);
  Sums sums = weigh(a, scores, finite_maximum(largest), weights.pairs);
  const F32x16 so_far = a.first ? sums.exact : fma(load(a.state.sum()), factor, sums.exact);
  const F32x16 threshold = so_far * set1(1 / kHeavy);
  if (_mm512_cmp_ps_mask(sums.largest.v, threshold.v, _CMP_GE_OQ) != 0)
    sums.rounded = sums.rounded + correct_heavy(a, scores, threshold, &weights);
  add_sums(a, factor, sums.exact, sums.rounded);
  for (int column = 0; column < a.state.width; column += 32)
    for (int lane = 0; lane < a.state.num_lanes; lane += kLanesAtOnce)
      add_values(a, b, weights, factors, lane, column);
}

// Pairs of bf16 are moved as the dwords that they are.
inline F32x16 load_pairs(const void* query, int64_t stride, int at, int width) {
  const auto* q = static_cast<const BFloat16*>(query);
  if (query == nullptr) return set1(0.0f);
  if (stride == 1 && at + 32 <= width) return {_mm512_loadu_ps(q + at)};
  BFloat16 values[32] = {};
  for (int i = at; i < width && i < at + 32; ++i) values[i - at] = q[i * stride];
  return {_mm512_loadu_ps(values)};
}

int64_t packed_bytes_bf16(int nope_width, int rope_width) {
  return (int64_t{nope_width} + rope_width + 32) / 2 * kLanes * int64_t{sizeof(uint32_t)};
}

// [(nope_width + rope_width) / 2, kLanes] dwords, two columns each.
void pack_bf16(const LaneQueries& q, void* packed) {
  const auto pack = [](const void* const* queries, int64_t stride, int width, float* to) {
    for (int d = 0; d < width; d += 32) {
      F32x16 rows[kLanes];
      for (int lane = 0; lane < kLanes; ++lane) rows[lane] = load_pairs(queries[lane], stride, d, width);
      transpose(rows, to + int64_t{d} / 2 * kLanes);
    }
  };
  auto* to = static_cast<float*>(packed);
  pack(q.nope, q.nope_stride, q.nope_width, to);
  pack(q.rope, q.rope_stride, q.rope_width, to + int64_t{q.nope_width} / 2 * kLanes);
}

// Unpacking works inside 128-bit parts: of each 8 columns, the first vector holds the low 4, the second the
// high 4.
void finish_bf16(const LaneState& state, int lane, float* row) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_setr_epi32(8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
  const float scale = normaliser(state, lane);
  const float* from = state.out + int64_t{lane} * state.width;
  for (int i = 0; i < state.width; i += 32) {
    const F32x16 low = scale == 0.0f ? set1(0.0f) : load(from + i) * set1(scale);
    const F32x16 high = scale == 0.0f ? set1(0.0f) : load(from + i + 16) * set1(scale);
    store(row + i, {_mm512_permutex2var_ps(low.v, first, high.v)});
    store(row + i + 16, {_mm512_permutex2var_ps(low.v, second, high.v)});
  }
}

constexpr LaneEngine kEngine = {.packed_bytes = packed_bytes_bf16,
                                .pack = pack_bf16,
                                .step_f32 = nullptr,
                                .step_bf16 = step_bf16,
                                .merge = merge_states,
                                .finish = finish_bf16,
                                .widen = widen,
                                .narrow = narrow};

}  // namespace

const LaneEngine& bf16_engine_avx512() { return kEngine; }

}  // namespace latent::attention::cpu
