// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda/device_run.h"

#include "attention/backends/cuda/device_copies.h"

namespace latent::testing {

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
