// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "io/json_text.h"
#include "io/safetensors.h"

namespace latent::io {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr int64_t kMaxIndexBytes = 100'000'000;

// Names of the *.safetensors files of a folder, sorted.
Result<std::vector<std::string>> safetensors_files(const fs::path& folder) {
  std::error_code code;
  std::vector<std::string> names;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code))
    if (it->path().extension() == ".safetensors") names.push_back(it->path().filename().string());
  if (code) return make_error(ErrorCode::kIo, "cannot list {}: {}", folder.string(), code.message());
  std::sort(names.begin(), names.end());
  return names;
}

std::string whole_file(const std::string& name) { return name + ": the whole file"; }

// A plain name: nothing that could leave the folder.
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.front() != '.' &&
         name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
}

// The index: tensor name -> shard name.
using WeightMap = std::map<std::string, std::string>;

Result<WeightMap> parse_index(const std::string& text) {
  if (Status s = check_json(text); !s) return s.error();
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto entries = json.is_object() ? json.find("weight_map") : json.end();
  if (!json.is_object() || entries == json.end() || !entries->is_object() || entries->empty())
    return make_error(ErrorCode::kCorrupt, "'weight_map' is missing, empty or not an object");
  WeightMap map;
  for (const auto& [tensor, file] : entries->items()) {
    if (!file.is_string() || !is_plain_name(file.get<std::string>()))
      return make_error(ErrorCode::kCorrupt,
                        "tensor '{}' is assigned to {}, which is not the name of a file in this folder",
                        tensor, file.dump(-1, ' ', false, Json::error_handler_t::replace));
    map[tensor] = file.get<std::string>();
  }
  return map;
}

Status check_shards_exist(const fs::path& folder, const std::set<std::string>& shards) {
  std::vector<std::string> missing;
  std::error_code code;
  for (const std::string& name : shards)
    if (!fs::is_regular_file(folder / name, code)) missing.push_back(name);
  if (missing.empty()) return {};
  return make_error(ErrorCode::kNotFound,
                    "{}: {} of {} shards named by {} are missing: {}; download the model again",
                    folder.string(), missing.size(), shards.size(), kIndexName, list_some(missing));
}

}  // namespace

std::string list_some(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < 3; ++i) text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > 3) text += fmt::format(" and {} more", names.size() - 3);
  return text;
}

const Checkpoint::Entry* Checkpoint::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

Result<Checkpoint> Checkpoint::open(const fs::path& folder) {
  std::error_code code;
  if (!fs::is_directory(folder, code))
    return make_error(ErrorCode::kNotFound, "there is no model folder {}", folder.string());
  const fs::path index = folder / kIndexName;
  return fs::exists(index, code) ? open_sharded(folder, index) : open_single(folder);
}

Result<Checkpoint> Checkpoint::open_single(const fs::path& folder) {
  Result<std::vector<std::string>> names = safetensors_files(folder);
  if (!names) return names.error();
  if (names->empty())
    return make_error(ErrorCode::kNotFound, "{} holds no *.safetensors file", folder.string());
  // What transformers writes and reads; other files beside it are none of the model's.
  const auto usual = std::find(names->begin(), names->end(), "model.safetensors");
  const std::string chosen = usual != names->end() ? *usual : names->front();
  if (names->size() > 1 && usual == names->end())
    return make_error(ErrorCode::kInvalidArgument,
                      "{} holds {} safetensors files ({}) but no {} that says which to use", folder.string(),
                      names->size(), list_some(*names), kIndexName);
  Result<SafetensorsFile> file = SafetensorsFile::open(folder / chosen);
  if (!file) return file.error();
  Checkpoint checkpoint;
  checkpoint.files_.push_back(std::make_unique<SafetensorsFile>(*std::move(file)));
  for (const FileTensor& t : checkpoint.files_[0]->tensors())
    checkpoint.tensors_[t.name] = {&t, checkpoint.files_[0].get()};
  for (const std::string& name : *names)
    if (name != chosen) checkpoint.stale_.push_back(whole_file(name));
  return checkpoint;
}

Result<Checkpoint> Checkpoint::open_sharded(const fs::path& folder, const fs::path& index) {
  Result<std::string> text = read_text_file(index, kMaxIndexBytes);
  if (!text) return text.error();
  Result<WeightMap> map = parse_index(*text);
  if (!map) return map.error().with_context(index.string());
  std::set<std::string> shards;
  for (const auto& [tensor, file] : *map) shards.insert(file);
  if (Status s = check_shards_exist(folder, shards); !s) return s.error();

  Checkpoint checkpoint;
  for (const std::string& name : shards) {
    Result<SafetensorsFile> file = SafetensorsFile::open(folder / name);
    if (!file) return file.error();
    checkpoint.files_.push_back(std::make_unique<SafetensorsFile>(*std::move(file)));
    const SafetensorsFile* shard = checkpoint.files_.back().get();
    for (const FileTensor& t : shard->tensors()) {
      const auto assigned = map->find(t.name);
      if (assigned != map->end() && assigned->second == name)
        checkpoint.tensors_[t.name] = {&t, shard};
      else
        checkpoint.stale_.push_back(fmt::format("{}: {}", name, t.name));
    }
  }
  std::vector<std::string> missing;
  for (const auto& [tensor, file] : *map)
    if (checkpoint.find(tensor) == nullptr) missing.push_back(fmt::format("{} (in {})", tensor, file));
  if (!missing.empty())
    return make_error(ErrorCode::kNotFound, "{}: {} tensors are not in the shard that {} names for them: {}",
                      folder.string(), missing.size(), kIndexName, list_some(missing));
  Result<std::vector<std::string>> present = safetensors_files(folder);
  if (!present) return present.error();
  for (const std::string& name : *present)
    if (!shards.contains(name)) checkpoint.stale_.push_back(whole_file(name));
  return checkpoint;
}

}  // namespace latent::io
