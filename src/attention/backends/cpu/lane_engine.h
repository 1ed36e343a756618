// SPDX-License-Identifier: Apache-2.0
// The arithmetic of both attention forms. Sixteen lanes share their keys: a lane is one head of one query
// row. Scores, softmax and its running state are vertical, one lane a vector element, so that a lane's bits
// depend neither on its neighbours nor on its place among them.
//
// Keys come in blocks of up to kBlockTokens. A step scores one block, moves the running maximum, and adds the
// block's weighted values to the lanes' outputs:
//
//   s[t] = scale * (q . key[t])           masked to -inf past the lane's limit
//   m'   = max(m, max_t s[t])             p[t] = exp(s[t] - m')        a = exp(m - m')
//   sum  = a * sum + sum_t p[t]           out  = a * out + sum_t p[t] * value[t]
//
// Tables of functions, one an instruction set; all give equal values within their rounding.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/float_types.h"

namespace latent::attention::cpu {

inline constexpr int kLanes = 16;
inline constexpr int kTileTokens = 16;  // a step reads whole tiles: rows past num_tokens exist and are finite
inline constexpr int kBlockTokens = 128;

// Queries of the lanes. Null for a lane that is not there. Strides in elements, along a query's width.
struct LaneQueries {
  const void* nope[kLanes];
  const void* rope[kLanes];
  DType nope_dtype, rope_dtype;  // f32 or bf16
  int64_t nope_stride, rope_stride;
  int nope_width, rope_width;
};

// Running softmax of the lanes, f32: out [kLanes, width], then max, sum and weight_sum, [kLanes] each.
// weight_sum adds the weights as rounded for the product with the values; an output divided by it keeps less
// of that rounding.
struct LaneState {
  float* out;
  int width;      // a multiple of 32
  int num_lanes;  // leading lanes that are there; the outputs of others are neither written nor read

  float* max() const { return out + int64_t{kLanes} * width; }
  float* sum() const { return max() + kLanes; }
  float* weight_sum() const { return sum() + kLanes; }
  static int64_t num_floats(int width) { return int64_t{kLanes} * width + 3 * kLanes; }
};

inline constexpr int kBlockTiles = kBlockTokens / kTileTokens;

// What a step asks memory for while it scores each of its tiles, so that it is near when its turn comes: the
// tile two further on. Without `tile_bytes` it asks for one line again and again.
struct Prefetch {
  const void* tile[kBlockTiles];
  int64_t tile_bytes;
};
inline constexpr int kTilesAhead = 2;

// A block of keys in two parts, and of values, all f32, tile by tile. Values may be read up to 32 columns
// past their width; what stands there is added to columns that nobody reads.
struct F32Block {
  struct Tile {
    const float *nope, *rope, *value;
  };
  Tile tile[kBlockTiles];
  int64_t nope_stride, rope_stride, value_stride;
  int nope_width, rope_width;
  Prefetch prefetch;
};

// A block of latent rows of the cache itself, key and value at once, bf16.
struct Bf16Block {
  const BFloat16* tile[kBlockTiles];
  int64_t stride;
  int width;  // kv_rank + rope_dim, even
  Prefetch prefetch;
};

struct StepArgs {
  const void* queries;  // packed
  int num_tokens;       // 1 to kBlockTokens
  const float* limits;  // [kLanes] tokens of this block that each lane sees; null: all of them
  float scale;
  bool first;  // the state holds nothing yet and is not read
  LaneState state;
  float* scratch;  // [kStepScratchFloats]
};
inline constexpr int64_t kStepScratchFloats = 2 * int64_t{kBlockTokens} * kLanes;

struct LaneEngine {
  // Bytes of packed queries of kLanes lanes.
  int64_t (*packed_bytes)(int nope_width, int rope_width);
  void (*pack)(const LaneQueries& queries, void* packed);
  void (*step_f32)(const StepArgs& args, const F32Block& block);    // null if the engine takes bf16 blocks
  void (*step_bf16)(const StepArgs& args, const Bf16Block& block);  // null if the engine takes f32 blocks
  // `total` becomes the state over the keys of both; total's keys come first.
  void (*merge)(const LaneState& total, const LaneState& part);
  // Row of one lane, divided by its sum; zeros for a lane without keys. [state.width]
  void (*finish)(const LaneState& state, int lane, float* row);
  // `count` contiguous elements of f32, f16 or bf16 to f32, and of f32 to f32 or bf16.
  void (*widen)(const void* from, DType dtype, int64_t count, float* to);
  void (*narrow)(const float* from, int64_t count, DType dtype, void* to);
};

// The best f32 engine of this machine, and its bf16 engine; null without AVX-512 BF16.
const LaneEngine& f32_engine();
const LaneEngine* bf16_engine();

const LaneEngine& f32_engine_portable();
const LaneEngine& f32_engine_avx2();
const LaneEngine& f32_engine_avx512();
const LaneEngine& bf16_engine_avx512();

}  // namespace latent::attention::cpu
