// SPDX-License-Identifier: Apache-2.0
// Divisions by the number of heads, which every row of a kernel needs.
#pragma once

namespace latent::attention::cuda {

// Division by a number that is known once a launch: one multiplication each. Exact for dividends below 2^32 /
// divisor.
class FastDivisor {
 public:
  __device__ explicit FastDivisor(int divisor)
      : divisor_(divisor), reciprocal_(divisor > 1 ? 0xFFFFFFFFu / divisor + 1 : 0) {}
  __device__ int divisor() const { return divisor_; }
  __device__ int divide(int x) const { return divisor_ > 1 ? __umulhi(x, reciprocal_) : x; }
  __device__ int remainder(int x) const { return x - divide(x) * divisor_; }

 private:
  int divisor_;
  unsigned reciprocal_;
};

}  // namespace latent::attention::cuda
