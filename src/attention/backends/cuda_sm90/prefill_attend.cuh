// SPDX-License-Identifier: Apache-2.0
// The prefill kernel's main loop, and how its rows are written.
#pragma once

#include "attention/backends/cuda_sm90/prefill_cta.cuh"

namespace latent::attention::cuda {

template <class T, class Config>
__device__ void PrefillCta<T, Config>::start_scores(Scores& s) {
  constexpr int kSteps = (Config::kNope + Config::kRope) / 16, kStepsPerPanel = Config::kPanelColumns / 16;
  const uint64_t query = ptx::matrix_descriptor(query_ + group() * Config::kQueryBytes);
  const uint64_t keys = ptx::matrix_descriptor(key_tile());
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < kSteps; ++k) {
    const int panel = k / kStepsPerPanel, bytes = k % kStepsPerPanel * 32;
    ptx::wgmma_wide_ss<T>(s, ptx::advance(query, panel * Config::kQueryPanelBytes + bytes),
                          ptx::advance(keys, panel * Config::kKeyPanelBytes + bytes), k > 0);
  }
  ptx::wgmma_commit();
}

template <class T, class Config>
__device__ void PrefillCta<T, Config>::start_values(const Weights& weights, bool accumulate) {
  constexpr int kPanelsPerPart = Config::kValueColumns / Config::kPanelColumns;
  const uint64_t values = ptx::matrix_descriptor(value_tile(), 1024, Config::kKeyPanelBytes);
  ptx::wgmma_fence();
#pragma unroll
  for (int k = 0; k < Config::kKeys / 16; ++k)
#pragma unroll
    for (int part = 0; part < Config::kValueParts; ++part)
      ptx::wgmma_wide_rs<T>(
          out_[part], weights[k],
          ptx::advance(values, part * kPanelsPerPart * Config::kKeyPanelBytes + k * 16 * Config::kRowBytes),
          accumulate || k > 0);
  ptx::wgmma_commit();
}

template <class T, class Config>
__device__ void PrefillCta<T, Config>::mask(Scores& s, const PrefillItem& item, int tile) const {
  const int first = tile * Config::kKeys + lane_ % 4 * 2;
  const int limits[2] = {item.num_keys(first_row()) - first, item.num_keys(first_row() + 8) - first};
#pragma unroll
  for (int i = 0; i < Config::kScores; ++i)
    if (i / 4 * 8 + i % 2 >= limits[i / 2 % 2]) s[i] = -INFINITY;
}

// Scores become weights; running maxima and sums follow. `rescale` is what outputs so far are to be
// multiplied by.
template <class T, class Config>
__device__ void PrefillCta<T, Config>::soften(Scores& s, float (&rescale)[2]) {
  const float scale = p_.softmax_scale * kLog2E;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float m[2] = {s[2 * h], s[2 * h + 1]};
#pragma unroll
    for (int i = 4 + 2 * h; i < Config::kScores; i += 4) {
      m[0] = fmaxf(m[0], s[i]);
      m[1] = fmaxf(m[1], s[i + 1]);
    }
    float largest = fmaxf(m[0], m[1]);
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, 2)) * scale;
    const float next = largest > max_[h] + kMaxSlack ? largest : max_[h];
    const float base = next == -INFINITY ? 0.0f : next;  // a row without keys so far
    rescale[h] = ptx::exp2_approx(max_[h] - base);
    max_[h] = next;
    float sum[2] = {sum_[h] * rescale[h], 0.0f};
#pragma unroll
    for (int i = 2 * h; i < Config::kScores; i += 4)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        s[i + e] = ptx::exp2_approx(fmaf(s[i + e], scale, -base));
        sum[e] += s[i + e];
      }
    sum_[h] = sum[0] + sum[1];
  }
}

template <class T, class Config>
__device__ void PrefillCta<T, Config>::round(const Scores& s, Weights& weights) {
#pragma unroll
  for (int i = 0; i < Config::kScores / 2; ++i) weights[i / 4][i % 4] = pack<T>(s[2 * i], s[2 * i + 1]);
}

template <class T, class Config>
__device__ void PrefillCta<T, Config>::end_values() {
  ptx::wgmma_wait<0>();
#pragma unroll
  for (int part = 0; part < Config::kValueParts; ++part) ptx::pin(out_[part]);
  release(&small_.value_empty[value_.slot]);
  value_.skip(1);
}

// Scores of this tile, outputs of the one before. Masking is a matter of the template: a branch between the
// start of a product and the wait for it makes the compiler wait at the branch.
template <class T, class Config>
template <bool kMasked>
__device__ void PrefillCta<T, Config>::step(const PrefillItem& item, int tile, Scores& s, Weights& weights) {
  float rescale[2];
  ptx::mbarrier_wait(&small_.key_full[key_.slot], key_.phase);
  take_turn();
  start_scores(s);
  ptx::mbarrier_wait(&small_.value_full[value_.slot], value_.phase);
  start_values(weights, tile > 1);
  pass_turn();
  ptx::wgmma_wait<1>();
  ptx::pin(s);
  release(&small_.key_empty[key_.slot]);
  key_.skip(1);
  if constexpr (kMasked) mask(s, item, tile);
  soften(s, rescale);
  ptx::pin(s);
  ptx::anchor(&small_.anchor[threadIdx.x],
              sum_[0] + sum_[1]);  // the wait comes after, not before, the softmax
  end_values();
  if (__any_sync(0xFFFFFFFFu, rescale[0] != 1.0f || rescale[1] != 1.0f)) {
#pragma unroll
    for (int part = 0; part < Config::kValueParts; ++part)
#pragma unroll
      for (int i = 0; i < Config::kOuts; ++i) out_[part][i] *= rescale[i / 2 % 2];
  }
  round(s, weights);
}

template <class T, class Config>
__device__ void PrefillCta<T, Config>::attend(const PrefillItem& item, int tiles) {
  // Tiles from here on are not seen whole by every row of the group.
  const int first_masked = max(item.num_keys(group() * Config::kGroupRows), 0) / Config::kKeys;
  Scores s;
  Weights weights;
  float rescale[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    max_[h] = -INFINITY;
    sum_[h] = 0;
  }
  ptx::mbarrier_wait(&small_.query_full[group()], query_phase_);
  query_phase_ ^= 1;
  ptx::mbarrier_wait(&small_.key_full[key_.slot], key_.phase);
  take_turn();
  start_scores(s);
  pass_turn();
  ptx::wgmma_wait<0>();
  ptx::pin(s);
  release(&small_.key_empty[key_.slot]);
  key_.skip(1);
  if (first_masked == 0) mask(s, item, 0);
  soften(s, rescale);
  round(s, weights);

  int tile = 1;
  for (; tile < min(first_masked, tiles); ++tile) step<false>(item, tile, s, weights);
  for (; tile < tiles; ++tile) step<true>(item, tile, s, weights);
  release(&small_.query_empty[group()]);
  ptx::mbarrier_wait(&small_.value_full[value_.slot], value_.phase);
  start_values(weights, tiles > 1);
  end_values();
}

template <class T, class Config>
__device__ void PrefillCta<T, Config>::write_rows(const PrefillItem& item, bool has_keys) {
  constexpr int kChunksPerPart = Config::kValueColumns / 8;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = first_row() + 8 * h;
    float sum = has_keys ? sum_[h] : 0.0f;
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    const bool is_empty = item.num_keys(row) <= 0;
    const float factor = is_empty ? 0.0f : 1.0f / sum;
    const bool is_live = row < item.rows;
    const int64_t token = item.q_row + row;
    const auto value = [&](int chunk, int e) {
      const float x = out_[chunk / kChunksPerPart][chunk % kChunksPerPart * 4 + 2 * h + e] * factor;
      return is_empty ? 0.0f : x;
    };
    const int64_t at = token * p_.out_token_stride + item.head * p_.out_head_stride;
    if (p_.out_is_f32) {
      float* to = static_cast<float*>(p_.out) + at + lane_ % 4 * 2;
#pragma unroll
      for (int chunk = 0; chunk < Config::kValue / 8; ++chunk)
        if (is_live) *reinterpret_cast<float2*>(to + chunk * 8) = {value(chunk, 0), value(chunk, 1)};
    } else {
      T* to = static_cast<T*>(p_.out) + at + lane_ % 4 * 8;
#pragma unroll
      for (int four = 0; four < Config::kValue / 32; ++four) {
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) x[i] = pack<T>(value(four * 4 + i, 0), value(four * 4 + i, 1));
        transpose_quad(x);
        if (is_live) *reinterpret_cast<uint4*>(to + four * 32) = make_uint4(x[0], x[1], x[2], x[3]);
      }
    }
    if (p_.lse != nullptr && is_live && lane_ % 4 == 0)
      p_.lse[token * p_.lse_token_stride + item.head * p_.lse_head_stride] =
          is_empty ? -INFINITY : (max_[h] + log2f(sum)) * kLn2;
  }
}

}  // namespace latent::attention::cuda
