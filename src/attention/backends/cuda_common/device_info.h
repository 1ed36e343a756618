// SPDX-License-Identifier: Apache-2.0
// What the current GPU is, asked once.
#pragma once

namespace latent::attention::cuda {

struct DeviceInfo {
  bool present = false;
  int compute_major = 0;
  int compute_minor = 0;
  int num_sms = 0;
  int shared_bytes_per_block = 0;  // the most one block may ask for
};

const DeviceInfo& device_info();

}  // namespace latent::attention::cuda
