// SPDX-License-Identifier: Apache-2.0
#include "kernels/ref/cache.h"

#include <algorithm>

#include "kernels/cache_slot.h"
#include "kernels/kv_row.h"
#include "kernels/ref/element.h"
#include "tensor/convert.h"

namespace latent::kernels::ref {
namespace {

// A vector inside a tensor: one head of one token, or one row of the cache.
template <class T>
struct Strided {
  T* at;
  int64_t stride;
  T& operator[](int64_t i) const { return at[i * stride]; }
};

template <class T>
Strided<T> row(const TensorView& view, int64_t index) {
  return {view.row<T>(index), view.stride(1)};
}

// `put(i, value)` receives element i of the rotated vector, before any rounding.
template <class T, class Put>
void rotate(Strided<T> x, const TensorView& cos_sin, int64_t position, ops::RopeStyle style, Put&& put) {
  const int64_t half = cos_sin.dim(1) / 2;
  const Strided<float> angles = row<float>(cos_sin, position);
  for (int64_t i = 0; i < half; ++i) {
    const int64_t first = style == ops::RopeStyle::kInterleaved ? 2 * i : i;
    const int64_t second = style == ops::RopeStyle::kInterleaved ? 2 * i + 1 : i + half;
    const double a = load_float(x[first]), b = load_float(x[second]);
    const double cosine = angles[i], sine = angles[half + i];
    put(first, a * cosine - b * sine);
    put(second, b * cosine + a * sine);
  }
}

template <class Act, class Cache>
void write_latent(const ops::KvCacheWriteParams& p, int64_t token, Strided<Cache> to) {
  const Strided<Act> kv_c = row<Act>(p.kv_c, token);
  for (int64_t i = 0; i < p.kv_c.dim(1); ++i) store_float(&to[i], load_float(kv_c[i]));
}

// Rows of codes: `rope(token, put)` calls put(i, value) for the elements of the token's rope key.
template <class Rope>
void write_codes(const ops::KvCacheWriteParams& p, const Rope& rope) {
  const ops::KvLayout layout = {.kv_rank = static_cast<int>(p.kv_c.dim(1)),
                                .rope_dim = static_cast<int>(p.k_pe.dim(1)),
                                .dtype = p.cache.dtype()};
  for (int64_t t = 0; t < p.slots.dim(0); ++t) {
    const int64_t at = cache_offset(p, t);
    if (at < 0) continue;
    std::byte* row = static_cast<std::byte*>(p.cache.raw()) + at;
    float block[ops::kKvScaleColumns];
    for (int first = 0; first < layout.kv_rank; first += ops::kKvScaleColumns) {
      const int count = std::min(ops::kKvScaleColumns, layout.kv_rank - first);
      for (int i = 0; i < count; ++i)
        block[i] = element_to_float(p.kv_c.raw(), p.kv_c.dtype(),
                                    t * p.kv_c.stride(0) + (first + i) * p.kv_c.stride(1));
      encode_kv_columns(layout, block, first, count, p.scale, row);
    }
    rope(t, [&](int64_t i, float value) {
      encode_kv_columns(layout, &value, layout.kv_rank + static_cast<int>(i), 1, p.scale, row);
    });
  }
}

bool holds_codes(const TensorView& cache) {
  return ops::KvLayout{.dtype = cache.dtype()}.format() != ops::KvFormat::kWide;
}

// Calls fn(token, destination row, zero of the activations' type) for every token with a slot.
template <class Fn>
void for_each_slot(const ops::KvCacheWriteParams& p, Fn&& fn) {
  with_float_type(p.cache.dtype(), [&](auto cache_zero) {
    using Cache = decltype(cache_zero);
    for (int64_t t = 0; t < p.slots.dim(0); ++t)
      if (const int64_t at = cache_offset(p, t); at >= 0)
        fn(t, Strided<Cache>{p.cache.data<Cache>() + at, p.cache.stride(2)});
  });
}

}  // namespace

void rope(const ops::RopeParams& p, const KernelContext&) {
  with_float_type(p.x.dtype(), [&](auto zero) {
    using T = decltype(zero);
    for (int64_t t = 0; t < p.x.dim(0); ++t) {
      const int32_t position = p.positions.data<int32_t>()[t * p.positions.stride(0)];
      for (int64_t h = 0; h < p.x.dim(1); ++h) {
        const Strided<T> out = row<T>(p.out.at(t), h);
        rotate(row<T>(p.x.at(t), h), p.cos_sin, position, p.attrs.style,
               [&](int64_t i, double value) { store_float(&out[i], static_cast<float>(value)); });
      }
    }
  });
}

void kv_cache_write(const ops::KvCacheWriteParams& p, const KernelContext&) {
  with_float_type(p.kv_c.dtype(), [&](auto kv_zero) {
    with_float_type(p.k_pe.dtype(), [&](auto pe_zero) {
      if (holds_codes(p.cache))
        return write_codes(p, [&](int64_t t, auto&& put) {
          const auto k_pe = row<decltype(pe_zero)>(p.k_pe, t);
          for (int64_t i = 0; i < p.k_pe.dim(1); ++i) put(i, load_float(k_pe[i]));
        });
      for_each_slot(p, [&](int64_t t, auto to) {
        write_latent<decltype(kv_zero)>(p, t, to);
        const auto k_pe = row<decltype(pe_zero)>(p.k_pe, t);
        for (int64_t i = 0; i < p.k_pe.dim(1); ++i) store_float(&to[p.kv_c.dim(1) + i], load_float(k_pe[i]));
      });
    });
  });
}

// The rotated key is rounded to k_pe's own type first, so that fused and unfused give the same bits.
void rope_kv_cache_write(const ops::RopeKvCacheWriteParams& params, const KernelContext&) {
  const ops::KvCacheWriteParams& p = params.write;
  with_float_type(p.kv_c.dtype(), [&](auto kv_zero) {
    with_float_type(p.k_pe.dtype(), [&](auto pe_zero) {
      using Act = decltype(pe_zero);
      const auto rotate_token = [&](int64_t t, auto&& put) {
        const int32_t position = params.positions.data<int32_t>()[t * params.positions.stride(0)];
        rotate(row<Act>(p.k_pe, t), params.cos_sin, position, params.attrs.style,
               [&](int64_t i, double value) {
                 Act rounded;
                 store_float(&rounded, static_cast<float>(value));
                 put(i, load_float(rounded));
               });
      };
      if (holds_codes(p.cache)) return write_codes(p, rotate_token);
      for_each_slot(p, [&](int64_t t, auto to) {
        write_latent<decltype(kv_zero)>(p, t, to);
        rotate_token(t, [&](int64_t i, float value) { store_float(&to[p.kv_c.dim(1) + i], value); });
      });
    });
  });
}

}  // namespace latent::kernels::ref
