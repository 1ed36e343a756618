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

// While it lives, this thread may allocate although a stream is being captured: a plan may be made then.
class RelaxedCapture {
 public:
  RelaxedCapture() { CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  ~RelaxedCapture() { CUDA_CHECK(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// On a stream of its own and waited for: the default stream comes before no stream made with
// cudaStreamNonBlocking.
void clear_now(void* memory, size_t bytes) {
  cudaStream_t stream = nullptr;
  CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CUDA_CHECK(cudaMemsetAsync(memory, 0, bytes, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  CUDA_CHECK(cudaStreamDestroy(stream));
}

void free_device_memory(void* memory) {
  // An owner may outlive CUDA at the end of the process, which takes the memory along.
  if (cudaFree(nullptr) == cudaErrorCudartUnloading) return;
  const RelaxedCapture relaxed;
  CUDA_CHECK(cudaFree(memory));
}

size_t lse_bytes(const SplitShape& s) {
  return round_up(
      num_slots(s) * static_cast<size_t>(s.rows) * static_cast<size_t>(s.state_floats) * sizeof(float),
      kAlignment);
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
  const RelaxedCapture relaxed;
  void* counters = nullptr;
  CUDA_CHECK(cudaMalloc(&counters, bytes));
  clear_now(counters, bytes);
  return {counters, free_device_memory};
}

}  // namespace latent::attention::cuda
