// SPDX-License-Identifier: Apache-2.0
// Rotation and the cache write: one token at a time, rotations in double precision.
#pragma once

#include "kernels/registry.h"

namespace latent::kernels::ref {

void rope(const ops::RopeParams& params, const KernelContext& context);
void kv_cache_write(const ops::KvCacheWriteParams& params, const KernelContext& context);
void rope_kv_cache_write(const ops::RopeKvCacheWriteParams& params, const KernelContext& context);

}  // namespace latent::kernels::ref
