// SPDX-License-Identifier: Apache-2.0
// Reading fields of a JSON document without exceptions. For .cc files only.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace latent::text {

using Json = nlohmann::json;

inline Result<Json> parse_json_object(std::string_view text) {
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return make_error(ErrorCode::kCorrupt, "not valid JSON");
  if (!json.is_object()) return make_error(ErrorCode::kCorrupt, "not a JSON object");
  return json;
}

// The field, or null where it is absent (or `json` is no object).
inline const Json& field(const Json& json, const char* key) {
  static const Json null;
  if (!json.is_object()) return null;
  const auto at = json.find(key);
  return at == json.end() ? null : *at;
}

inline bool bool_or(const Json& json, const char* key, bool fallback) {
  const Json& value = field(json, key);
  return value.is_boolean() ? value.get<bool>() : fallback;
}

inline std::optional<std::string> string_field(const Json& json, const char* key) {
  const Json& value = field(json, key);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

inline std::optional<int64_t> integer(const Json& value) {
  if (!value.is_number_integer()) return std::nullopt;
  if (value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX) return std::nullopt;
  return value.get<int64_t>();
}

// The "type" of a component of tokenizer.json, for messages and dispatch.
inline std::string type_of(const Json& json) { return string_field(json, "type").value_or("(no type)"); }

}  // namespace latent::text
