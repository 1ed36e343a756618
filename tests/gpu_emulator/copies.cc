// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "gpu_emulator/machine.h"

namespace latent::emulator {
namespace {

void do_copy(const Copy16& c) {
  c.from == nullptr ? std::memset(c.to, 0, 16) : std::memcpy(c.to, c.from, 16);
}

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
  if (launch().lazy)
    self().copies.push_back({shared, global});
  else
    do_copy({shared, global});
}

void commit_copies() { self().copy_groups.push_back(self().copies.size()); }

void wait_for_copies(size_t pending_groups) {
  std::vector<size_t>& groups = self().copy_groups;
  if (groups.size() <= pending_groups) return;
  const auto done = static_cast<long>(groups.size() - pending_groups);
  std::vector<Copy16>& copies = self().copies;
  const size_t end = groups[static_cast<size_t>(done - 1)];
  for (size_t i = 0; i < end; ++i) do_copy(copies[i]);
  copies.erase(copies.begin(), copies.begin() + static_cast<long>(end));
  groups.erase(groups.begin(), groups.begin() + done);
  for (size_t& group : groups) group -= end;
}

void load_box(void* shared, const TensorMap& map, int x, int y, int z, void* barrier) {
  const BoxCopy c{self().cta, shared, map, x, y, z, barrier};
  if (launch().lazy)
    do_later([c] { do_box(c); });
  else
    do_box(c);
}

}  // namespace latent::emulator
