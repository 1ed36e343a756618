// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/cache_write.h"

#include "base/parallel.h"
#include "kernels/cache_slot.h"
#include "kernels/cpu/row_threads.h"
#include "kernels/ref/element.h"
#include "tensor/convert.h"

namespace latent::kernels::cpu {
namespace {

constexpr const char* kUnitStride = "needs rows of unit stride";

bool is_unit(const TensorView& view, int axis) { return view.stride(axis) == 1 || view.dim(axis) <= 1; }

template <class T>
struct Pairs {
  T* at;
  int64_t step, apart;  // between pairs, inside a pair
};

template <class T>
Pairs<T> pairs(T* row, int64_t half, ops::RopeStyle style) {
  if (style == ops::RopeStyle::kInterleaved) return {row, 2, 1};
  return {row, 1, half};
}

// `angles` holds half cosines, then half sines. Results are rounded to the type of x first, whatever the type
// they are stored in, so that rotating on the way to the cache gives the bits of rotating before; out may be
// x.
template <class T, class Out>
void rotate(Pairs<const T> x, const float* angles, int64_t half, Pairs<Out> out) {
  const auto put = [](Out* to, float value) {
    T rounded;
    store_float(&rounded, value);
    store_float(to, load_float(rounded));
  };
  for (int64_t i = 0; i < half; ++i) {
    const float a = load_float(x.at[i * x.step]), b = load_float(x.at[i * x.step + x.apart]);
    const float cosine = angles[i], sine = angles[half + i];
    put(&out.at[i * out.step], a * cosine - b * sine);
    put(&out.at[i * out.step + out.apart], b * cosine + a * sine);
  }
}

const float* angles_of(const TensorView& cos_sin, const TensorView& positions, int64_t token) {
  return cos_sin.row<float>(positions.data<int32_t>()[token * positions.stride(0)]);
}

template <class T>
void rotate_tokens(const ops::RopeParams& p, Range tokens) {
  const int64_t half = p.cos_sin.dim(1) / 2;
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    const float* angles = angles_of(p.cos_sin, p.positions, t);
    for (int64_t h = 0; h < p.x.dim(1); ++h) {
      const T* x = p.x.row<T>(t) + h * p.x.stride(1);
      rotate<T, T>(pairs(x, half, p.attrs.style), angles, half,
                   pairs(p.out.row<T>(t) + h * p.out.stride(1), half, p.attrs.style));
    }
  }
}

const std::byte* source_row(const TensorView& view, int64_t token) {
  return static_cast<const std::byte*>(view.raw()) +
         token * view.stride(0) * static_cast<int64_t>(dtype_bytes(view.dtype()));
}

// Copies a part of a token's row into the cache, from column `first` on.
void write_part(const TensorView& from, int64_t token, const TensorView& cache, int64_t offset,
                int64_t first) {
  const auto bytes = static_cast<int64_t>(dtype_bytes(cache.dtype()));
  std::byte* to = static_cast<std::byte*>(cache.raw()) + (offset + first) * bytes;
  convert_elements(source_row(from, token), from.dtype(), to, cache.dtype(), from.dim(1));
}

// Calls fn(token, offset of its cache row) for every token with a slot; writes its latent.
template <class Fn>
void for_each_slot(const ops::KvCacheWriteParams& p, const KernelContext& context, Fn&& fn) {
  const int threads = row_threads(context, p.slots.dim(0) * p.cache.dim(2) * 2);
  parallel_ranges(threads, p.slots.dim(0), 1, [&](Range tokens) {
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      const int64_t at = cache_offset(p, t);
      if (at < 0) continue;
      write_part(p.kv_c, t, p.cache, at, 0);
      fn(t, at);
    }
  });
}

}  // namespace

const char* refuse_rope(const ops::RopeParams& p, const CpuFeatures&) {
  return is_unit(p.x, 2) && is_unit(p.out, 2) && is_unit(p.cos_sin, 1) ? nullptr : kUnitStride;
}

const char* refuse_kv_cache_write(const ops::KvCacheWriteParams& p, const CpuFeatures&) {
  if (ops::KvLayout{.dtype = p.cache.dtype()}.format() != ops::KvFormat::kWide)
    return "writes caches of f32, f16 and bf16";
  return is_unit(p.kv_c, 1) && is_unit(p.k_pe, 1) && is_unit(p.cache, 2) ? nullptr : kUnitStride;
}

const char* refuse_rope_kv_cache_write(const ops::RopeKvCacheWriteParams& p, const CpuFeatures& cpu) {
  return is_unit(p.cos_sin, 1) ? refuse_kv_cache_write(p.write, cpu) : kUnitStride;
}

void rope(const ops::RopeParams& p, const KernelContext& context) {
  parallel_ranges(row_threads(context, p.x.num_bytes()), p.x.dim(0), 1, [&](Range tokens) {
    if (p.x.dtype() == DType::kF32)
      rotate_tokens<float>(p, tokens);
    else
      rotate_tokens<BFloat16>(p, tokens);
  });
}

void kv_cache_write(const ops::KvCacheWriteParams& p, const KernelContext& context) {
  for_each_slot(p, context,
                [&](int64_t t, int64_t at) { write_part(p.k_pe, t, p.cache, at, p.kv_c.dim(1)); });
}

void rope_kv_cache_write(const ops::RopeKvCacheWriteParams& params, const KernelContext& context) {
  const ops::KvCacheWriteParams& p = params.write;
  const int64_t half = params.cos_sin.dim(1) / 2;
  ref::with_float_type(p.k_pe.dtype(), [&](auto act) {
    ref::with_float_type(p.cache.dtype(), [&](auto stored) {
      using Act = decltype(act);
      using Stored = decltype(stored);
      for_each_slot(p, context, [&](int64_t t, int64_t at) {
        const auto* x = reinterpret_cast<const Act*>(source_row(p.k_pe, t));
        rotate<Act, Stored>(pairs(x, half, params.attrs.style),
                            angles_of(params.cos_sin, params.positions, t), half,
                            pairs(p.cache.data<Stored>() + at + p.kv_c.dim(1), half, params.attrs.style));
      });
    });
  });
}

}  // namespace latent::kernels::cpu
