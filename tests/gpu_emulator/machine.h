// SPDX-License-Identifier: Apache-2.0
// The emulated machine as its instructions see it. All functions act for the fiber that runs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu_emulator/emulator.h"

namespace latent::emulator {

struct Fiber;
using Waiters = std::vector<Fiber*>;

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// A warpgroup product, as one lane issued it.
struct Product {
  float* d = nullptr;
  int columns = 0;
  bool accumulate = true, half = false;
  bool a_in_registers = false, a_transposed = false, b_transposed = false;
  uint64_t a = 0, b = 0;
  uint32_t a_registers[4] = {};
};

struct Copy16 {
  void* to;
  const void* from;  // null: zeros
};

struct Warp {
  std::vector<Fiber*> lanes;
  int arrived = 0;
  uint64_t turn = 0;
  const char* name = nullptr;
  const void* in[32] = {};
  uint64_t out[32] = {};
  Waiters waiters;
};

struct NamedBarrier {
  int arrived = 0, expected = 0;
  uint64_t turn = 0;
  Waiters waiters;
};

struct Mbarrier {
  int expected = 0, pending = 0, phase = 0;
  int64_t bytes = 0;
  Waiters waiters;
};

struct Cta {
  Index3 index;
  unsigned char* shared = nullptr;
  std::vector<Warp> warps;
  NamedBarrier barriers[16];
  std::map<const void*, Mbarrier> mbarriers;
  int64_t free_registers = 0;
  Waiters register_waiters;
  int fibers_left = 0;
};

struct Fiber {
  Cta* cta = nullptr;
  Index3 index;
  int registers = 0;
  const char* waits_for = "";
  std::vector<Product> products;    // issued, not yet done
  std::vector<size_t> groups;       // ends of committed groups among them
  std::vector<Copy16> copies;       // issued, not yet done
  std::vector<size_t> copy_groups;  // ends of committed groups among them
  std::unique_ptr<struct Context> context;
  Warp& warp() const { return cta->warps[index.x / 32]; }
  int lane() const { return static_cast<int>(index.x % 32); }
};

// A tensor map as cuTensorMapEncodeTiled makes it: of 16-bit elements in boxes of 64 columns with the
// 128-byte swizzle, or of words in boxes of whole rows, one behind the other.
struct TensorMap {
  const unsigned char* base;
  int64_t dims[3];     // columns, rows, planes
  int64_t strides[2];  // bytes from row to row, plane to plane
  int box_rows;
  int element_bytes = 2;
  int box_columns = 64;
  bool swizzled = true;
  int box_row_bytes() const { return box_columns * element_bytes; }
};

Fiber& self();
const Launch& launch();

// Lets the others run until `ready` may have come true: the caller looks again.
void block(Waiters& waiters, const char* waits_for);
void wake(Waiters& waiters);
void yield();

// What all lanes of a warp do together: once each has come with its `in`, the last one computes; every lane
// gets its out.
uint64_t with_warp(const char* name, const void* in, void (*compute)(Warp&));

// Work of no thread, done at any time before this CTA ends.
void do_later(std::function<void()> work);

void fail(const std::string& why);
int64_t clock();

// Barriers.
void barrier_sync(int number, int threads);
void barrier_arrive(int number, int threads);
void mbarrier_init(void* barrier, int arrivals);
void mbarrier_arrive(void* barrier, int64_t expect_bytes);
bool mbarrier_is_past(void* barrier, int parity);
void mbarrier_wait(void* barrier, int parity);
void change_registers(int to);

// Copies.
void copy_16(void* shared, const void* global);
void commit_copies();
void wait_for_copies(size_t pending_groups);
void load_box(void* shared, const TensorMap& map, int x, int y, int z, void* barrier);

// Products.
void issue(const Product& product);
void commit();
void wait_for_products(size_t most_pending);

// Byte `offset` from `base` under the 128-byte swizzle, which acts on addresses: `zero` is address 0 of the
// CTA's.
inline unsigned char* swizzled(unsigned char* base, unsigned char* zero, int64_t offset) {
  const auto address = static_cast<uint64_t>(base - zero + offset);
  return zero + (address ^ (address >> 7 & 7) << 4);
}

// Addresses in shared memory as instructions have them; never 0.
uint32_t to_address(const void* shared);

}  // namespace latent::emulator
