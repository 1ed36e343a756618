// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace latent {

// Repeats the 4 bytes of `word` over device memory; a tail gets its leading bytes. Asynchronous on the
// stream.
void launch_fill_words(void* data, size_t num_bytes, uint32_t word, void* stream);

}  // namespace latent
