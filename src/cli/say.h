// SPDX-License-Identifier: Apache-2.0
// Words for the user on stderr, as they are. Where stderr takes no more they are lost, which is no error:
// fmt::print would throw.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <utility>

namespace latent::cli {

template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  const std::string text = fmt::format(format, std::forward<Args>(args)...);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace latent::cli
