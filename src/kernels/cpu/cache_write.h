// SPDX-License-Identifier: Apache-2.0
// Rotation and the cache write on rows of unit stride, in f32, tokens in parallel.
#pragma once

#include "kernels/registry.h"

namespace latent::kernels::cpu {

const char* refuse_rope(const ops::RopeParams& params, const CpuFeatures& cpu);
const char* refuse_kv_cache_write(const ops::KvCacheWriteParams& params, const CpuFeatures& cpu);
const char* refuse_rope_kv_cache_write(const ops::RopeKvCacheWriteParams& params, const CpuFeatures& cpu);

void rope(const ops::RopeParams& params, const KernelContext& context);
void kv_cache_write(const ops::KvCacheWriteParams& params, const KernelContext& context);
void rope_kv_cache_write(const ops::RopeKvCacheWriteParams& params, const KernelContext& context);

}  // namespace latent::kernels::cpu
