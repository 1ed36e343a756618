// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cpu/output_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/desc.h"
#include "base/math.h"
#include "base/parallel.h"
#include "tensor/convert.h"

namespace latent::attention::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

void write_lse(const TensorView& lse, RowAddress to, float value) {
  if (!lse.empty()) lse.data<float>()[to.token * lse.stride(0) + to.head * lse.stride(1)] = value;
}

std::byte* row_address(const TensorView& out, RowAddress to) {
  const int64_t at = to.token * out.stride(0) + to.head * out.stride(1);
  return static_cast<std::byte*>(out.raw()) + at * static_cast<int64_t>(dtype_bytes(out.dtype()));
}

// Outputs worth a second thread, in bytes.
constexpr int64_t kZeroesPerThread = int64_t{1} << 18;

void write_zeros(const TensorView& out, RowAddress to) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(out.dtype()));
  std::byte* row = row_address(out, to);
  if (out.stride(2) == 1) {
    std::memset(row, 0, static_cast<size_t>(out.dim(2) * bytes));
    return;
  }
  for (int64_t i = 0; i < out.dim(2); ++i)
    std::memset(row + i * out.stride(2) * bytes, 0, static_cast<size_t>(bytes));
}

void write_empty_rows(const ops::MlaAttentionParams& p, int num_threads, int64_t begin, int64_t end) {
  const int64_t token_bytes = p.out.dim(1) * p.out.dim(2) * static_cast<int64_t>(dtype_bytes(p.out.dtype()));
  const int64_t grain = ceil_div(kZeroesPerThread, std::max<int64_t>(token_bytes, 1));
  parallel_ranges(num_threads, end - begin, grain, [&](Range tokens) {
    for (int64_t token = begin + tokens.begin; token < begin + tokens.end; ++token) {
      for (int64_t head = 0; head < p.out.dim(1); ++head) {
        write_zeros(p.out, {token, head});
        write_lse(p.lse, {token, head}, kMinusInfinity);
      }
    }
  });
}

}  // namespace

void write_lane(const ops::MlaAttentionParams& p, const LaneEngine& engine, const LaneState& state, int lane,
                RowAddress to, float* row) {
  engine.finish(state, lane, row);
  std::byte* out = row_address(p.out, to);
  if (p.out.stride(2) == 1) {
    engine.narrow(row, p.out.dim(2), p.out.dtype(), out);
  } else {
    const auto step = p.out.stride(2) * static_cast<int64_t>(dtype_bytes(p.out.dtype()));
    for (int64_t i = 0; i < p.out.dim(2); ++i)
      convert_elements(row + i, DType::kF32, out + i * step, p.out.dtype(), 1);
  }
  write_lse(p.lse, to, state.max()[lane] + std::log(state.sum()[lane]));
}

void write_rows_without_keys(const ops::MlaAttentionParams& p, int num_threads) {
  for (int64_t seq = 0; seq < num_seqs(p.batch); ++seq) {
    const Range rows = query_rows(p.batch, seq);
    write_empty_rows(p, num_threads, rows.begin, std::max(rows.begin, rows.end - kv_len(p.batch, seq)));
  }
  write_empty_rows(p, num_threads, num_live_rows(p.batch), p.out.dim(0));
}

}  // namespace latent::attention::cpu
