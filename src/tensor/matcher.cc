// SPDX-License-Identifier: Apache-2.0
#include "tensor/matcher.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace latent {

void ShapeMatcher::bind(const char* name, int64_t size) {
  const auto [it, inserted] = sizes_.emplace(name, size);
  if (!inserted && it->second != size) fail(fmt::format("{} is both {} and {}", name, it->second, size));
}

void ShapeMatcher::match(std::string_view tensor_name, const TensorView& view,
                         std::initializer_list<const char*> dims, std::initializer_list<DType> dtypes) {
  if (std::find(dtypes.begin(), dtypes.end(), view.dtype()) == dtypes.end())
    return fail(fmt::format("{} has dtype {}", tensor_name, to_string(view.dtype())));
  if (view.rank() != static_cast<int>(dims.size()))
    return fail(fmt::format("{} is {}, not of rank {}", tensor_name, to_string(view), dims.size()));
  int axis = 0;
  for (const char* dim : dims) {
    const int64_t extent = view.dim(axis++);
    const bool literal = std::isdigit(static_cast<unsigned char>(*dim)) != 0;
    const int64_t want = literal ? std::atoll(dim) : sizes_.emplace(dim, extent).first->second;
    if (want != extent)
      return fail(fmt::format("{} is {}: dimension {} ({}) should be {}", tensor_name, to_string(view),
                              axis - 1, dim, want));
  }
}

int64_t ShapeMatcher::size(const char* name) const {
  const auto it = sizes_.find(name);
  CHECK(it != sizes_.end(), "{}: no size is bound to {}", where_, name);
  return it->second;
}

void ShapeMatcher::fail(std::string message) {
  if (status_) status_ = Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", where_, message)};
}

}  // namespace latent
