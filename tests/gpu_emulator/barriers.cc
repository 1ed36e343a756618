// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>

#include "gpu_emulator/machine.h"

namespace latent::emulator {

void barrier_arrive(int number, int threads) {
  NamedBarrier& b = self().cta->barriers[number];
  if (b.arrived > 0 && b.expected != threads) fail("a barrier is used with two numbers of threads at once");
  b.expected = threads;
  if (++b.arrived < threads) return;
  b.arrived = 0;
  ++b.turn;
  wake(b.waiters);
}

void barrier_sync(int number, int threads) {
  NamedBarrier& b = self().cta->barriers[number];
  const uint64_t turn = b.turn;
  barrier_arrive(number, threads);
  static const std::array<std::string, 16> names = [] {
    std::array<std::string, 16> n;
    for (size_t i = 0; i < n.size(); ++i) n[i] = "barrier " + std::to_string(i);
    return n;
  }();
  while (b.turn == turn) block(b.waiters, names[static_cast<size_t>(number)].c_str());
}

void mbarrier_init(void* barrier, int arrivals) {
  self().cta->mbarriers[barrier] = {.expected = arrivals, .pending = arrivals};
}

void mbarrier_arrive(void* barrier, int64_t expect_bytes) {
  Mbarrier& b = self().cta->mbarriers.at(barrier);
  b.bytes += expect_bytes;
  if (--b.pending < 0) fail("an mbarrier has more arrivals than it expects");
  if (b.pending > 0 || b.bytes != 0) return;
  b.phase ^= 1;
  b.pending = b.expected;
  wake(b.waiters);
}

bool mbarrier_is_past(void* barrier, int parity) { return self().cta->mbarriers.at(barrier).phase != parity; }

void mbarrier_wait(void* barrier, int parity) {
  Mbarrier& b = self().cta->mbarriers.at(barrier);
  while (b.phase == parity) block(b.waiters, "mbarrier");
}

void change_registers(int to) {
  Fiber& f = self();
  Cta& cta = *f.cta;
  while (cta.free_registers < to - f.registers) block(cta.register_waiters, "registers");
  cta.free_registers -= to - f.registers;
  f.registers = to;
  wake(cta.register_waiters);
}

}  // namespace latent::emulator
