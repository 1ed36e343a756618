// SPDX-License-Identifier: Apache-2.0
#include "attention/backends/cuda_common/split_memory.h"

#include "attention/backends/cuda_common/device_info.h"
#include "base/check.h"
#include "base/math.h"
#include "device/cuda_check.h"

namespace latent::attention::cuda {
namespace {

constexpr size_t kAlignment = 256;

size_t num_slots(const SplitShape& s) {
  return s.num_parts == 1 ? 0
                          : size_t{kSlotsPerPart} * static_cast<size_t>(s.num_parts) *
                                static_cast<size_t>(s.num_row_tiles);
}

size_t out_bytes(const SplitShape& s) {
  return round_up(num_slots(s) * static_cast<size_t>(s.rows) * static_cast<size_t>(s.width) * sizeof(float),
                  kAlignment);
}

size_t lse_bytes(const SplitShape& s) {
  return round_up(num_slots(s) * static_cast<size_t>(s.rows) * sizeof(float), kAlignment);
}

}  // namespace

const DeviceInfo& device_info() {
  static const DeviceInfo info = [] {
    DeviceInfo i;
    int device = 0;
    cudaDeviceProp properties{};
    i.present =
        cudaGetDevice(&device) == cudaSuccess && cudaGetDeviceProperties(&properties, device) == cudaSuccess;
    cudaGetLastError();  // no driver is no failure of ours
    if (!i.present) return i;
    i.compute_major = properties.major;
    i.compute_minor = properties.minor;
    i.num_sms = properties.multiProcessorCount;
    i.shared_bytes_per_block = static_cast<int>(properties.sharedMemPerBlockOptin);
    return i;
  }();
  return info;
}

size_t split_bytes(const SplitShape& shape) { return out_bytes(shape) + lse_bytes(shape); }

void carve_split_memory(const SplitShape& shape, std::span<std::byte> workspace, DecodeParams* params) {
  CHECK(split_bytes(shape) <= workspace.size(), "split requests need {} bytes of scratch, there are {}",
        split_bytes(shape), workspace.size());
  params->partial_out = reinterpret_cast<float*>(workspace.data());
  params->partial_lse = reinterpret_cast<float*>(workspace.data() + out_bytes(shape));
}

std::shared_ptr<void> create_arrival_counters() {
  // With more row tiles there are fewer parts: never more than one CTA an SM shares keys.
  const size_t bytes = size_t{kSlotsPerPart} * static_cast<size_t>(device_info().num_sms) * sizeof(int32_t);
  void* counters = nullptr;
  CUDA_CHECK(cudaMalloc(&counters, bytes));
  CUDA_CHECK(cudaMemset(counters, 0, bytes));
  return {counters, [](void* memory) { CUDA_CHECK(cudaFree(memory)); }};
}

}  // namespace latent::attention::cuda
