// SPDX-License-Identifier: Apache-2.0
// Implementations of the rotation and of the cache write.
#include "kernels/ref/cache.h"

#include "kernels/registry.h"

namespace latent::kernels {

using namespace ops;

template <>
std::span<const Implementation<RopeParams>> implementations<RopeParams>() {
  static constexpr Implementation<RopeParams> kAll[] = {{"ref", nullptr, nullptr, ref::rope}};
  return kAll;
}

template <>
std::span<const Implementation<KvCacheWriteParams>> implementations<KvCacheWriteParams>() {
  static constexpr Implementation<KvCacheWriteParams> kAll[] = {
      {"ref", nullptr, nullptr, ref::kv_cache_write}};
  return kAll;
}

template <>
std::span<const Implementation<RopeKvCacheWriteParams>> implementations<RopeKvCacheWriteParams>() {
  static constexpr Implementation<RopeKvCacheWriteParams> kAll[] = {
      {"ref", nullptr, nullptr, ref::rope_kv_cache_write}};
  return kAll;
}

}  // namespace latent::kernels
