// SPDX-License-Identifier: Apache-2.0
#include "cli/gemm_ceiling.h"

namespace latent::cli {

std::optional<GemmCeiling> best_of(const std::optional<GemmCeiling>& a, const std::optional<GemmCeiling>& b) {
  if (!a || !b) return a ? a : b;
  return a->flops_per_second > b->flops_per_second ? a : b;
}

}  // namespace latent::cli

#ifdef LATENT_ONEDNN

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <dnnl.hpp>
#include <vector>

#ifdef LATENT_OPENMP
#include <omp.h>
#endif

namespace latent::cli {
namespace {

struct GemmShape {
  int64_t n, k;
};
constexpr GemmShape kShapes[] = {{2048, 2048}, {2816, 2048}, {2048, 2816},
                                 {3072, 2048}, {4096, 2048}, {4096, 4096}};
constexpr int kRepetitions = 4;  // the first one warms up

double measure_shape(int rows, const GemmShape& shape, dnnl::memory::data_type type) {
  using dnnl::memory;
  dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc x({rows, shape.k}, type, memory::format_tag::ab);
  const memory::desc w({shape.k, shape.n}, type, memory::format_tag::any);
  const memory::desc y({rows, shape.n}, type, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc desc(dnnl::matmul::desc(x, w, y), engine);
  memory inputs(desc.src_desc(), engine), weights(desc.weights_desc(), engine),
      outputs(desc.dst_desc(), engine);
  // Zeros multiply as fast as anything else.
  for (const memory* m : {&inputs, &weights, &outputs})
    std::memset(m->get_data_handle(), 0, m->get_desc().get_size());
  dnnl::matmul matmul(desc);
  double best = 0;
  for (int i = 0; i < kRepetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    matmul.execute(stream, {{DNNL_ARG_SRC, inputs}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, outputs}});
    stream.wait();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const double flops = 2.0 * rows * static_cast<double>(shape.n) * static_cast<double>(shape.k);
    if (i > 0) best = std::max(best, flops / seconds.count());
  }
  return best;
}

}  // namespace

std::optional<GemmCeiling> measure_gemm_ceiling(int rows, DType dtype, int num_threads) {
#ifdef LATENT_OPENMP
  omp_set_num_threads(num_threads);
#endif
  const auto type = dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
  GemmCeiling ceiling{.form = {}, .num_forms = static_cast<int>(std::size(kShapes))};
  try {
    for (const GemmShape& shape : kShapes) {
      const double rate = measure_shape(rows, shape, type);
      if (rate <= ceiling.flops_per_second) continue;
      ceiling.flops_per_second = rate;
      ceiling.form = fmt::format("{} x {} x {}", rows, shape.n, shape.k);
    }
  } catch (const dnnl::error&) {
    return std::nullopt;  // the type is not for this processor
  }
  return ceiling;
}

}  // namespace latent::cli

#else

namespace latent::cli {

std::optional<GemmCeiling> measure_gemm_ceiling(int, DType, int) { return std::nullopt; }

}  // namespace latent::cli

#endif
