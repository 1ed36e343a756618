// SPDX-License-Identifier: Apache-2.0
// Declarative shape checks with named sizes bound once, giving one error text for all:
//
//   ShapeMatcher m("rms_norm");
//   m.match("x", x, {"num_tokens", "hidden"}, {DType::kF32, DType::kBF16});
//   m.match("weight", weight, {"hidden"}, {DType::kF32, DType::kBF16});
//   if (Status s = m.status(); !s) return s.error();
#pragma once

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"
#include "tensor/tensor_view.h"

namespace latent {

class ShapeMatcher {
 public:
  explicit ShapeMatcher(std::string_view where) : where_(where) {}

  // Fixes a named size before matching, e.g. from an operator's attributes.
  void bind(const char* name, int64_t size);

  // Each dimension is a name, bound by its first use, or a number as text ("512"). Remembers the first
  // mismatch.
  void match(std::string_view tensor_name, const TensorView& view, std::initializer_list<const char*> dims,
             std::initializer_list<DType> dtypes);

  int64_t size(const char* name) const;  // CHECKs that it is bound
  const Status& status() const { return status_; }

 private:
  void fail(std::string message);

  std::string where_;
  std::map<std::string, int64_t> sizes_;
  Status status_;
};

}  // namespace latent
