// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda/device_run.h"

#include <cuda_runtime.h>

#include "base/check.h"
#include "base/math.h"
#include "device/cuda_buffer.h"
#include "device/cuda_check.h"

namespace latent::testing {
namespace {

constexpr size_t kAlignment = 256;

// Bytes from the first to the last that a view addresses.
size_t extent_bytes(const TensorView& view) {
  if (view.empty() || view.num_elements() == 0) return 0;
  int64_t last = 0;
  for (int axis = 0; axis < view.rank(); ++axis) last += (view.dim(axis) - 1) * view.stride(axis);
  return static_cast<size_t>(last + 1) * dtype_bytes(view.dtype());
}

// Copies of operands, side by side in one allocation that is poisoned first.
class DeviceCopies {
 public:
  DeviceCopies(size_t num_bytes, PoisonPattern poison) {
    Result<CudaBuffer> buffer = CudaBuffer::create(num_bytes, ElementKind::kBFloat16, poison);
    CHECK(buffer.ok(), "{}", buffer.error().message);
    buffer_ = *std::move(buffer);
  }

  static size_t room_for(size_t num_bytes) { return round_up(num_bytes + 1, kAlignment); }

  std::byte* take(size_t num_bytes) {
    std::byte* at = buffer_.data() + used_;
    used_ += room_for(num_bytes);
    CHECK(used_ <= buffer_.size_bytes(), "{} bytes of operands in {}", used_, buffer_.size_bytes());
    return at;
  }
  // Without its first `skipped` indices of the outermost axis.
  TensorView upload(const TensorView& host, int64_t skipped = 0) {
    if (host.empty()) return {};
    const size_t bytes = extent_bytes(host);
    std::byte* at = take(bytes);
    const size_t from =
        skipped == 0 ? 0 : static_cast<size_t>(skipped * host.stride(0)) * dtype_bytes(host.dtype());
    CUDA_CHECK(cudaMemcpy(at + from, static_cast<const std::byte*>(host.raw()) + from, bytes - from,
                          cudaMemcpyHostToDevice));
    return {at, host.dtype(), host.shape(), host.strides()};
  }

 private:
  CudaBuffer buffer_;
  size_t used_ = 0;
};

void download(const TensorView& device, const TensorView& host) {
  if (host.empty()) return;
  CUDA_CHECK(cudaMemcpy(host.raw(), device.raw(), extent_bytes(host), cudaMemcpyDeviceToHost));
}

}  // namespace

void run_on_device(const attention::Backend& backend, const ops::MlaAttentionParams& p,
                   const attention::Plan& plan, const DeviceRun& options) {
  size_t bytes = DeviceCopies::room_for(options.workspace_bytes);
  for (const TensorView* view : {&p.q_nope, &p.q_pe, &p.cache, &p.batch.q_starts, &p.batch.kv_lens,
                                 &p.batch.block_table, &p.out, &p.lse})
    bytes += DeviceCopies::room_for(extent_bytes(*view));
  DeviceCopies copies(bytes, options.poison);
  ops::MlaAttentionParams device = p;
  device.q_nope = copies.upload(p.q_nope);
  device.q_pe = copies.upload(p.q_pe);
  device.cache = copies.upload(p.cache, options.unused_pages);
  device.batch = {.q_starts = copies.upload(p.batch.q_starts),
                  .kv_lens = copies.upload(p.batch.kv_lens),
                  .block_table = copies.upload(p.batch.block_table)};
  device.out = copies.upload(p.out);
  device.lse = copies.upload(p.lse);
  const std::span<std::byte> workspace(copies.take(options.workspace_bytes), options.workspace_bytes);
  for (int i = 0; i < options.launches; ++i)
    backend.run(device, plan, {.deterministic = options.deterministic, .workspace = workspace});
  CUDA_CHECK(cudaDeviceSynchronize());
  download(device.out, p.out);
  download(device.lse, p.lse);
}

}  // namespace latent::testing
