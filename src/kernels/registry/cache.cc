// SPDX-License-Identifier: Apache-2.0
// Implementations of the rotation and of the cache write.
#include "kernels/ref/cache.h"

#include "kernels/cpu/cache_write.h"
#include "kernels/registry.h"

namespace latent::kernels {

using namespace ops;

template <>
std::span<const Implementation<RopeParams>> implementations<RopeParams>() {
  static constexpr Implementation<RopeParams> kAll[] = {{"cpu", cpu::refuse_rope, nullptr, cpu::rope},
                                                        {"ref", nullptr, nullptr, ref::rope}};
  return kAll;
}

template <>
std::span<const Implementation<KvCacheWriteParams>> implementations<KvCacheWriteParams>() {
  static constexpr Implementation<KvCacheWriteParams> kAll[] = {
      {"cpu", cpu::refuse_kv_cache_write, nullptr, cpu::kv_cache_write},
      {"ref", nullptr, nullptr, ref::kv_cache_write}};
  return kAll;
}

template <>
std::span<const Implementation<RopeKvCacheWriteParams>> implementations<RopeKvCacheWriteParams>() {
  static constexpr Implementation<RopeKvCacheWriteParams> kAll[] = {
      {"cpu", cpu::refuse_rope_kv_cache_write, nullptr, cpu::rope_kv_cache_write},
      {"ref", nullptr, nullptr, ref::rope_kv_cache_write}};
  return kAll;
}

}  // namespace latent::kernels
