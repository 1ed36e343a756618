// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA decode for any NVIDIA GPU since Ampere: mma.sync for the products, cp.async for the keys.
//
// A CTA holds kRows query rows of one request and walks its stretch of key tiles (partition.cuh), 32 keys at
// a time:
//
//   load tile (stages ahead) | S = Q.K^T, each warp a block | softmax, a few threads a row | O = O * f + P.V,
//   each warp
//                            |                              |                              | a block of
//                            columns
//
// Keys past a request's length are not read; their rows in shared memory are zeros (contract C2). A request
// that was cut is merged by its pieces' CTAs in a binary tree, the second to arrive at a node doing the work
// (merge_pieces). Caches of e4m3 codes are read by decode_codes.cuh, which puts columns of a warp in another
// order.
#pragma once

#include <cmath>

#include "attention/backends/cuda_common/decode_params.h"
#include "attention/backends/cuda_common/empty_rows.cuh"
#include "attention/backends/cuda_common/numbers.cuh"
#include "attention/backends/cuda_common/partition.cuh"
#include "attention/backends/cuda_common/piece_tree.cuh"
#include "attention/backends/cuda_sm80/decode_config.cuh"
#include "prim/ptx_sm80.cuh"

namespace latent::attention::cuda {

// cp.async takes the number of groups as a constant.
__device__ inline void wait_for_all_but(int groups) {
  switch (groups) {
    case 0:
      return ptx::cp_async_wait<0>();
    case 1:
      return ptx::cp_async_wait<1>();
    case 2:
      return ptx::cp_async_wait<2>();
    default:
      return ptx::cp_async_wait<3>();
  }
}

template <class T, class Config>
class DecodeCta {
 public:
  using Shared = typename Config::Shared;
  using Product = typename Config::Product;

  __device__ DecodeCta(const DecodeParams& params, const PartitionRule& rule, int stages,
                       unsigned char* memory)
      : p_(params),
        rule_(rule),
        stages_(stages),
        shared_(*reinterpret_cast<Shared*>(memory)),
        keys_(memory + sizeof(Shared)),
        part_(static_cast<int>(blockIdx.x) / params.num_row_tiles),
        row_tile_(static_cast<int>(blockIdx.x) % params.num_row_tiles),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32) {}

  __device__ void run() {
    write_empty_rows<T>(p_, Config::kRank, threadIdx.x, Config::kThreads);
    BatchTiles batch(p_.kv_lens, p_.num_seqs, rule_);
    line_ = measure_line(batch, p_.num_parts, rule_);
    if (part_ >= line_.parts || line_.total == 0) return;
    Cut begin, end;
    find_stretch(batch, line_, part_, rule_, &begin, &end);
    for (int seq = begin.seq; seq < p_.num_seqs && seq <= end.seq; ++seq) {
      const int tiles = num_tiles(p_.kv_lens[seq], rule_);
      const int first = seq == begin.seq ? begin.tile : 0;
      const int last = seq == end.seq ? end.tile : tiles;
      if (first >= last) continue;
      open_request(seq);
      if (num_rows_ <= row_tile_ * Config::kRows) continue;
      attend(first, last);
      if (first == 0 && last == tiles)
        write_rows();
      else
        merge_pieces(find_pieces(line_, seq == begin.seq ? begin.first : end.first, tiles, rule_));
    }
  }

 private:
  // Rows of this CTA's tile, in the request's own numbering (query token * num_heads + head).
  __device__ int row(int local) const { return row_tile_ * Config::kRows + local; }

  __device__ void open_request(int seq) {
    seq_ = seq;
    kv_len_ = p_.kv_lens[seq];
    q_start_ = p_.q_starts[seq];
    q_len_ = p_.q_starts[seq + 1] - q_start_;
    num_rows_ = q_len_ * p_.num_heads;
  }

  // Keys that a row sees: those up to its own position.
  __device__ int num_keys(int local) const {
    return row(local) < num_rows_ ? kv_len_ - q_len_ + row(local) / p_.num_heads + 1 : 0;
  }

  __device__ void load_query();
  __device__ void load_keys(int tile, int stage);
  __device__ void score(const T* keys);
  __device__ void soften(int tile, const unsigned char* keys);
  __device__ void rescale_output();
  __device__ void add_values(const T* keys);
  // The same for a cache of codes.
  __device__ void load_query_codes();
  __device__ void load_key_codes(int tile, int stage);
  __device__ void score_codes(const unsigned char* keys);
  __device__ void widen_units(const unsigned char* keys);
  __device__ void add_value_codes(const unsigned char* keys);
  __device__ int scale_group() const { return warp_ * Config::kValueTiles * 8 / 128; }
  // What the outputs of this warp's columns are multiplied by in the end.
  __device__ float output_unit() const;
  __device__ void attend(int first, int last);
  __device__ void merge_pieces(const Pieces& pieces);
  __device__ void store_partial(int slot);
  __device__ void load_and_merge(int slot, bool mine_is_left);
  __device__ void write_rows();
  __device__ void write_row(int local, int column, float a, float b);

  const DecodeParams& p_;
  const PartitionRule& rule_;
  const int stages_;
  Shared& shared_;
  unsigned char* keys_;
  const int part_, row_tile_, warp_, lane_;
  Line line_{};
  int seq_ = 0, kv_len_ = 0, q_start_ = 0, q_len_ = 0, num_rows_ = 0;

  // Output of this warp's columns, unnormalised until attend() ends: [row tile][column tile][mma layout].
  float out_[Config::kRowTiles][Config::kValueTiles][4];
  // Softmax state of the row that this thread softens.
  float max_ = 0, sum_ = 0, weight_sum_ = 0;
  // Of codes in blocks: the unit of each block's scales, a power of two, that of this warp's columns (an
  // index known at run time would move all of this to memory), and what their output is multiplied by as it
  // grows.
  uint32_t unit_[Config::kScaleGroups], own_unit_ = 0;
  float unit_rescale_ = 1;
};

template <class T, class Config>
__device__ void DecodeCta<T, Config>::load_query() {
  constexpr int kChunks = Config::kWidth / 8;
  const T* nope = static_cast<const T*>(p_.q_nope);
  const T* pe = static_cast<const T*>(p_.q_pe);
  for (int i = threadIdx.x; i < Config::kRows * kChunks; i += Config::kThreads) {
    const int local = i / kChunks, column = i % kChunks * 8;
    const bool live = row(local) < num_rows_;
    const int64_t token = q_start_ + (live ? row(local) / p_.num_heads : 0);
    const int64_t head = live ? row(local) % p_.num_heads : 0;
    const T* from =
        column < Config::kRank
            ? nope + token * p_.q_nope_token_stride + head * p_.q_nope_head_stride + column
            : pe + token * p_.q_pe_token_stride + head * p_.q_pe_head_stride + column - Config::kRank;
    ptx::cp_async_16(shared_.query + local * Config::kKeyStride + column, from, live);
  }
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::load_keys(int tile, int stage) {
  constexpr int kChunks = Config::kWidth / 8;
  const T* cache = static_cast<const T*>(p_.cache);
  const int32_t* table = p_.block_table + seq_ * p_.table_stride;
  T* to = reinterpret_cast<T*>(keys_ + stage * Config::kStageBytes);
  for (int i = threadIdx.x; i < Config::kTokens * kChunks; i += Config::kThreads) {
    const int local = i / kChunks, column = i % kChunks * 8;
    const int token = tile * Config::kTokens + local;
    const bool live = token < kv_len_;
    const T* from = cache;
    if (live)
      from += table[token / p_.page_tokens] * p_.cache_page_stride +
              token % p_.page_tokens * p_.cache_row_stride + column;
    ptx::cp_async_16(to + local * Config::kKeyStride + column, from, live);
  }
}

// Each warp: 16 rows by kScoreTiles * 8 tokens, two chains of products a tile.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::score(const T* keys) {
  const int row_tile = warp_ / Config::kColumnWarps;
  const int first_token = warp_ % Config::kColumnWarps * Config::kScoreTiles * 8;
  const T* query = shared_.query + (row_tile * 16 + lane_ % 16) * Config::kKeyStride + lane_ / 16 * 8;
  // Four 8x8 blocks of keys: columns k..k+31 of 8 tokens.
  const T* key = keys + (first_token + lane_ % 8) * Config::kKeyStride + lane_ / 8 * 8;
  float s[Config::kScoreTiles][2][4] = {};
  static_assert(Config::kWidth % 32 == 0, "two steps of 16 columns at a time");
#pragma unroll 3
  for (int k = 0; k < Config::kWidth; k += 32) {
    uint32_t a0[4], a1[4];
    ptx::ldmatrix_x4(a0, query + k);
    ptx::ldmatrix_x4(a1, query + k + 16);
#pragma unroll
    for (int n = 0; n < Config::kScoreTiles; ++n) {
      uint32_t b[4];
      ptx::ldmatrix_x4(b, key + n * 8 * Config::kKeyStride + k);
      ptx::mma_m16n8k16<T>(s[n][0], a0, b[0], b[1]);
      ptx::mma_m16n8k16<T>(s[n][1], a1, b[2], b[3]);
    }
  }
#pragma unroll
  for (int n = 0; n < Config::kScoreTiles; ++n) {
    float* to = shared_.scores + (row_tile * 16 + lane_ / 4) * Config::kScoreStride + first_token + n * 8 +
                lane_ % 4 * 2;
    to[0] = s[n][0][0] + s[n][1][0];
    to[1] = s[n][0][1] + s[n][1][1];
    to[8 * Config::kScoreStride] = s[n][0][2] + s[n][1][2];
    to[8 * Config::kScoreStride + 1] = s[n][0][3] + s[n][1][3];
  }
}

// kThreads / kRows neighbouring threads share a row. Running maximum and sum stay in their registers.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::soften(int tile, const unsigned char* keys_of_tile) {
  if constexpr (Config::kCodes == Codes::kBlocks) widen_units(keys_of_tile);
  constexpr int kSharers = Config::kThreads / Config::kRows;
  constexpr int kMine = Config::kTokens / kSharers;
  const int local = threadIdx.x / kSharers, share = threadIdx.x % kSharers;
  const float scale = p_.softmax_scale * kLog2E;
  const int keys = num_keys(local) - tile * Config::kTokens;
  float x[kMine];
  float largest = -INFINITY;
#pragma unroll
  for (int j = 0; j < kMine; ++j) {
    const int token = share + j * kSharers;
    x[j] = token < keys ? shared_.scores[local * Config::kScoreStride + token] * scale : -INFINITY;
    largest = fmaxf(largest, x[j]);
  }
#pragma unroll
  for (int d = 1; d < kSharers; d *= 2) largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, d));
  const float new_max = fmaxf(max_, largest);
  const float base = new_max == -INFINITY ? 0.0f : new_max;  // a row without keys so far
  const float rescale = ptx::exp2_approx(max_ - base);
  float sum = 0, weight_sum = 0;
#pragma unroll
  for (int j = 0; j < kMine; ++j) {
    const float weight = ptx::exp2_approx(x[j] - base);
    const int at = local * Config::kWeightStride + share + j * kSharers;
    sum += weight;  // for the LSE, which is good to fp32
    if constexpr (Config::kCodes == Codes::kBlocks) {
      const auto* scales = reinterpret_cast<const float*>(
          keys_of_tile + (share + j * kSharers) * Config::CodeRow::kStride + Config::kRank);
#pragma unroll
      for (int g = 0; g < Config::kScaleGroups; ++g) {
        // A key that the row does not see has no part, whatever its scale is.
        const float lifted = weight == 0 ? 0 : weight * (scales[g] * lift_of(unit_[g]));
        shared_.weights[g * Config::kRows * Config::kWeightStride + at] = from_float<Product>(lifted);
      }
      weight_sum += weight;
    } else {
      const Product rounded =
          from_float<Product>(Config::kHasCodes ? weight * (1 << kLogWeightLift) : weight);
      shared_.weights[at] = rounded;
      weight_sum += to_float(rounded);  // for the output: the weights that multiply the values add up to one
    }
  }
#pragma unroll
  for (int d = 1; d < kSharers; d *= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
    weight_sum += __shfl_xor_sync(0xFFFFFFFFu, weight_sum, d);
  }
  sum_ = sum_ * rescale + sum;
  weight_sum_ = weight_sum_ * rescale + weight_sum;
  max_ = new_max;
  if (share == 0) shared_.rescale[local] = rescale;
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::rescale_output() {
#pragma unroll
  for (int m = 0; m < Config::kRowTiles; ++m) {
    const float low = shared_.rescale[m * 16 + lane_ / 4] * unit_rescale_;
    const float high = shared_.rescale[m * 16 + lane_ / 4 + 8] * unit_rescale_;
#pragma unroll
    for (int n = 0; n < Config::kValueTiles; ++n) {
      out_[m][n][0] *= low;
      out_[m][n][1] *= low;
      out_[m][n][2] *= high;
      out_[m][n][3] *= high;
    }
  }
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::add_values(const T* keys) {
  const int first_column = warp_ * Config::kValueTiles * 8;
#pragma unroll
  for (int k = 0; k < Config::kTokens; k += 16) {
    uint32_t a[Config::kRowTiles][4];
#pragma unroll
    for (int m = 0; m < Config::kRowTiles; ++m)
      ptx::ldmatrix_x4(a[m],
                       shared_.weights + (m * 16 + lane_ % 16) * Config::kWeightStride + k + lane_ / 16 * 8);
    // Rows are tokens; transposed on the way, each load is two column tiles of 16 tokens.
    const T* value = keys + (k + lane_ % 16) * Config::kKeyStride + first_column + lane_ / 16 * 8;
#pragma unroll
    for (int n = 0; n < Config::kValueTiles; n += 2) {
      uint32_t b[4];
      ptx::ldmatrix_x4_trans(b, value + n * 8);
#pragma unroll
      for (int m = 0; m < Config::kRowTiles; ++m) {
        ptx::mma_m16n8k16<T>(out_[m][n], a[m], b[0], b[1]);
        ptx::mma_m16n8k16<T>(out_[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// Leaves the normalised output in out_, sums and maxima in shared memory.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::attend(int first, int last) {
  __syncthreads();  // the last request's readers of shared memory are done
  const auto load = [&](int tile, int stage) {
    if constexpr (Config::kHasCodes)
      load_key_codes(tile, stage);
    else
      load_keys(tile, stage);
  };
  if constexpr (Config::kHasCodes)
    load_query_codes();
  else
    load_query();
  for (int i = 0; i < stages_ - 1; ++i) {
    if (first + i < last) load(first + i, i);
    ptx::cp_async_commit();  // an empty group counts, too
  }
#pragma unroll
  for (int m = 0; m < Config::kRowTiles; ++m)
#pragma unroll
    for (int n = 0; n < Config::kValueTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) out_[m][n][i] = 0;
  max_ = -INFINITY;
  sum_ = weight_sum_ = 0;
#pragma unroll
  for (int g = 0; g < Config::kScaleGroups; ++g) unit_[g] = kLeastUnit;

  int stage = 0;
  for (int tile = first; tile < last; ++tile) {
    wait_for_all_but(stages_ - 2);  // one group a tile: then this tile has landed
    __syncthreads();  // writers: every thread's cp.async; readers: score. Also frees the stage that is
                      // refilled next
    const int ahead = tile + stages_ - 1;
    const int free_stage = stage == 0 ? stages_ - 1 : stage - 1;
    if (ahead < last) load(ahead, free_stage);
    ptx::cp_async_commit();
    const unsigned char* keys = keys_ + stage * Config::kStageBytes;
    if constexpr (Config::kHasCodes)
      score_codes(keys);
    else
      score(reinterpret_cast<const T*>(keys));
    __syncthreads();  // scores: warps to softening threads
    soften(tile, keys);
    __syncthreads();  // weights, rescale: softening threads to warps
    rescale_output();
    if constexpr (Config::kHasCodes)
      add_value_codes(keys);
    else
      add_values(reinterpret_cast<const T*>(keys));
    stage = stage + 1 == stages_ ? 0 : stage + 1;
  }
  __syncthreads();  // rescale: the last add_values is done with it
  constexpr int kSharers = Config::kThreads / Config::kRows;
  if (threadIdx.x % kSharers == 0) {
    shared_.row_max[threadIdx.x / kSharers] = max_;
    shared_.row_sum[threadIdx.x / kSharers] = sum_;
    shared_.rescale[threadIdx.x / kSharers] = weight_sum_;
  }
  __syncthreads();  // sums: softening threads to warps
#pragma unroll
  for (int m = 0; m < Config::kRowTiles; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = shared_.rescale[m * 16 + lane_ / 4 + half * 8];
      const float factor = sum > 0 ? output_unit() / sum : 0.0f;
#pragma unroll
      for (int n = 0; n < Config::kValueTiles; ++n) {
        out_[m][n][half * 2] *= factor;
        out_[m][n][half * 2 + 1] *= factor;
      }
    }
  __syncthreads();  // sums are read; from here on row_max holds the natural-log LSE
  if (threadIdx.x < Config::kRows) {
    const float sum = shared_.row_sum[threadIdx.x];
    shared_.row_max[threadIdx.x] = sum > 0 ? (shared_.row_max[threadIdx.x] + log2f(sum)) * kLn2 : -INFINITY;
  }
  __syncthreads();
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::store_partial(int slot) {
  const int64_t at = int64_t{slot} * p_.num_row_tiles + row_tile_;
  float* to = p_.partial_out + at * Config::kRows * Config::kRank + threadIdx.x * 4;
#pragma unroll
  for (int m = 0; m < Config::kRowTiles; ++m)
#pragma unroll
    for (int n = 0; n < Config::kValueTiles; ++n)
      __stcg(reinterpret_cast<float4*>(to + (m * Config::kValueTiles + n) * Config::kThreads * 4),
             make_float4(out_[m][n][0], out_[m][n][1], out_[m][n][2], out_[m][n][3]));
  if (threadIdx.x < Config::kRows)
    __stcg(p_.partial_lse + at * Config::kRows + threadIdx.x, shared_.row_max[threadIdx.x]);
}

// out_ and row_max become the union of this CTA's state with the one in `slot`. Total: empty with empty is
// empty.
template <class T, class Config>
__device__ void DecodeCta<T, Config>::load_and_merge(int slot, bool mine_is_left) {
  const int64_t at = int64_t{slot} * p_.num_row_tiles + row_tile_;
  if (threadIdx.x < Config::kRows) {
    const float mine = shared_.row_max[threadIdx.x];
    const float other = __ldcg(p_.partial_lse + at * Config::kRows + threadIdx.x);
    const float largest = fmaxf(mine, other);
    const float base = largest == -INFINITY ? 0.0f : largest;
    const float a = expf(mine - base), b = expf(other - base);
    const float sum = a + b;
    shared_.rescale[threadIdx.x] = sum > 0 ? a / sum : 0.0f;
    shared_.row_sum[threadIdx.x] = sum > 0 ? b / sum : 0.0f;
    shared_.row_max[threadIdx.x] = sum > 0 ? base + logf(sum) : -INFINITY;
  }
  __syncthreads();  // factors: row threads to all
  const float* from = p_.partial_out + at * Config::kRows * Config::kRank + threadIdx.x * 4;
#pragma unroll
  for (int m = 0; m < Config::kRowTiles; ++m) {
    const int low = m * 16 + lane_ / 4, high = low + 8;
    const float mine_low = shared_.rescale[low], mine_high = shared_.rescale[high];
    const float other_low = shared_.row_sum[low], other_high = shared_.row_sum[high];
#pragma unroll
    for (int n = 0; n < Config::kValueTiles; ++n) {
      const float4 x = __ldcg(
          reinterpret_cast<const float4*>(from + (m * Config::kValueTiles + n) * Config::kThreads * 4));
      out_[m][n][0] = join(out_[m][n][0], mine_low, x.x, other_low, mine_is_left);
      out_[m][n][1] = join(out_[m][n][1], mine_low, x.y, other_low, mine_is_left);
      out_[m][n][2] = join(out_[m][n][2], mine_high, x.z, other_high, mine_is_left);
      out_[m][n][3] = join(out_[m][n][3], mine_high, x.w, other_high, mine_is_left);
    }
  }
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::merge_pieces(const Pieces& pieces) {
  struct Steps {
    DecodeCta& cta;
    __device__ void store(int slot) { cta.store_partial(slot); }
    __device__ void merge(int slot, bool mine_is_left) { cta.load_and_merge(slot, mine_is_left); }
    __device__ void sync() { __syncthreads(); }
  } steps{*this};
  if (climb_tree(pieces, part_, p_.arrived + row_tile_, p_.num_row_tiles, threadIdx.x == 0, &shared_.flag,
                 steps))
    write_rows();
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::write_row(int local, int column, float a, float b) {
  if (row(local) >= num_rows_) return;
  const int64_t token = q_start_ + row(local) / p_.num_heads, head = row(local) % p_.num_heads;
  T* to = static_cast<T*>(p_.out) + token * p_.out_token_stride + head * p_.out_head_stride + column;
  struct alignas(4) Pair {
    T a, b;
  };
  *reinterpret_cast<Pair*>(to) = Pair{from_float<T>(a), from_float<T>(b)};
}

template <class T, class Config>
__device__ void DecodeCta<T, Config>::write_rows() {
#pragma unroll
  for (int m = 0; m < Config::kRowTiles; ++m)
#pragma unroll
    for (int n = 0; n < Config::kValueTiles; ++n) {
      const int local = m * 16 + lane_ / 4, first = (warp_ * Config::kValueTiles + n) * 8;
      if constexpr (Config::kHasCodes) {
        // Tiles come in twos, the even columns of 16 and the odd ones.
        if (n % 2 != 0) continue;
        const int column = first + lane_ % 4 * 4;
        const float(&even)[4] = out_[m][n];
        const float(&odd)[4] = out_[m][n + 1];
        write_row(local, column, even[0], odd[0]);
        write_row(local, column + 2, even[1], odd[1]);
        write_row(local + 8, column, even[2], odd[2]);
        write_row(local + 8, column + 2, even[3], odd[3]);
      } else {
        write_row(local, first + lane_ % 4 * 2, out_[m][n][0], out_[m][n][1]);
        write_row(local + 8, first + lane_ % 4 * 2, out_[m][n][2], out_[m][n][3]);
      }
    }
  if (p_.lse == nullptr || threadIdx.x >= Config::kRows || row(threadIdx.x) >= num_rows_) return;
  const int r = row(threadIdx.x);
  p_.lse[(q_start_ + r / p_.num_heads) * p_.lse_token_stride + r % p_.num_heads * p_.lse_head_stride] =
      shared_.row_max[threadIdx.x];
}

template <class T, class Config>
__device__ float DecodeCta<T, Config>::output_unit() const {
  float unit = Config::kHasCodes ? p_.cache_scale : 1.0f;
  if constexpr (Config::kCodes == Codes::kBlocks) unit = 1.0f / lift_of(own_unit_);
  return unit;
}

template <class T, class Config>
__global__ void __launch_bounds__(Config::kThreads, 1)
    decode_kernel(const __grid_constant__ DecodeParams params, const __grid_constant__ PartitionRule rule,
                  int stages) {
  extern __shared__ __align__(16) unsigned char memory[];
  DecodeCta<T, Config>(params, rule, stages, memory).run();
}

}  // namespace latent::attention::cuda
