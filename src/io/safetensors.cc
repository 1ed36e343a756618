// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.h"

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/math.h"
#include "io/json_text.h"

namespace latent::io {
namespace {

using Json = nlohmann::json;
using Bytes = std::span<const std::byte>;

constexpr size_t kLengthBytes = 8;

template <class... Args>
Error corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kCorrupt, format, std::forward<Args>(args)...);
}

struct TypeBits {
  const char* name;
  int bits;
};
// Every type of the format, read by us or not, so that a file with others in it can still be opened.
constexpr TypeBits kTypes[] = {
    {"F32", 32}, {"BF16", 16}, {"F16", 16}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}, {"I32", 32},
    {"I64", 64}, {"I16", 16},  {"I8", 8},   {"U8", 8},      {"U16", 16},    {"U32", 32},    {"U64", 64},
    {"F64", 64}, {"BOOL", 8},  {"C64", 64}, {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},
};

int type_bits(std::string_view name) {
  for (const TypeBits& t : kTypes)
    if (name == t.name) return t.bits;
  return 0;
}

// The header's text, once the length in front of it fits the file.
Result<std::string_view> header_text(Bytes bytes) {
  if (bytes.size() < kLengthBytes)
    return corrupt("{} bytes are too few for a safetensors file", bytes.size());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), kLengthBytes);
  if (length > static_cast<uint64_t>(SafetensorsFile::kMaxHeaderBytes))
    return corrupt("the header claims {} bytes, more than the {} allowed", length,
                   SafetensorsFile::kMaxHeaderBytes);
  if (length > bytes.size() - kLengthBytes)
    return corrupt("truncated: the header claims {} bytes, the file has {}", length, bytes.size());
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  if (!text.starts_with('{')) return corrupt("the header does not begin with '{{'");
  return text;
}

// A non-negative integer, or an error. JSON numbers such as 1.0 or -1 are none.
Result<int64_t> parse_extent(const Json& value) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return corrupt("{} is not a non-negative 64-bit integer", value.dump());
  return static_cast<int64_t>(value.get<uint64_t>());
}

Result<std::vector<int64_t>> parse_extents(const Json& entry, const char* key) {
  const auto it = entry.find(key);
  if (it == entry.end() || !it->is_array()) return corrupt("'{}' is missing or not an array", key);
  std::vector<int64_t> extents;
  for (const Json& value : *it) {
    Result<int64_t> extent = parse_extent(value);
    if (!extent) return extent.error().with_context(key);
    extents.push_back(*extent);
  }
  return extents;
}

// Bytes of a tensor, or an error if the product does not fit.
Result<int64_t> tensor_bytes(const std::vector<int64_t>& dims, int bits) {
  int64_t total = bits;
  // A zero first: [2^62, 2^62, 0] has no elements and must not count as an overflow.
  if (std::find(dims.begin(), dims.end(), 0) != dims.end()) return int64_t{0};
  for (const int64_t extent : dims)
    if (!checked_mul(total, extent, &total)) return corrupt("the product of its extents overflows");
  if (total % 8 != 0) return corrupt("{} bits are no whole number of bytes", total);
  return total / 8;
}

Result<FileTensor> parse_tensor(const std::string& name, const Json& entry, Bytes data) {
  if (!entry.is_object()) return corrupt("its entry is not an object");
  const auto type = entry.find("dtype");
  if (type == entry.end() || !type->is_string()) return corrupt("'dtype' is missing or not a string");
  FileTensor tensor{
      .name = name, .dtype_name = type->get<std::string>(), .dtype = {}, .dims = {}, .bytes = {}};
  const int bits = type_bits(tensor.dtype_name);
  if (bits == 0) return corrupt("'{}' is no dtype of the format", tensor.dtype_name);
  tensor.dtype = parse_safetensors_dtype(tensor.dtype_name);
  Result<std::vector<int64_t>> dims = parse_extents(entry, "shape");
  if (!dims) return dims.error();
  tensor.dims = *std::move(dims);
  Result<std::vector<int64_t>> offsets = parse_extents(entry, "data_offsets");
  if (!offsets) return offsets.error();
  if (offsets->size() != 2) return corrupt("'data_offsets' holds {} numbers, not 2", offsets->size());
  const int64_t begin = (*offsets)[0], end = (*offsets)[1];
  if (begin > end || end > static_cast<int64_t>(data.size()))
    return corrupt("its bytes [{}, {}) lie outside the data of {} bytes; the file may be truncated", begin,
                   end, data.size());
  Result<int64_t> size = tensor_bytes(tensor.dims, bits);
  if (!size) return size.error();
  if (*size != end - begin)
    return corrupt("its shape and dtype need {} bytes, its offsets hold {}", *size, end - begin);
  tensor.bytes = data.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
  return tensor;
}

// Sorted by place, tensors must follow each other without gap or overlap and end with the file.
Status check_coverage(const std::vector<FileTensor>& tensors, Bytes data) {
  std::vector<const FileTensor*> order;
  for (const FileTensor& t : tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const FileTensor* a, const FileTensor* b) {
    return std::pair(a->bytes.data(), a->bytes.size()) < std::pair(b->bytes.data(), b->bytes.size());
  });
  const std::byte* expected = data.data();
  for (const FileTensor* t : order) {
    if (t->bytes.data() != expected)
      return corrupt("tensor '{}' {} the one before it", t->name,
                     t->bytes.data() > expected ? "leaves a gap after" : "overlaps");
    expected = t->bytes.data() + t->bytes.size();
  }
  const auto rest = data.data() + data.size() - expected;
  if (rest != 0) return corrupt("{} bytes follow the last tensor", rest);
  return {};
}

Result<std::map<std::string, std::string>> parse_metadata(const Json& entry) {
  if (!entry.is_object()) return corrupt("'__metadata__' is not an object");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) return corrupt("'__metadata__' holds '{}', which is not a string", key);
    metadata[key] = value.get<std::string>();
  }
  return metadata;
}

struct Header {
  std::vector<FileTensor> tensors;
  std::map<std::string, std::string> metadata;
};

Result<Header> parse_header(Bytes bytes) {
  Result<std::string_view> text = header_text(bytes);
  if (!text) return text.error();
  if (Status s = check_json(*text); !s) return s.error().with_context("header");
  const Json json = Json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const Bytes data = bytes.subspan(kLengthBytes + text->size());
  Header header;
  for (const auto& [name, entry] : json.items()) {
    if (name == "__metadata__") {
      auto metadata = parse_metadata(entry);
      if (!metadata) return metadata.error();
      header.metadata = *std::move(metadata);
      continue;
    }
    Result<FileTensor> tensor = parse_tensor(name, entry, data);
    if (!tensor) return tensor.error().with_context(fmt::format("tensor '{}'", name));
    header.tensors.push_back(*std::move(tensor));
  }
  if (Status s = check_coverage(header.tensors, data); !s) return s.error();
  return header;
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::parse(Bytes bytes, const std::string& name) {
  Result<Header> header = parse_header(bytes);
  if (!header) return header.error().with_context(name);
  SafetensorsFile file;
  file.path_ = name;
  file.tensors_ = std::move(header->tensors);
  file.metadata_ = std::move(header->metadata);
  return file;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  Result<MappedFile> mapped = MappedFile::open(path);
  if (!mapped) return mapped.error();
  Result<SafetensorsFile> file = parse(mapped->bytes(), path.string());
  if (file) file->file_ = *std::move(mapped);
  return file;
}

const FileTensor* SafetensorsFile::find(std::string_view name) const {
  const auto it = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                   [](const FileTensor& t, std::string_view n) { return t.name < n; });
  return it != tensors_.end() && it->name == name ? &*it : nullptr;
}

}  // namespace latent::io
