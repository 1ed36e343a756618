// SPDX-License-Identifier: Apache-2.0
// JSON in and out of the commands. Included by .cc files only, for what it drags in.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "base/result.h"

namespace latent::cli {

// kCorrupt names the file and the place.
Result<nlohmann::json> read_json_file(const std::filesystem::path& path);

// A JSON list of token ids. A number that is no 32-bit integer is kCorrupt, with its place; whether it is in
// the vocabulary is the engine's question.
Result<std::vector<int32_t>> read_token_ids(const std::filesystem::path& path);

// One line of JSON, bytes that are not UTF-8 replaced. "-" is stdout.
Status write_json(const std::string& path, const nlohmann::json& value);

}  // namespace latent::cli
