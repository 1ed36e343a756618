// SPDX-License-Identifier: Apache-2.0
#include "model/config_reader.h"

#include <nlohmann/json.hpp>

#include "io/json_text.h"

namespace latent::model {
namespace {

using Json = nlohmann::json;

const Json* find(const void* node, const char* key) {
  const Json& object = *static_cast<const Json*>(node);
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

// The value under a key, null where it is absent or null.
const Json* find_value(const void* node, const char* key) {
  const Json* value = find(node, key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

// Short enough for a message.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

bool is_int64(const Json& value) {
  return value.is_number_integer() &&
         !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
}

}  // namespace

struct ConfigReader::State {
  Json document;
  Json empty = Json::object();
  std::string where;
  Status status;
};

Result<ConfigReader> ConfigReader::parse(std::string_view text, const std::string& where) {
  if (Status s = io::check_json(text); !s) return s.error().with_context(where);
  auto state = std::make_shared<State>();
  state->document = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  state->where = where;
  if (!state->document.is_object()) return make_error(ErrorCode::kCorrupt, "{}: not a JSON object", where);
  const void* node = &state->document;
  return ConfigReader(std::move(state), node, "");
}

bool ConfigReader::has(const char* key) const { return find_value(node_, key) != nullptr; }

bool ConfigReader::is_null(const char* key) const {
  const Json* value = find(node_, key);
  return value != nullptr && value->is_null();
}

void ConfigReader::fail(ErrorCode code, const std::string& message) const {
  if (state_->status.ok()) state_->status = Error{code, fmt::format("{}: {}", state_->where, message)};
}

void ConfigReader::fail_type(const char* key, const std::string& wanted) const {
  fail(ErrorCode::kInvalidArgument,
       fmt::format("'{}{}' must be {}, not {}", path_, key, wanted, shown(*find_value(node_, key))));
}

const Status& ConfigReader::status() const { return state_->status; }

int ConfigReader::integer(const char* key, int fallback, int min, int max) const {
  const Json* value = find_value(node_, key);
  if (value == nullptr) return fallback;
  if (is_int64(*value) && value->get<int64_t>() >= min && value->get<int64_t>() <= max)
    return value->get<int>();
  fail_type(key, fmt::format("an integer from {} to {}", min, max));
  return fallback;
}

double ConfigReader::number(const char* key, double fallback, double min, double max) const {
  const Json* value = find_value(node_, key);
  if (value == nullptr) return fallback;
  if (value->is_number() && value->get<double>() >= min && value->get<double>() <= max)
    return value->get<double>();
  fail_type(key, fmt::format("a number from {} to {}", min, max));
  return fallback;
}

bool ConfigReader::boolean(const char* key, bool fallback) const {
  const Json* value = find_value(node_, key);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  fail_type(key, "true or false");
  return fallback;
}

std::string ConfigReader::text(const char* key, const std::string& fallback) const {
  const Json* value = find_value(node_, key);
  if (value == nullptr) return fallback;
  if (value->is_string()) return value->get<std::string>();
  fail_type(key, "a string");
  return fallback;
}

std::vector<double> ConfigReader::numbers(const char* key, double min, double max) const {
  const Json* value = find_value(node_, key);
  if (value == nullptr) return {};
  std::vector<double> out;
  if (value->is_array())
    for (const Json& item : *value)
      if (item.is_number() && item.get<double>() >= min && item.get<double>() <= max)
        out.push_back(item.get<double>());
  if (value->is_array() && out.size() == value->size()) return out;
  fail_type(key, fmt::format("a list of numbers from {} to {}", min, max));
  return {};
}

std::vector<std::string> ConfigReader::texts(const char* key) const {
  const Json* value = find_value(node_, key);
  if (value == nullptr) return {};
  std::vector<std::string> out;
  if (value->is_array())
    for (const Json& item : *value)
      if (item.is_string()) out.push_back(item.get<std::string>());
  if (value->is_array() && out.size() == value->size()) return out;
  fail_type(key, "a list of strings");
  return {};
}

std::vector<int64_t> ConfigReader::ids(const char* key) const {
  const Json* value = find_value(node_, key);
  if (value == nullptr) return {};
  if (is_int64(*value)) return {value->get<int64_t>()};
  std::vector<int64_t> out;
  if (value->is_array())
    for (const Json& item : *value)
      if (is_int64(item)) out.push_back(item.get<int64_t>());
  if (value->is_array() && out.size() == value->size()) return out;
  fail_type(key, "an id or a list of ids");
  return {};
}

ConfigReader ConfigReader::object(const char* key) const {
  const std::string path = path_ + key + ".";
  const Json* value = find_value(node_, key);
  if (value != nullptr && value->is_object()) return {state_, value, path};
  if (value != nullptr) fail_type(key, "an object");
  return {state_, &state_->empty, path};
}

std::vector<std::string> ConfigReader::object_keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : static_cast<const Json*>(node_)->items())
    if (value.is_object()) keys.push_back(key);
  return keys;
}

}  // namespace latent::model
