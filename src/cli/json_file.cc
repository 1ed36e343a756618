// SPDX-License-Identifier: Apache-2.0
#include "cli/json_file.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "io/json_text.h"

namespace latent::cli {
namespace {

constexpr int64_t kMaxJsonBytes = int64_t{256} << 20;

}  // namespace

Result<nlohmann::json> read_json_file(const std::filesystem::path& path) {
  const Result<std::string> text = io::read_text_file(path, kMaxJsonBytes);
  if (!text) return text.error();
  if (Status s = io::check_json(*text); !s) return s.error().with_context(path.string());
  return nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
}

Result<std::vector<int32_t>> read_token_ids(const std::filesystem::path& path) {
  const Result<nlohmann::json> json = read_json_file(path);
  if (!json) return json.error();
  if (!json->is_array())
    return make_error(ErrorCode::kCorrupt, "{}: not a JSON list of token ids, like [1, 2, 3]", path.string());
  std::vector<int32_t> ids;
  for (const nlohmann::json& item : *json) {
    const bool fits = item.is_number_integer() && item >= INT32_MIN && item <= INT32_MAX;
    if (!fits)
      return make_error(ErrorCode::kCorrupt, "{}: item {} is {}, no token id", path.string(), ids.size(),
                        item.dump().substr(0, 40));
    ids.push_back(item.get<int32_t>());
  }
  return ids;
}

Status write_json(const std::string& path, const nlohmann::json& value) {
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (path == "-") {
    // Whether stdout took it all is asked once, when the process ends.
    std::fwrite(text.data(), 1, text.size(), stdout);
    return {};
  }
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) return make_error(ErrorCode::kIo, "cannot write {}", path);
  return {};
}

}  // namespace latent::cli
