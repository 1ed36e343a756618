// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "base/math.h"
#include "base/parallel.h"
#include "model/loader.h"
#include "model/rope_table.h"
#include "tensor/convert.h"

namespace latent::model {
namespace {

constexpr int kLanes = 16;
constexpr int64_t kChunk = 64 << 10;  // elements that share a seed

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

// Sixteen xorshift generators side by side: shifts and xors only, which any vector unit has.
class Lanes {
 public:
  explicit Lanes(uint64_t seed) {
    for (int i = 0; i < kLanes; ++i)
      state_[i] = static_cast<uint32_t>(mix(seed + static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15ull)) | 1u;
  }
  void next(uint32_t* out) {
    for (int i = 0; i < kLanes; ++i) {
      uint32_t x = state_[i];
      x ^= x << 13;
      x ^= x >> 17;
      x ^= x << 5;
      out[i] = state_[i] = x;
    }
  }

 private:
  uint32_t state_[kLanes];
};

// Uniform in [center - radius, center + radius).
void fill_floats(uint64_t seed, float* out, int64_t count, float center, float radius) {
  Lanes lanes(seed);
  uint32_t bits[kLanes];
  for (int64_t begin = 0; begin < count; begin += kLanes) {
    lanes.next(bits);
    const int64_t n = count - begin < kLanes ? count - begin : kLanes;
    for (int64_t i = 0; i < n; ++i)
      out[begin + i] = center + radius * (static_cast<float>(static_cast<int32_t>(bits[i])) * 0x1p-31f);
  }
}

// Bytes whose e4m3 value is finite: the top exponent bit is off, so that |value| < 2.
void fill_fp8(uint64_t seed, uint8_t* out, int64_t count) {
  Lanes lanes(seed);
  uint32_t bits[kLanes];
  constexpr int64_t kBytes = kLanes * 4;
  for (int64_t begin = 0; begin < count; begin += kBytes) {
    lanes.next(bits);
    const auto* bytes = reinterpret_cast<const uint8_t*>(bits);
    const int64_t n = count - begin < kBytes ? count - begin : kBytes;
    for (int64_t i = 0; i < n; ++i) out[begin + i] = bytes[i] & 0xBFu;
  }
}
constexpr float kFp8Rms = 0.62f;  // root mean square of those values

struct Fill {
  float center = 0;
  float radius = 1;
};

void fill_tensor(const Tensor& tensor, uint64_t seed, Fill fill, int num_threads) {
  const int64_t count = tensor.view().num_elements();
  const DType dtype = tensor.dtype();
  auto* data = static_cast<std::byte*>(tensor.view().raw());
  parallel_ranges(num_threads, ceil_div(count, kChunk), 1, [&](Range chunks) {
    std::vector<float> floats(dtype == DType::kF8E4M3 ? 0 : kChunk);
    for (int64_t c = chunks.begin; c < chunks.end; ++c) {
      const int64_t begin = c * kChunk, n = std::min(kChunk, count - begin);
      std::byte* out = data + begin * static_cast<int64_t>(dtype_bytes(dtype));
      const uint64_t chunk_seed = mix(seed ^ mix(static_cast<uint64_t>(c) + 1));
      if (dtype == DType::kF8E4M3) {
        fill_fp8(chunk_seed, reinterpret_cast<uint8_t*>(out), n);
        continue;
      }
      fill_floats(chunk_seed, floats.data(), n, fill.center, fill.radius);
      convert_elements(floats.data(), DType::kF32, out, dtype, n);
    }
  });
}

// Norms near one; matrices such that outputs are about as large as inputs; biases small.
Fill fill_of(const WeightSpec& spec) {
  if (spec.kind == WeightKind::kNorm) return {1.0f, 0.25f};
  if (spec.kind == WeightKind::kBias) return {0.0f, 0.25f};
  return {0.0f, std::sqrt(3.0f / static_cast<float>(spec.dims.back()))};
}

DType type_of(const WeightSpec& spec, DType wanted) {
  if (spec.kind == WeightKind::kBias) return DType::kF32;
  // What published fp8 checkpoints leave in bf16.
  const bool whole = spec.kind != WeightKind::kLinear || spec.name == "embed" || spec.name == "lm_head";
  return wanted == DType::kF8E4M3 && whole ? DType::kBF16 : wanted;
}

int64_t spec_bytes(const WeightSpec& spec, DType wanted) {
  int64_t bytes = static_cast<int64_t>(dtype_bytes(type_of(spec, wanted)));
  for (const int64_t d : spec.dims) bytes *= d;
  return bytes;
}

Result<graph::WeightStore::Entry> random_entry(const WeightSpec& spec, const QuantConfig& quant,
                                               uint64_t seed, const RandomWeightsOptions& options) {
  graph::WeightStore::Entry entry;
  Result<Tensor> values = Tensor::create(type_of(spec, options.dtype), Shape(spec.dims));
  if (!values) return values.error().with_context(spec.name);
  entry.values = *std::move(values);
  fill_tensor(entry.values, seed, fill_of(spec), options.num_threads);
  if (entry.values.dtype() != DType::kF8E4M3) return entry;
  entry.block_rows = quant.block_rows;
  entry.block_cols = quant.block_cols;
  std::vector<int64_t> grid = spec.dims;
  grid[grid.size() - 2] = ceil_div<int64_t>(grid[grid.size() - 2], quant.block_rows);
  grid[grid.size() - 1] = ceil_div<int64_t>(grid[grid.size() - 1], quant.block_cols);
  Result<Tensor> scales = Tensor::create(DType::kF32, Shape(grid));
  if (!scales) return scales.error().with_context(spec.name);
  const float scale = 1 / (kFp8Rms * std::sqrt(static_cast<float>(spec.dims.back())));
  fill_tensor(*scales, seed + 1, {scale, 0.25f * scale}, 1);
  entry.scales = *std::move(scales);
  return entry;
}

}  // namespace

Result<LoadedModel> random_weights(const ModelConfig& config, const RandomWeightsOptions& options) {
  Result<int> positions = served_context(config, options.max_positions);
  if (!positions) return positions.error();
  Result<std::vector<WeightSpec>> specs = weight_map(config, {}, [](std::string_view) { return false; });
  if (!specs) return specs.error();
  LoadedModel model{.config = config, .weights = {}, .max_positions = *positions, .report = {}};
  QuantConfig& quant = model.config.quant;
  if (options.dtype != DType::kF8E4M3) quant = {};
  if (options.dtype == DType::kF8E4M3 && quant.block_rows == 0)
    quant = {.block_rows = 128, .block_cols = 128};
  model.config.checkpoint_dtype = options.dtype == DType::kF8E4M3 ? DType::kBF16 : options.dtype;
  model.activation = activation_dtype(model.config.checkpoint_dtype);
  int64_t done = 0, total = 0;
  for (const WeightSpec& spec : *specs) total += spec_bytes(spec, options.dtype);
  if (Status s = check_memory(total); !s) return s.error();
  uint64_t seed = mix(options.seed);
  for (const WeightSpec& spec : *specs) {
    seed = mix(seed + 2);
    Result<graph::WeightStore::Entry> entry = random_entry(spec, quant, seed, options);
    if (!entry) return entry.error();
    model.weights.add(spec.name, *std::move(entry));
    done += spec_bytes(spec, options.dtype);
    if (options.progress && !options.progress(done, total))
      return make_error(ErrorCode::kCancelled, "interrupted when {} of {} MiB of weights were drawn",
                        done >> 20, total >> 20);
  }
  if (Status s = add_rope_tables(model.config, *positions, &model.weights); !s) return s.error();
  model.report.bytes = model.weights.num_bytes();
  return model;
}

}  // namespace latent::model
