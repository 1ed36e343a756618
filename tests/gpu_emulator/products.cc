// SPDX-License-Identifier: Apache-2.0
#include <bit>
#include <cstring>

#include "gpu_emulator/machine.h"
#include "tensor/float_types.h"

namespace latent::emulator {
namespace {

float to_float(uint16_t bits, bool half) {
  return half ? std::bit_cast<Float16>(bits).to_float() : std::bit_cast<BFloat16>(bits).to_float();
}

float element(const unsigned char* at, bool half) {
  uint16_t bits;
  std::memcpy(&bits, at, 2);
  return to_float(bits, half);
}

// Element (outer, k) of a matrix in the 128-byte swizzle.
float matrix_element(uint64_t descriptor, bool transposed, int outer, int k, bool half, unsigned char* zero) {
  const auto field = [&](int shift) { return static_cast<int64_t>(descriptor >> shift & 0x3FFF) << 4; };
  const int64_t start = field(0) - 1024, panel = field(16), group = field(32);
  const int64_t offset = transposed ? outer / 64 * panel + k / 8 * group + k % 8 * 128 + outer % 64 * 2
                                    : outer / 8 * group + outer % 8 * 128 + k * 2;
  return element(swizzled(zero + start, zero, offset), half);
}

// One warp's rows of a product.
void multiply(const std::vector<Fiber*>& lanes, size_t index) {
  const Product& p = lanes[0]->products[index];
  Cta& cta = *lanes[0]->cta;
  const int first_row = static_cast<int>(lanes[0]->index.x) / 32 % 4 * 16;
  std::vector<float> a(16 * 16), b(static_cast<size_t>(p.columns) * 16);
  for (int r = 0; r < 16; ++r)
    for (int k = 0; k < 16; ++k) {
      float& x = a[static_cast<size_t>(r * 16 + k)];
      if (p.a_in_registers) {
        const uint32_t reg =
            lanes[static_cast<size_t>(r % 8 * 4 + k % 8 / 2)]->products[index].a_registers[r / 8 + k / 8 * 2];
        const auto bits = static_cast<uint16_t>(reg >> k % 2 * 16);
        x = to_float(bits, p.half);
      } else {
        x = matrix_element(p.a, p.a_transposed, first_row + r, k, p.half, cta.shared);
      }
    }
  for (int n = 0; n < p.columns; ++n)
    for (int k = 0; k < 16; ++k)
      b[static_cast<size_t>(n * 16 + k)] = matrix_element(p.b, p.b_transposed, n, k, p.half, cta.shared);
  for (size_t lane = 0; lane < 32; ++lane) {
    float* d = lanes[lane]->products[index].d;
    for (int i = 0; i < p.columns / 2; ++i) {
      const size_t row = lane / 4 + static_cast<size_t>(8 * (i / 2 % 2));
      const size_t column = static_cast<size_t>(i / 4 * 8 + i % 2) + lane % 4 * 2;
      float sum = 0;
      for (size_t k = 0; k < 16; ++k) sum += a[row * 16 + k] * b[column * 16 + k];
      d[i] = p.accumulate ? d[i] + sum : sum;
    }
  }
}

}  // namespace

void issue(const Product& product) { self().products.push_back(product); }

void commit() {
  self().groups.push_back(self().products.size());
  if (!launch().lazy) wait_for_products(0);
}

void wait_for_products(size_t most_pending) {
  with_warp("products", &most_pending, [](Warp& w) {
    const size_t most = *static_cast<const size_t*>(w.in[0]);
    const std::vector<Fiber*>& lanes = w.lanes;
    const std::vector<size_t>& groups = lanes[0]->groups;
    if (groups.size() <= most) return;
    const size_t done = groups.size() - most, count = groups[done - 1];
    for (Fiber* lane : lanes)
      if (lane->groups != groups) return fail("lanes of a warp issued different products");
    for (size_t i = 0; i < count; ++i) multiply(lanes, i);
    for (Fiber* lane : lanes) {
      lane->products.erase(lane->products.begin(), lane->products.begin() + static_cast<int64_t>(count));
      lane->groups.erase(lane->groups.begin(), lane->groups.begin() + static_cast<int64_t>(done));
      for (size_t& g : lane->groups) g -= count;
    }
  });
}

}  // namespace latent::emulator
