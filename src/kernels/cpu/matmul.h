// SPDX-License-Identifier: Apache-2.0
// What the CPU matrix operators share: the choice of kernels, scratch memory, packing, products by blocks of
// rows. The order of every sum, and why it is the same for every number of tokens, stands in
// matmul_kernels.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/check.h"
#include "base/cpu_features.h"
#include "base/math.h"
#include "base/parallel.h"
#include "kernels/cpu/matmul_kernels.h"
#include "ops/linear.h"
#include "tensor/tensor_view.h"

namespace latent::kernels::cpu {

enum class Isa { kAvx2, kAvx512, kAvx512Bf16 };

// Null, or why this instruction set's kernels do not serve a weight (of rank 2 or 3) and activations.
const char* refuse(Isa isa, const CpuFeatures& features, const ops::WeightView& weight, const TensorView& x,
                   const TensorView& out);
// Only where refuse() is null.
const MatmulKernels& kernels_for(Isa isa, const ops::WeightView& weight);

// Tokens of one pass over the weights: more are taken in turns, which bounds the workspace.
constexpr int64_t kTokenBlock = 512;
// Weight rows whose products are held before they are stored.
constexpr int64_t kRowBlock = 64;
constexpr int64_t kRowStride = kRowBlock + 4;  // room for the last tile

// Hands out 64-byte aligned parts of a workspace; without memory it only counts.
class Arena {
 public:
  explicit Arena(std::span<std::byte> memory = {}) : memory_(memory) {}

  template <class T>
  T* take(int64_t count) {
    const size_t at = used_;
    used_ += round_up(static_cast<size_t>(count) * sizeof(T), size_t{64});
    if (memory_.empty()) return nullptr;
    CHECK(used_ <= memory_.size(), "a workspace of {} bytes, {} are needed", memory_.size(), used_);
    return reinterpret_cast<T*>(memory_.data() + at);
  }
  size_t used() const { return used_; }

 private:
  std::span<std::byte> memory_;
  size_t used_ = 0;
};

inline int64_t padded_cols(const MatmulKernels& k, int64_t cols) {
  return round_up<int64_t>(cols, k.chunk_unit);
}

inline int group_of(const MatmulKernels& k, int64_t num_tokens) {
  return num_tokens <= 1 ? 1 : k.tile_tokens;
}

// Rows of packed memory that `num_tokens` take.
inline int64_t padded_tokens(const MatmulKernels& k, int64_t num_tokens) {
  return round_up<int64_t>(num_tokens, group_of(k, num_tokens));
}

// The most that padded_tokens can be for up to `num_tokens`.
inline int64_t most_padded_tokens(const MatmulKernels& k, int64_t num_tokens) {
  return round_up<int64_t>(num_tokens, k.tile_tokens);
}

inline PackedTokens packed_tokens(const MatmulKernels& k, const void* data, int64_t num_tokens,
                                  int64_t cols) {
  return {.data = data,
          .num_tokens = num_tokens,
          .num_chunks = padded_cols(k, cols) / k.chunk,
          .group = group_of(k, num_tokens)};
}

// Threads worth waking for so many multiplications: each should have a few microseconds of them.
inline int team_size(int num_threads, int64_t multiplications) {
  constexpr int64_t kPerThread = 256 << 10;
  return static_cast<int>(std::clamp<int64_t>(multiplications / kPerThread, 1, num_threads));
}

WeightRows weight_rows(const ops::WeightView& weight);

// One thread's scratch of a product over up to `cols` columns.
struct ThreadBuffers {
  float* row;
  std::byte* panel;
  float* sums;

  static ThreadBuffers take(Arena& arena, const MatmulKernels& k, int64_t cols);
};

// The job that packs `num_tokens` rows of x ([.., cols] of f32 or bf16), all groups and columns.
PackJob pack_job(const MatmulKernels& k, const TensorView& x, void* packed);

// y[t * y_stride + n - rows.begin] = x[t] . w[n]; y as MultiplyJob says.
void multiply(const MatmulKernels& k, const WeightRows& w, Range rows, const PackedTokens& x,
              const ThreadBuffers& buffers, float* y, int64_t y_stride);

// Stores a block of y as columns [first_col, first_col + num_cols) of out.
void store_block(const MatmulKernels& k, const float* y, int64_t y_stride, const TensorView& out,
                 int64_t first_col, int64_t num_cols);

}  // namespace latent::kernels::cpu
