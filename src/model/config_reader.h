// SPDX-License-Identifier: Apache-2.0
// Reads the keys of a JSON object with their types and ranges checked. The first problem is kept, names the
// key, and ends up in status(); readers go on with the fallback.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace latent::model {

class ConfigReader {
 public:
  // The object of a whole text; `where` names it in messages.
  static Result<ConfigReader> parse(std::string_view text, const std::string& where);

  bool has(const char* key) const;      // present and not null
  bool is_null(const char* key) const;  // present and null

  // Values, or `fallback` where the key is absent or null.
  int integer(const char* key, int fallback, int min, int max) const;
  double number(const char* key, double fallback, double min, double max) const;
  bool boolean(const char* key, bool fallback) const;
  std::string text(const char* key, const std::string& fallback) const;
  std::vector<double> numbers(const char* key, double min, double max) const;
  std::vector<std::string> texts(const char* key) const;
  // A number or a list of them.
  std::vector<int64_t> ids(const char* key) const;
  // The object under a key; one without keys where there is none.
  ConfigReader object(const char* key) const;
  // Keys of this object whose values are objects.
  std::vector<std::string> object_keys() const;

  void fail(ErrorCode code, const std::string& message) const;
  const Status& status() const;

 private:
  struct State;  // the JSON document and the first problem, shared by all readers of a document
  ConfigReader(std::shared_ptr<State> state, const void* node, std::string path)
      : state_(std::move(state)), node_(node), path_(std::move(path)) {}
  // Fails with "'path.key' must be …, not …".
  void fail_type(const char* key, const std::string& wanted) const;

  std::shared_ptr<State> state_;
  const void* node_;  // the JSON object inside the document
  std::string path_;  // "rope_scaling." in front of keys
};

}  // namespace latent::model
