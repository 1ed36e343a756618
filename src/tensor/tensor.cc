// SPDX-License-Identifier: Apache-2.0
#include "tensor/tensor.h"

#include <cstring>

#include "base/math.h"

namespace latent {

Result<Tensor> Tensor::create(DType dtype, const Shape& shape, PoisonPattern pattern) {
  int64_t bytes = static_cast<int64_t>(dtype_bytes(dtype));
  for (const int64_t extent : shape.extents()) {
    if (extent < 0 || !checked_mul(bytes, extent, &bytes))
      return make_error(ErrorCode::kInvalidArgument, "no tensor can have the shape {}", to_string(shape));
  }
  Result<HostBuffer> buffer = HostBuffer::create(static_cast<size_t>(bytes), element_kind(dtype), pattern);
  if (!buffer) return buffer.error();
  Tensor tensor;
  tensor.buffer_ = *std::move(buffer);
  tensor.view_ = TensorView(tensor.buffer_.data(), dtype, shape);
  return tensor;
}

Result<Tensor> Tensor::clone() const {
  Result<Tensor> copy = create(dtype(), shape());
  if (copy && view_.num_bytes() > 0)
    std::memcpy(copy->view_.raw(), view_.raw(), static_cast<size_t>(view_.num_bytes()));
  return copy;
}

}  // namespace latent
