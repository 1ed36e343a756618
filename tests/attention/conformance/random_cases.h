// SPDX-License-Identifier: Apache-2.0
// What the conformance suite draws.
#pragma once

#include "attention/conformance/problem.h"
#include "testing/random.h"

namespace latent::conformance {

ops::MlaAttentionAttrs attrs(ops::AttentionForm form, int heads, int kv_rank, int rope, int nope, int v,
                             int page = 64);

// Small enough for a scalar fp64 oracle, odd enough to find what real shapes hide.
Case random_case(testing::Random& random);
// The same for kernels that are built for a few widths: what the above would seldom hit, at sizes that keep a
// thousand cases a matter of seconds.
Case random_device_case(testing::Random& random);
Layout random_layout(testing::Random& random);

}  // namespace latent::conformance
