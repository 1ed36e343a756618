// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda/device_run.h"

#include <cuda_runtime.h>

#include <list>
#include <span>

#include "device/cuda_buffer.h"
#include "device/cuda_check.h"

namespace latent::testing {
namespace {

// Elements from the first to the last that a view addresses.
int64_t extent_elements(const TensorView& view) {
  if (view.num_elements() == 0) return 0;
  int64_t last = 0;
  for (int axis = 0; axis < view.rank(); ++axis) last += (view.dim(axis) - 1) * view.stride(axis);
  return last + 1;
}

class DeviceCopies {
 public:
  TensorView upload(const TensorView& host) {
    if (host.empty()) return {};
    const size_t bytes = static_cast<size_t>(extent_elements(host)) * dtype_bytes(host.dtype());
    buffers_.push_back(*CudaBuffer::create(bytes));
    CUDA_CHECK(cudaMemcpy(buffers_.back().data(), host.raw(), bytes, cudaMemcpyHostToDevice));
    return {buffers_.back().data(), host.dtype(), host.shape(), host.strides()};
  }

 private:
  std::list<CudaBuffer> buffers_;
};

void download(const TensorView& device, const TensorView& host) {
  if (host.empty()) return;
  const size_t bytes = static_cast<size_t>(extent_elements(host)) * dtype_bytes(host.dtype());
  CUDA_CHECK(cudaMemcpy(host.raw(), device.raw(), bytes, cudaMemcpyDeviceToHost));
}

}  // namespace

void run_on_device(const attention::Backend& backend, const ops::MlaAttentionParams& params,
                   const attention::Limits& limits, const DeviceRun& options) {
  const attention::MlaDesc desc{.attrs = params.attrs,
                                .q_dtype = params.q_nope.dtype(),
                                .cache_dtype = params.cache.dtype(),
                                .on_device = true};
  DeviceCopies copies;
  ops::MlaAttentionParams device = params;
  device.q_nope = copies.upload(params.q_nope);
  device.q_pe = copies.upload(params.q_pe);
  device.cache = copies.upload(params.cache);
  device.batch = {.q_starts = copies.upload(params.batch.q_starts),
                  .kv_lens = copies.upload(params.batch.kv_lens),
                  .block_table = copies.upload(params.batch.block_table)};
  device.out = copies.upload(params.out);
  device.lse = copies.upload(params.lse);
  const CudaBuffer scratch =
      *CudaBuffer::create(backend.workspace_bytes(desc, limits), ElementKind::kFloat32, options.pattern);
  attention::Plan plan;
  backend.reserve_plan(desc, limits, &plan);
  const auto ids = [](const TensorView& v) {
    return std::span<const int32_t>(v.data<int32_t>(), static_cast<size_t>(v.num_elements()));
  };
  backend.plan(desc, limits, {ids(params.batch.q_starts), ids(params.batch.kv_lens)}, &plan);
  for (int i = 0; i < options.repeats; ++i)
    backend.run(device, plan, {.workspace = {scratch.data(), scratch.size_bytes()}});
  CUDA_CHECK(cudaDeviceSynchronize());
  download(device.out, params.out);
  download(device.lse, params.lse);
}

}  // namespace latent::testing
