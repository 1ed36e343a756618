// SPDX-License-Identifier: Apache-2.0
#include "gpu_emulator/machine.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <random>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

#include "base/check.h"
#include "tensor/float_types.h"

namespace latent::emulator {

struct Context {
  ucontext_t context{};
  void* fake_stack = nullptr;  // AddressSanitizer's
};

namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kSharedAlignment = 1024;
constexpr int64_t kMostTurns = 200'000'000;  // of the scheduler

struct BoxCopy {
  Cta* cta;
  void* to;
  TensorMap map;
  int x, y, z;
  void* barrier;
};

struct Machine {
  Launch launch;
  const std::function<void(unsigned char*)>* kernel = nullptr;
  std::vector<std::unique_ptr<Cta>> ctas;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> runnable;
  std::vector<BoxCopy> boxes;
  std::mt19937_64 random;
  Context scheduler;
  const void* scheduler_stack = nullptr;
  size_t scheduler_stack_bytes = 0;
  Fiber* current = nullptr;
  std::string failure;
  int64_t now = 0;
  int ended = 0;  // CTAs
  std::vector<unsigned char*> stacks;
};

Machine* machine = nullptr;

#if defined(__SANITIZE_ADDRESS__)
void leaving(void** fake_stack, const void* stack, size_t bytes) {
  __sanitizer_start_switch_fiber(fake_stack, stack, bytes);
}
void arrived(void* fake_stack, const void** from, size_t* bytes) {
  __sanitizer_finish_switch_fiber(fake_stack, from, bytes);
}
#else
void leaving(void**, const void*, size_t) {}
void arrived(void*, const void**, size_t*) {}
#endif

void switch_out(bool for_good) {
  Context& c = *machine->current->context;
  leaving(for_good ? nullptr : &c.fake_stack, machine->scheduler_stack, machine->scheduler_stack_bytes);
  swapcontext(&c.context, &machine->scheduler.context);
  arrived(c.fake_stack, &machine->scheduler_stack, &machine->scheduler_stack_bytes);
}

void enter_fiber() {
  arrived(nullptr, &machine->scheduler_stack, &machine->scheduler_stack_bytes);
  Fiber& f = *machine->current;
  (*machine->kernel)(f.cta->shared);
  f.waits_for = "end";
  --f.cta->fibers_left;
  switch_out(true);
}

// Until the fiber blocks, yields or ends.
void run_fiber(Fiber* f) {
  Machine& m = *machine;
  m.current = f;
  ucontext_t& to = f->context->context;
  leaving(&m.scheduler.fake_stack, to.uc_stack.ss_sp, to.uc_stack.ss_size);
  swapcontext(&m.scheduler.context, &to);
  arrived(m.scheduler.fake_stack, nullptr, nullptr);
}

unsigned char* swizzled(unsigned char* base, unsigned char* zero, int64_t offset) {
  const auto address = static_cast<uint64_t>(base - zero + offset);
  return zero + (address ^ (address >> 7 & 7) << 4);
}

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

void do_random_box() {
  std::swap(machine->boxes[machine->random() % machine->boxes.size()], machine->boxes.back());
  const BoxCopy c = machine->boxes.back();
  machine->boxes.pop_back();
  do_box(c);
}

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

std::string describe_stuck() {
  std::map<std::string, int> counts;
  for (const auto& f : machine->fibers)
    if (std::strcmp(f->waits_for, "end") != 0)
      ++counts[std::string("CTA ") + std::to_string(f->cta->index.x) + " warp " +
               std::to_string(f->index.x / 32) + " waits for " + f->waits_for];
  std::string text = "stuck:";
  for (const auto& [what, count] : counts) text += "\n  " + what + " (" + std::to_string(count) + " lanes)";
  return text;
}

unsigned char* take_stack() {
  if (machine->stacks.empty()) {
    void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(stack != MAP_FAILED, "no memory for the stack of an emulated thread");
    return static_cast<unsigned char*>(stack);
  }
  unsigned char* stack = machine->stacks.back();
  machine->stacks.pop_back();
  return stack;
}

void prepare(Fiber& f, unsigned char* stack) {
  f.context = std::make_unique<Context>();
  ucontext_t* c = &f.context->context;
  getcontext(c);
  c->uc_stack.ss_sp = stack;
  c->uc_stack.ss_size = kStackBytes;
  makecontext(c, enter_fiber, 0);
}

void add_cta(int index) {
  const Launch& l = machine->launch;
  auto cta = std::make_unique<Cta>();
  cta->index.x = static_cast<unsigned>(index);
  const size_t bytes = (l.shared_bytes + kSharedAlignment - 1) / kSharedAlignment * kSharedAlignment;
  cta->shared = static_cast<unsigned char*>(std::aligned_alloc(kSharedAlignment, bytes));
  std::memset(cta->shared, 0xFF, bytes);  // NaN
  cta->warps.resize(static_cast<size_t>(l.threads / 32));
  cta->fibers_left = l.threads;
  for (int t = 0; t < l.threads; ++t) {
    auto f = std::make_unique<Fiber>();
    f->cta = cta.get();
    f->index.x = static_cast<unsigned>(t);
    f->registers = l.registers;
    f->waits_for = "its turn";
    cta->warps[static_cast<size_t>(t / 32)].lanes.push_back(f.get());
    prepare(*f, take_stack());
    machine->runnable.push_back(f.get());
    machine->fibers.push_back(std::move(f));
  }
  machine->ctas.push_back(std::move(cta));
}

void remove_cta(Cta* cta) {
  std::erase_if(machine->fibers, [&](const std::unique_ptr<Fiber>& f) {
    if (f->cta != cta) return false;
    machine->stacks.push_back(static_cast<unsigned char*>(f->context->context.uc_stack.ss_sp));
    return true;
  });
  std::free(cta->shared);
  std::erase_if(machine->ctas, [&](const std::unique_ptr<Cta>& c) { return c.get() == cta; });
}

}  // namespace

Fiber& self() { return *machine->current; }
const Launch& launch() { return machine->launch; }

void block(Waiters& waiters, const char* waits_for) {
  Fiber& f = self();
  f.waits_for = waits_for;
  waiters.push_back(&f);
  switch_out(false);
}

void wake(Waiters& waiters) {
  for (Fiber* f : waiters) machine->runnable.push_back(f);
  waiters.clear();
}

void yield() {
  self().waits_for = "its turn";
  machine->runnable.push_back(&self());
  switch_out(false);
}

void fail(const std::string& why) {
  if (machine->failure.empty()) machine->failure = why;
}

int64_t clock() { return machine->now += 16; }

uint64_t with_warp(const char* name, const void* in, void (*compute)(Warp&)) {
  Fiber& f = self();
  Warp& w = f.warp();
  if (w.arrived == 0) w.name = name;
  if (w.name != name)
    fail(std::string("lanes of a warp part ways: some are at ") + w.name + ", some at " + name);
  w.in[f.lane()] = in;
  const uint64_t turn = w.turn;
  if (++w.arrived == 32) {
    compute(w);
    w.arrived = 0;
    ++w.turn;
    wake(w.waiters);
  } else {
    while (w.turn == turn) block(w.waiters, name);
  }
  return w.out[f.lane()];
}

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
    machine->boxes.push_back(c);
  else
    do_box(c);
}

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
      if (lane->groups != groups) fail("lanes of a warp issued different products");
    if (!machine->failure.empty()) return;
    for (size_t i = 0; i < count; ++i) multiply(lanes, i);
    for (Fiber* lane : lanes) {
      lane->products.erase(lane->products.begin(), lane->products.begin() + static_cast<int64_t>(count));
      lane->groups.erase(lane->groups.begin(), lane->groups.begin() + static_cast<int64_t>(done));
      for (size_t& g : lane->groups) g -= count;
    }
  });
}

uint32_t to_address(const void* shared) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(shared) - self().cta->shared) + 1024;
}

namespace {

// One of those that can run, or a copy that is under way, or nothing if that is all there is.
void take_turn(Machine& m) {
  if (!m.boxes.empty() && (m.runnable.empty() || m.random() % 64 == 0)) do_random_box();
  if (m.runnable.empty()) {
    if (m.boxes.empty()) m.failure = describe_stuck();
    return;
  }
  std::swap(m.runnable[m.random() % m.runnable.size()], m.runnable.back());
  Fiber* f = m.runnable.back();
  m.runnable.pop_back();
  Cta* cta = f->cta;
  run_fiber(f);
  if (cta->fibers_left > 0) return;
  if (std::any_of(m.boxes.begin(), m.boxes.end(), [&](const BoxCopy& b) { return b.cta == cta; }))
    m.failure = "a CTA ended while copies to its shared memory were under way";
  remove_cta(cta);
  ++m.ended;
}

}  // namespace

std::string run(const Launch& launch, const std::function<void(unsigned char* shared)>& kernel) {
  CHECK(launch.threads % 32 == 0, "a CTA of {} threads is not of whole warps", launch.threads);
  Machine m;
  m.launch = launch;
  m.kernel = &kernel;
  m.random.seed(launch.seed);
  machine = &m;
  const auto at_once = launch.ctas_at_once == 0 ? static_cast<size_t>(launch.ctas) : launch.ctas_at_once;
  int started = 0;
  for (int64_t turns = 0; m.ended < launch.ctas && m.failure.empty(); ++turns) {
    while (started < launch.ctas && m.ctas.size() < at_once) add_cta(started++);
    take_turn(m);
    if (turns > kMostTurns && m.failure.empty()) m.failure = "too many turns; " + describe_stuck();
  }
  while (!m.ctas.empty()) remove_cta(m.ctas.back().get());
  for (unsigned char* stack : m.stacks) munmap(stack, kStackBytes);
  machine = nullptr;
  return m.failure;
}

}  // namespace latent::emulator
