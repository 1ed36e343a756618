// SPDX-License-Identifier: Apache-2.0
// Writing of output rows and LSEs.
#pragma once

#include "attention/backends/cpu/lane_engine.h"
#include "ops/mla_attention.h"

namespace latent::attention::cpu {

struct RowAddress {
  int64_t token;
  int64_t head;
};

// Normalises a lane of `state` and writes it and its LSE. `row` is scratch of state.width floats.
void write_lane(const ops::MlaAttentionParams& params, const LaneEngine& engine, const LaneState& state,
                int lane, RowAddress to, float* row);

// Zeros and -inf for every row that has no keys: padded ones, and those of requests shorter than their
// queries.
void write_rows_without_keys(const ops::MlaAttentionParams& params, int num_threads);

}  // namespace latent::attention::cpu
