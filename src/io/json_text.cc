// SPDX-License-Identifier: Apache-2.0
#include "io/json_text.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace latent::io {
namespace {

using Json = nlohmann::json;

// Walks a JSON text without building it: keeps the keys of the open objects.
class Checker : public nlohmann::json_sax<Json> {
 public:
  const std::string& problem() const { return problem_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return open(); }
  bool start_array(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    problem_ = fmt::format("the key '{}' appears twice in one object", name);
    return false;
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    problem_ = fmt::format("no valid JSON at byte {} ({})", position, e.what());
    return false;
  }

 private:
  bool open() {
    keys_.emplace_back();
    if (keys_.size() <= static_cast<size_t>(kMaxJsonDepth)) return true;
    problem_ = fmt::format("nested deeper than {} levels", kMaxJsonDepth);
    return false;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> keys_;
  std::string problem_;
};

Error cannot_open(const std::filesystem::path& path) {
  return make_error(ErrorCode::kNotFound, "cannot open {}: {}", path.string(), std::strerror(errno));
}

// A pipe or a device, which cannot say how long it is.
Result<std::string> read_stream(const std::filesystem::path& path, int64_t max_bytes) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return cannot_open(path);
  std::string text;
  std::vector<char> part(64 << 10);
  while (file.read(part.data(), static_cast<std::streamsize>(part.size())) || file.gcount() > 0) {
    text.append(part.data(), static_cast<size_t>(file.gcount()));
    if (static_cast<int64_t>(text.size()) > max_bytes)
      return make_error(ErrorCode::kCorrupt, "{} has more than the {} bytes allowed", path.string(),
                        max_bytes);
  }
  if (!file.eof()) return make_error(ErrorCode::kIo, "cannot read {}", path.string());
  return text;
}

}  // namespace

Status check_json(std::string_view text) {
  Checker checker;
  if (Json::sax_parse(text.begin(), text.end(), &checker)) return {};
  return make_error(ErrorCode::kCorrupt, "{}", checker.problem());
}

Result<std::string> read_text_file(const std::filesystem::path& path, int64_t max_bytes) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status))
    return make_error(ErrorCode::kNotFound, "there is no {}", path.string());
  if (std::filesystem::is_directory(status))
    return make_error(ErrorCode::kUnsupported, "{} is a folder, not a file", path.string());
  if (!std::filesystem::is_regular_file(status)) return read_stream(path, max_bytes);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path, code));
  if (code) return make_error(ErrorCode::kIo, "cannot read {}: {}", path.string(), code.message());
  if (size > max_bytes)
    return make_error(ErrorCode::kCorrupt, "{} has {} bytes, more than the {} allowed", path.string(), size,
                      max_bytes);
  std::string text(static_cast<size_t>(size), '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file) return cannot_open(path);
  if (!file.read(text.data(), size)) return make_error(ErrorCode::kIo, "cannot read {}", path.string());
  return text;
}

}  // namespace latent::io
