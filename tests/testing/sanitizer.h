// SPDX-License-Identifier: Apache-2.0
// Whether a sanitizer is built in, which keeps memory of its own beside the program's.
#pragma once

namespace latent::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)  // GCC
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)  // clang
inline constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace latent::testing
