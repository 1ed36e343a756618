// SPDX-License-Identifier: Apache-2.0
// Implementations of the row-wise operators.
#include "kernels/cpu/rowwise.h"

#include "kernels/ref/rowwise.h"

namespace latent::kernels {

using namespace ops;
using cpu::Avx2, cpu::Avx512, cpu::refuse_without;

#define LATENT_ROWWISE(Params, name)                                                \
  template <>                                                                       \
  std::span<const Implementation<Params>> implementations<Params>() {               \
    static constexpr Implementation<Params> kAll[] = {                              \
        {"cpu_avx512", refuse_without<Avx512, Params>, nullptr, cpu::name<Avx512>}, \
        {"cpu_avx2", refuse_without<Avx2, Params>, nullptr, cpu::name<Avx2>},       \
        {"ref", nullptr, nullptr, ref::name},                                       \
    };                                                                              \
    return kAll;                                                                    \
  }

LATENT_ROWWISE(RmsNormParams, rms_norm)
LATENT_ROWWISE(AddParams, add)
LATENT_ROWWISE(ScaleParams, scale)
LATENT_ROWWISE(SiluParams, silu)
LATENT_ROWWISE(MulParams, mul)
LATENT_ROWWISE(SiluMulParams, silu_mul)
#undef LATENT_ROWWISE

template <>
std::span<const Implementation<GatherRowsParams>> implementations<GatherRowsParams>() {
  static constexpr Implementation<GatherRowsParams> kAll[] = {
      {"cpu", nullptr, nullptr, cpu::gather_rows},
      {"ref", nullptr, nullptr, ref::gather_rows},
  };
  return kAll;
}

}  // namespace latent::kernels
