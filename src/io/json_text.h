// SPDX-License-Identifier: Apache-2.0
// What every JSON file that enters the program must pass before it is parsed.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace latent::io {

inline constexpr int kMaxJsonDepth = 64;

// One JSON value in valid UTF-8, no key twice in one object, nesting at most kMaxJsonDepth; else kCorrupt,
// saying where. Text that passes can be parsed without surprises.
Status check_json(std::string_view text);

// The whole file as text, which may be a pipe; refused above `max_bytes`.
Result<std::string> read_text_file(const std::filesystem::path& path, int64_t max_bytes);

}  // namespace latent::io
