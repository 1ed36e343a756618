// SPDX-License-Identifier: Apache-2.0
// The narrow decode kernel's end of a stretch: outputs of groups and pieces become rows.
//
// The groups of a CTA meet in shared memory. If the request was cut, the CTA leaves its piece in global
// memory, and those whose stretch ends here wait for the other pieces and then share out the merge:
//
//   part 0   ... |stream|leave|wait|share 0 of all pieces|
//   part 1   ... |stream  |leave|..|share 1 of all pieces|
//   part 2   ... |stream|leave| next request's stream ...        it has more to do: it only leaves its piece
//
// Nobody relies on anybody to run at the same time: whoever waited too long goes away, and the last to leave
// a piece, who sees them all, takes the shares that nobody took. The order of the sums is fixed by the
// pieces, not by who merges.
#pragma once

#include <cmath>

#include "attention/backends/cuda_common/piece_meeting.cuh"
#include "attention/backends/cuda_sm90/narrow_cta.cuh"

namespace latent::attention::cuda {

__device__ inline float4 plus(const float4& a, const float4& b) {
  return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w);
}

// Puts the group's softmax state where both groups see it.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::leave_sums() {
  const auto over_lanes = [](float x) {
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 4);
    x += __shfl_xor_sync(0xFFFFFFFFu, x, 8);
    return x + __shfl_xor_sync(0xFFFFFFFFu, x, 16);
  };
  auto& state = small_.state[group()];
#pragma unroll
  for (int c = 0; c < Config::kColumns; ++c) {
    const float exact = over_lanes(sum_[c]), rounded = over_lanes(rounded_[c]);
    if (lane_ >= 4) continue;
    reinterpret_cast<float*>(&state.exact[local_row(c)])[warp_ % 4] = exact;
    reinterpret_cast<float*>(&state.rounded[local_row(c)])[warp_ % 4] = rounded;
    if (warp_ % 4 == 0) state.max[local_row(c)] = max_[c];
  }
}

// The factor of each group's outputs of a row, and the row's state: its LSE in base 2 by the weights as they
// met the values (x), and by the exact ones (y). Total: empty with empty is empty.
template <class T, class Config>
__device__ float2 NarrowCta<T, Config>::weigh_groups(int local) {
  static_assert(Config::kGroups == 2);
  const auto sum_of = [](const float4& x) { return (x.x + x.y) + (x.z + x.w); };
  const auto &a = small_.state[0], &b = small_.state[1];
  const float largest = fmaxf(a.max[local], b.max[local]);
  const float base = largest == -INFINITY ? 0.0f : largest;
  const float of_a = exp2f(a.max[local] - base), of_b = exp2f(b.max[local] - base);
  const float rounded = sum_of(a.rounded[local]) * of_a + sum_of(b.rounded[local]) * of_b;
  const float exact = sum_of(a.exact[local]) * of_a + sum_of(b.exact[local]) * of_b;
  const float factor = rounded == 0 ? 0.0f : 1.0f / rounded;
  small_.factor[0][local] = of_a * factor;
  small_.factor[1][local] = of_b * factor;
  return make_float2(base + log2f(rounded), base + log2f(exact));
}

// Passes kBoxesAtOnce boxes of out_, from kFirst on, to the other group, which holds the same elements thread
// by thread.
template <class T, class Config>
template <int kFirst>
__device__ void NarrowCta<T, Config>::pass_boxes() {
#pragma unroll
  for (int b = 0; b < Config::kBoxesAtOnce; ++b)
#pragma unroll
    for (int j = 0; j < Config::kFours; ++j) {
      const float* x = &out_[kFirst + b][j * 4];
      *passed(group(), b, j) = make_float4(x[0], x[1], x[2], x[3]);
    }
}

// Makes the boxes those of both groups, divided by the sums.
template <class T, class Config>
template <int kFirst>
__device__ void NarrowCta<T, Config>::take_boxes() {
  const int me = group();
#pragma unroll
  for (int j = 0; j < Config::kFours; ++j) {
    const float2 mine_by = *reinterpret_cast<const float2*>(&small_.factor[me][local_row(2 * j)]);
    const float2 theirs_by = *reinterpret_cast<const float2*>(&small_.factor[1 - me][local_row(2 * j)]);
#pragma unroll
    for (int b = 0; b < Config::kBoxesAtOnce; ++b) {
      const float4 theirs = *passed(1 - me, b, j);
      float* x = &out_[kFirst + b][j * 4];
      x[0] = fmaf(x[0], mine_by.x, theirs.x * theirs_by.x);
      x[1] = fmaf(x[1], mine_by.y, theirs.y * theirs_by.y);
      x[2] = fmaf(x[2], mine_by.x, theirs.z * theirs_by.x);
      x[3] = fmaf(x[3], mine_by.y, theirs.w * theirs_by.y);
    }
  }
}

// Each group ends up with its half of the boxes for both.
template <class T, class Config>
template <int kFirst>
__device__ void NarrowCta<T, Config>::join_groups() {
  by_group([&]<int kMine>() { pass_boxes<Config::kHalf - kMine + kFirst>(); });
  consumer_sync();  // boxes and factors: all to all
  by_group([&]<int kMine>() { take_boxes<kMine + kFirst>(); });
  if constexpr (kFirst + Config::kBoxesAtOnce < Config::kHalf) {
    consumer_sync();  // the boxes are read
    join_groups<kFirst + Config::kBoxesAtOnce>();
  }
}

template <class T, class Config>
__device__ void NarrowCta<T, Config>::finish(const Pieces& pieces, bool even) {
  const int piece = part_ - pieces.first_part;
  leave_sums();
  consumer_sync();  // sums: all to all; the query is not needed any more
  if (threadIdx.x < Config::kRows) {
    const float2 state = weigh_groups(threadIdx.x);
    if (pieces.count == 1)
      write_lse(threadIdx.x, state.y);
    else
      __stcg(partial_states(pieces, threadIdx.x) + piece, state);
  }
  join_groups<0>();
  by_group([&]<int kMine>() {
    if (pieces.count == 1)
      write_output<kMine>();
    else
      leave_piece<kMine>(state_of(pieces, piece));
  });
  if (pieces.count == 1) return;
  // On a line the last piece is the beginning of a part that goes on.
  const int helpers = even ? pieces.count : pieces.count - 1;
  const int shares = 1 << (31 - __clz(min(helpers, Config::kStateFours / 8)));
  int32_t* counter = p_.arrived + state_of(pieces, 0);
  Meeting meeting{};
  consumer_sync();  // the piece: all to the leader
  if (threadIdx.x == 0) {
    meeting = meet_pieces(counter, piece, pieces.count, shares, Config::kPatience);
    small_.first_share = meeting.first_share;
    small_.end_share = meeting.end_share;
  }
  consumer_sync();  // what the leader saw: to all
  for (int share = small_.first_share; share < small_.end_share; ++share) merge_share(pieces, share, shares);
  if (threadIdx.x == 0) leave_meeting(counter, meeting, pieces.count, shares);
}

// Four elements of the accumulator layout as a thread holds them: two rows, columns c and c + 8. Lanes four
// apart hold neighbouring columns: each of two gets the pair of one row.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::write_four(int four, const float4& x, bool valid) {
  constexpr int kBoxFours = Config::kFours * Config::kGroupThreads;
  const int thread = four % Config::kGroupThreads, odd = thread / 4 % 2;
  if constexpr (Config::kHasCodes) return write_four_codes(four, x, valid);
  const float low = __shfl_xor_sync(0xFFFFFFFFu, odd ? x.x : x.y, 4);
  const float high = __shfl_xor_sync(0xFFFFFFFFu, odd ? x.z : x.w, 4);
  const int r = row(four % kBoxFours / Config::kGroupThreads * 8 + thread % 4 * 2 + odd);
  if (!valid || r >= num_rows_) return;
  const int column = four / kBoxFours * Config::kBoxColumns + thread / 32 * 16 + thread % 32 / 8 * 2;
  T* to = static_cast<T*>(p_.out) + (q_start_ + heads_.divide(r)) * p_.out_token_stride +
          heads_.remainder(r) * p_.out_head_stride + column;
  *reinterpret_cast<uint32_t*>(to) = odd ? pack<T>(low, x.y) : pack<T>(x.x, low);
  *reinterpret_cast<uint32_t*>(to + 8) = odd ? pack<T>(high, x.w) : pack<T>(x.z, high);
}

template <class T, class Config>
template <int kMine>
__device__ void NarrowCta<T, Config>::write_output() {
#pragma unroll
  for (int b = kMine; b < kMine + Config::kHalf; ++b)
#pragma unroll
    for (int j = 0; j < Config::kFours; ++j) {
      const float* x = &out_[b][j * 4];
      write_four((b * Config::kFours + j) * Config::kGroupThreads + threadIdx.x % Config::kGroupThreads,
                 make_float4(x[0], x[1], x[2], x[3]), true);
    }
}

template <class T, class Config>
template <int kMine>
__device__ void NarrowCta<T, Config>::leave_piece(int64_t state) {
  float4* to = partial_out(state) + threadIdx.x % Config::kGroupThreads;
#pragma unroll
  for (int b = kMine; b < kMine + Config::kHalf; ++b)
#pragma unroll
    for (int j = 0; j < Config::kFours; ++j) {
      const float* x = &out_[b][j * 4];
      __stcg(to + (b * Config::kFours + j) * Config::kGroupThreads, make_float4(x[0], x[1], x[2], x[3]));
    }
}

// The weight of each piece in each row, in the query's memory: [piece][row]; neighbouring lanes take the
// pieces of a row in turns.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::weigh_pieces(const Pieces& pieces) {
  constexpr int kLanes = Config::kConsumers / Config::kRows;  // of a row
  constexpr int kAtOnce = 4;
  const int local = threadIdx.x / kLanes, first = threadIdx.x % kLanes;
  const float2* states = partial_states(pieces, local);
  float* weights = reinterpret_cast<float*>(query_) + local;
  float largest = -1e38f, exact = 0;  // the sum is relative to the largest so far
#pragma unroll 1
  for (int begin = first; begin < pieces.count; begin += kAtOnce * kLanes) {
    float2 state[kAtOnce];  // by rounded and by exact weights
    float base = largest;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int s = begin + i * kLanes;
      state[i] = s < pieces.count ? __ldcg(states + s) : make_float2(-INFINITY, -INFINITY);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      base = fmaxf(base, state[i].x);
      if (begin + i * kLanes < pieces.count) weights[(begin + i * kLanes) * Config::kRows] = state[i].x;
    }
    exact *= ptx::exp2_approx(largest - base);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) exact += ptx::exp2_approx(state[i].y - base);
    largest = base;
  }
  float base = largest;
#pragma unroll 1
  for (int d = 1; d < kLanes; d *= 2) base = fmaxf(base, __shfl_xor_sync(0xFFFFFFFFu, base, d));
  exact *= ptx::exp2_approx(largest - base);
  float rounded = 0;
#pragma unroll 1
  for (int s = first; s < pieces.count; s += kLanes) {
    float& weight = weights[s * Config::kRows];
    weight = ptx::exp2_approx(weight - base);
    rounded += weight;
  }
#pragma unroll 1
  for (int d = 1; d < kLanes; d *= 2) {
    exact += __shfl_xor_sync(0xFFFFFFFFu, exact, d);
    rounded += __shfl_xor_sync(0xFFFFFFFFu, rounded, d);
  }
  if (first == 0) {
    small_.factor[0][local] = rounded == 0 ? 0.0f : 1.0f / rounded;
    small_.lse[local] = base + log2f(exact);
  }
}

// A share of the columns, of all pieces: so many fours a thread. Where there are fewer fours than threads,
// teams of threads take pieces in turns and meet in shared memory. The first fours are asked for before the
// weights are known.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::merge_share(const Pieces& pieces, int share, int shares) {
  constexpr int kDeep = Config::kRows == 16 ? 8 : 4;  // with 32 rows registers are short
  const int fours = Config::kStateFours / shares, side = min(fours, Config::kConsumers);
  const int team = threadIdx.x / side, teams = Config::kConsumers / side;
  const int stride = p_.num_row_tiles * Config::kStateFours;  // from piece to piece
  const float* weights = reinterpret_cast<const float*>(query_);
#pragma unroll 1
  for (int at = threadIdx.x % side; at < fours; at += side) {
    const int four = share * fours + at;
    const int local = four / Config::kGroupThreads % Config::kFours * 8 + four % 4 * 2;
    const float4* outs = partial_out(state_of(pieces, 0)) + four;
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 1
    for (int begin = 0; begin < pieces.count; begin += kDeep * teams) {
      float4 y[kDeep];
#pragma unroll
      for (int d = 0; d < kDeep; ++d) {
        const int s = begin + d * teams + team;
        y[d] = s < pieces.count ? __ldcg(outs + s * stride) : make_float4(0, 0, 0, 0);
      }
      if (begin == 0 && at < side) {
        weigh_pieces(pieces);
        consumer_sync();  // weights: all to all
      }
#pragma unroll
      for (int d = 0; d < kDeep; ++d) {
        const int s = begin + d * teams + team;
        if (s >= pieces.count) continue;
        const float2 by = *reinterpret_cast<const float2*>(weights + s * Config::kRows + local);
        sum.x = fmaf(y[d].x, by.x, sum.x);
        sum.y = fmaf(y[d].y, by.y, sum.y);
        sum.z = fmaf(y[d].z, by.x, sum.z);
        sum.w = fmaf(y[d].w, by.y, sum.w);
      }
    }
    if (teams > 1) add_teams(&sum, side);
    const float2 by = *reinterpret_cast<const float2*>(&small_.factor[0][local]);
    write_four(four, make_float4(sum.x * by.x, sum.y * by.y, sum.z * by.x, sum.w * by.y), team == 0);
  }
  if (share == 0 && threadIdx.x < Config::kRows) write_lse(threadIdx.x, small_.lse[threadIdx.x]);
  consumer_sync();  // weights and sums are read
}

// The first team's sums become those of all.
template <class T, class Config>
__device__ void NarrowCta<T, Config>::add_teams(float4* x, int side) {
  float4* sums = reinterpret_cast<float4*>(weights_);
  sums[threadIdx.x] = *x;
  consumer_sync();  // sums: all to the first team
  if (threadIdx.x >= side) return;
#pragma unroll 4
  for (int other = threadIdx.x + side; other < Config::kConsumers; other += side) *x = plus(*x, sums[other]);
}

template <class T, class Config>
__device__ void NarrowCta<T, Config>::write_lse(int local, float lse) {
  const int r = row(local);
  if (p_.lse == nullptr || r >= num_rows_) return;
  p_.lse[(q_start_ + heads_.divide(r)) * p_.lse_token_stride + heads_.remainder(r) * p_.lse_head_stride] =
      lse * kLn2;
}

}  // namespace latent::attention::cuda
