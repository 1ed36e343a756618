// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "gpu_emulator/machine.h"

namespace latent::emulator {
namespace {

struct BoxCopy {
  Cta* cta;
  void* to;
  TensorMap map;
  int x, y, z;
  void* barrier;
};

void do_box(const BoxCopy& c) {
  const TensorMap& map = c.map;
  const int64_t element = map.element_bytes;
  auto* to = static_cast<unsigned char*>(c.to);
  for (int r = 0; r < map.box_rows; ++r)
    for (int column = 0; column < map.box_columns; ++column) {
      const int64_t x = c.x + column, y = c.y + r, at = r * map.box_row_bytes() + column * element;
      uint32_t value = 0;
      if (x < map.dims[0] && y < map.dims[1] && c.z >= 0 && c.z < map.dims[2])
        std::memcpy(&value, map.base + c.z * map.strides[1] + y * map.strides[0] + x * element,
                    static_cast<size_t>(element));
      std::memcpy(map.swizzled ? swizzled(to, c.cta->shared, at) : to + at, &value,
                  static_cast<size_t>(element));
    }
  Mbarrier& b = c.cta->mbarriers.at(c.barrier);
  b.bytes -= int64_t{map.box_rows} * map.box_row_bytes();
  if (b.pending > 0 || b.bytes != 0) return;
  b.phase ^= 1;
  b.pending = b.expected;
  wake(b.waiters);
}

}  // namespace

void copy_16(void* shared, const void* global) {
  self().copies.push_back({shared, global});
  if (!launch().lazy) wait_for_copies();
}

void wait_for_copies() {
  for (const Copy16& c : self().copies)
    c.from == nullptr ? std::memset(c.to, 0, 16) : std::memcpy(c.to, c.from, 16);
  self().copies.clear();
}

void load_box(void* shared, const TensorMap& map, int x, int y, int z, void* barrier) {
  const BoxCopy c{self().cta, shared, map, x, y, z, barrier};
  if (launch().lazy)
    do_later([c] { do_box(c); });
  else
    do_box(c);
}

}  // namespace latent::emulator
