// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/math.h"
#include "io/safetensors.h"
#include "tensor/tensor.h"

namespace latent::io {
namespace {

using Json = nlohmann::ordered_json;

std::string padded_header(std::span<const NamedView* const> order,
                          const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  int64_t offset = 0;
  for (const NamedView* t : order) {
    const auto extents = t->view.shape().extents();
    header[t->name] = {{"dtype", safetensors_name(t->view.dtype())},
                       {"shape", std::vector<int64_t>(extents.begin(), extents.end())},
                       {"data_offsets", {offset, offset + t->view.num_bytes()}}};
    offset += t->view.num_bytes();
  }
  std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  text.resize(round_up<size_t>(text.size(), 8), ' ');
  return text;
}

Status write_values(std::ofstream& file, const TensorView& view) {
  const auto write = [&](const TensorView& v) {
    file.write(static_cast<const char*>(v.raw()), static_cast<std::streamsize>(v.num_bytes()));
  };
  if (view.num_elements() == 0) return {};
  if (view.is_contiguous()) {
    write(view);
    return {};
  }
  Result<Tensor> copy = Tensor::create(view.dtype(), view.shape());
  if (!copy) return copy.error();
  copy_elements(view, copy->view());
  write(copy->view());
  return {};
}

Status write_file(const std::filesystem::path& path, std::span<const NamedView* const> order,
                  const std::string& header) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  const uint64_t length = header.size();
  file.write(reinterpret_cast<const char*>(&length), sizeof length);
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const NamedView* t : order)
    if (Status s = write_values(file, t->view); !s) return s;
  file.close();
  if (!file) return make_error(ErrorCode::kIo, "cannot write {}: {}", path.string(), std::strerror(errno));
  return {};
}

}  // namespace

Status write_safetensors(const std::filesystem::path& path, std::span<const NamedView> tensors,
                         const std::map<std::string, std::string>& metadata) {
  std::vector<const NamedView*> order;
  std::set<std::string_view> names = {"__metadata__"};
  for (const NamedView& t : tensors) {
    if (!names.insert(t.name).second)
      return make_error(ErrorCode::kInvalidArgument, "two tensors named '{}' for {}", t.name, path.string());
    order.push_back(&t);
  }
  std::sort(order.begin(), order.end(), [](const NamedView* a, const NamedView* b) {
    const size_t bytes_a = dtype_bytes(a->view.dtype()), bytes_b = dtype_bytes(b->view.dtype());
    return bytes_a != bytes_b ? bytes_a > bytes_b : a->name < b->name;
  });
  const std::string header = padded_header(order, metadata);
  std::error_code absent, code;
  const std::filesystem::file_status old = std::filesystem::symlink_status(path, absent);
  if (std::filesystem::exists(old) && !std::filesystem::is_regular_file(old))
    return write_file(path, order, header);  // a device, a pipe or a link stays what it is
  std::filesystem::path partial = path;
  partial += ".partial";
  Status written = write_file(partial, order, header);
  if (written) std::filesystem::rename(partial, path, code);
  if (code) written = make_error(ErrorCode::kIo, "cannot write {}: {}", path.string(), code.message());
  if (!written) std::filesystem::remove(partial, code);
  return written;
}

}  // namespace latent::io
