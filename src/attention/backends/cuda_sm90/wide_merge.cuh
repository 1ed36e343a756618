// SPDX-License-Identifier: Apache-2.0
// The wide decode kernel's end of a stretch: outputs become rows, or pieces of a request that several CTAs
// share and then merge (cuda_common/piece_meeting.cuh).
#pragma once

#include <cmath>

#include "attention/backends/cuda_common/piece_meeting.cuh"
#include "attention/backends/cuda_sm90/wide_cta.cuh"

namespace latent::attention::cuda {

template <class T, class Config>
__device__ Pieces WideCta<T, Config>::pieces_of_request(int tiles) const {
  const Line line{
      .total = small_.total, .parts = small_.parts, .fixed = small_.fixed, .even = FastDivisor(small_.even)};
  return find_pieces(line, seq_ == small_.begin.seq ? small_.begin.first : small_.end.first, tiles, rule_);
}

template <class T, class Config>
__device__ void WideCta<T, Config>::serve() {
  walk([&](int first, int last, int tiles) {
    attend(first, last);
    normalise();
    if (first == 0 && last == tiles)
      write_rows();
    else
      finish_piece(pieces_of_request(tiles));
  });
}

// Divides by the sum of the weights as the products saw them.
template <class T, class Config>
__device__ void WideCta<T, Config>::normalise() {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    sum_[h] += __shfl_xor_sync(0xFFFFFFFFu, sum_[h], 1);
    sum_[h] += __shfl_xor_sync(0xFFFFFFFFu, sum_[h], 2);
    exact_[h] += __shfl_xor_sync(0xFFFFFFFFu, exact_[h], 1);
    exact_[h] += __shfl_xor_sync(0xFFFFFFFFu, exact_[h], 2);
    if (lane_ % 4 == 0) {
      small_.sum[group()][local_row(h)] = sum_[h];
      small_.exact[group()][local_row(h)] = exact_[h];
    }
  }
  consumer_sync();  // sums: each group's to the other; both are done with weights and maxima
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = local_row(h);
    const float sum = small_.sum[0][r] + small_.sum[1][r];
    const float factor = sum > 0 ? 1.0f / sum : 0.0f;
    const float base = max_[h] == -INFINITY ? 0.0f : max_[h];
    state_[h] = {base + log2f(sum), base + log2f(small_.exact[0][r] + small_.exact[1][r])};
#pragma unroll
    for (int j = 0; j < Config::kOutputs / 4; ++j) {
      out_[4 * j + 2 * h] *= factor;
      out_[4 * j + 2 * h + 1] *= factor;
    }
  }
  consumer_sync();  // the sums are read
}

template <class T, class Config>
__device__ T* WideCta<T, Config>::out_row(int local) const {
  return static_cast<T*>(p_.out) + (q_start_ + row(local) / p_.num_heads) * p_.out_token_stride +
         row(local) % p_.num_heads * p_.out_head_stride;
}

template <class T, class Config>
__device__ void WideCta<T, Config>::write_lse(int local, float lse) {
  if (p_.lse == nullptr || row(local) >= num_rows_) return;
  p_.lse[(q_start_ + row(local) / p_.num_heads) * p_.lse_token_stride +
         row(local) % p_.num_heads * p_.lse_head_stride] = lse * kLn2;
}

template <class T, class Config>
__device__ void WideCta<T, Config>::write_rows() {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int local = local_row(h);
    const bool live = row(local) < num_rows_;
    T* to =
        live ? out_row(local) + group() * Config::kHalfBoxes * Config::kBoxColumns + lane_ % 4 * 8 : nullptr;
#pragma unroll
    for (int j = 0; j < Config::kOutputs / 4; j += 4) {
      uint32_t x[4];
#pragma unroll
      for (int b = 0; b < 4; ++b) x[b] = pack<T>(out_[4 * (j + b) + 2 * h], out_[4 * (j + b) + 2 * h + 1]);
      transpose_quad(x);
      if (live) *reinterpret_cast<uint4*>(to + j * 8) = make_uint4(x[0], x[1], x[2], x[3]);
    }
    if (group() == 0 && lane_ % 4 == 0) write_lse(local, state_[h].exact);
  }
}

// Leaves this CTA's piece and merges the shares that fall to it.
template <class T, class Config>
__device__ void WideCta<T, Config>::finish_piece(const Pieces& pieces) {
  const int piece = part_ - pieces.first_part;
  leave_piece(state_of(pieces, piece));
  consumer_sync();  // the piece: all to the leader
  // On a line the last piece is the beginning of a part that goes on.
  const int helpers = small_.even > 0 ? pieces.count : pieces.count - 1;
  const int shares = 1 << (31 - __clz(min(helpers, Config::kQuads / Config::kConsumers)));
  int32_t* counter = p_.arrived + state_of(pieces, 0);
  Meeting meeting{};
  if (threadIdx.x == 0) {
    meeting = meet_pieces(counter, piece, pieces.count, shares, Config::kPatience);
    small_.first_share = meeting.first_share;
    small_.end_share = meeting.end_share;
  }
  consumer_sync();  // what the leader saw: to all
  for (int share = small_.first_share; share < small_.end_share; ++share) merge_share(pieces, share, shares);
  if (threadIdx.x == 0) leave_meeting(counter, meeting, pieces.count, shares);
}

// Quads: the accumulators 4j .. 4j + 3 of a thread, [group][j][thread of the group].
template <class T, class Config>
__device__ void WideCta<T, Config>::leave_piece(int64_t state) {
  float4* to = reinterpret_cast<float4*>(p_.partial_out) + state * Config::kQuads +
               group() * (Config::kQuads / 2) + threadIdx.x % Config::kGroupThreads;
#pragma unroll
  for (int j = 0; j < Config::kOutputs / 4; ++j)
    __stcg(to + j * Config::kGroupThreads,
           make_float4(out_[4 * j], out_[4 * j + 1], out_[4 * j + 2], out_[4 * j + 3]));
  if (group() == 1 || lane_ % 4 != 0) return;
#pragma unroll
  for (int h = 0; h < 2; ++h)
    __stcg(partial_state(state) + local_row(h), make_float2(state_[h].rounded, state_[h].exact));
}

template <class T, class Config>
__device__ void WideCta<T, Config>::merge_share(const Pieces& pieces, int share, int shares) {
  weigh_rows(pieces);
  if (share == 0 && threadIdx.x < Config::kRows) write_lse(threadIdx.x, small_.exact[0][threadIdx.x]);
  const int quads = Config::kQuads / shares, first = share * quads;
  if (shares <= 4)
    combine<8, 2>(pieces, first, quads);
  else
    combine<1, 16>(pieces, first, quads);
}

// Bases and factors of the pieces' weights, and the LSEs of their union; neighbouring lanes share a row and
// take its pieces in turns. Total: empty with empty is empty.
template <class T, class Config>
__device__ void WideCta<T, Config>::weigh_rows(const Pieces& pieces) {
  constexpr int kLanes = Config::kConsumers / Config::kRows, kAtOnce = 4;
  const int local = threadIdx.x / kLanes;
  const float2* states = partial_state(state_of(pieces, 0)) + local;
  const int stride = p_.num_row_tiles * Config::kRows;  // from piece to piece
  float base = -1e38f, rounded = 0, exact = 0;          // the sums are relative to the base
#pragma unroll 1
  for (int begin = threadIdx.x % kLanes; begin < pieces.count; begin += kAtOnce * kLanes) {
    float2 state[kAtOnce];
    float largest = base;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int s = begin + i * kLanes;
      state[i] = s < pieces.count ? __ldcg(states + s * stride) : make_float2(-INFINITY, -INFINITY);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) largest = fmaxf(largest, state[i].x);
    rounded *= exp2f(base - largest);
    exact *= exp2f(base - largest);
    base = largest;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      rounded += exp2f(state[i].x - base);
      exact += exp2f(state[i].y - base);
    }
  }
  float largest = base;
#pragma unroll
  for (int d = 1; d < kLanes; d *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, d));
  rounded *= exp2f(base - largest);
  exact *= exp2f(base - largest);
#pragma unroll
  for (int d = 1; d < kLanes; d *= 2) {
    rounded += __shfl_xor_sync(0xFFFFFFFFu, rounded, d);
    exact += __shfl_xor_sync(0xFFFFFFFFu, exact, d);
  }
  if (threadIdx.x % kLanes == 0) {
    small_.max[0][local] = largest;
    small_.sum[0][local] = rounded > 0 ? 1.0f / rounded : 0.0f;
    small_.exact[0][local] = largest + log2f(exact);
  }
  consumer_sync();  // bases and factors: all to all
}

// Weights of pieces `first` and following, [piece][row], where a tile's were.
template <class T, class Config>
__device__ void WideCta<T, Config>::weigh_pieces(const Pieces& pieces, int first) {
  float* weights = reinterpret_cast<float*>(weights_);
  consumer_sync();  // those of before are read
#pragma unroll 4
  for (int i = threadIdx.x; i < Config::kPiecesAtOnce * Config::kRows; i += Config::kConsumers) {
    const int s = first + i / Config::kRows, r = i % Config::kRows;
    weights[i] =
        s < pieces.count
            ? exp2f(__ldcg(partial_state(state_of(pieces, s)) + r).x - small_.max[0][r]) * small_.sum[0][r]
            : 0.0f;
  }
  consumer_sync();  // weights: all to all
}

// Quads first_quad and following of the request, in the order of the pieces. All of a thread's are of the
// same two rows.
template <class T, class Config>
template <int kPlaces, int kRun>
__device__ void WideCta<T, Config>::combine(const Pieces& pieces, int first_quad, int quads) {
  static_assert(Config::kPiecesAtOnce % kRun == 0 && Config::kConsumers % Config::kGroupThreads == 0);
  const int local = local_row(0);
  const float* weights = reinterpret_cast<const float*>(weights_) + local;
  const float4* outs = reinterpret_cast<const float4*>(p_.partial_out) + state_of(pieces, 0) * Config::kQuads;
  const int stride = p_.num_row_tiles * Config::kQuads;  // from piece to piece
  const int end = first_quad + quads;
  T* const low = row(local) < num_rows_ ? out_row(local) : nullptr;
  T* const high = row(local + 8) < num_rows_ ? out_row(local + 8) : nullptr;
#pragma unroll 1
  for (int quad = first_quad + static_cast<int>(threadIdx.x); quad - static_cast<int>(threadIdx.x) < end;
       quad += kPlaces * Config::kConsumers) {
    float4 sum[kPlaces] = {};
#pragma unroll 1
    for (int s = 0; s < pieces.count; s += kRun) {
      float4 x[kRun][kPlaces];
#pragma unroll
      for (int d = 0; d < kRun; ++d)
#pragma unroll
        for (int q = 0; q < kPlaces; ++q)
          x[d][q] = __ldcg(outs + min(s + d, pieces.count - 1) * stride +
                           min(quad + q * Config::kConsumers, end - 1));
      const bool stay = pieces.count <= Config::kPiecesAtOnce && quad >= first_quad + Config::kConsumers;
      if (s % Config::kPiecesAtOnce == 0 && !stay) weigh_pieces(pieces, s);
#pragma unroll
      for (int d = 0; d < kRun; ++d) {
        const float* w = weights + (s + d) % Config::kPiecesAtOnce * Config::kRows;
#pragma unroll
        for (int q = 0; q < kPlaces; ++q) {
          sum[q].x = fmaf(x[d][q].x, w[0], sum[q].x);
          sum[q].y = fmaf(x[d][q].y, w[0], sum[q].y);
          sum[q].z = fmaf(x[d][q].z, w[8], sum[q].z);
          sum[q].w = fmaf(x[d][q].w, w[8], sum[q].w);
        }
      }
    }
#pragma unroll
    for (int q = 0; q < kPlaces; ++q) {
      const int at = quad + q * Config::kConsumers, column = at / Config::kGroupThreads * 8 + lane_ % 4 * 2;
      if (at >= end) break;
      if (low != nullptr) *reinterpret_cast<uint32_t*>(low + column) = pack<T>(sum[q].x, sum[q].y);
      if (high != nullptr) *reinterpret_cast<uint32_t*>(high + column) = pack<T>(sum[q].z, sum[q].w);
    }
  }
  consumer_sync();  // weights, bases and factors are read
}

}  // namespace latent::attention::cuda
