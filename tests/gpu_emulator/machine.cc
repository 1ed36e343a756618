// SPDX-License-Identifier: Apache-2.0
#include "gpu_emulator/machine.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
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

namespace latent::emulator {

struct Context {
  ucontext_t context{};
  void* fake_stack = nullptr;  // AddressSanitizer's
};

namespace {

constexpr size_t kStackBytes = 256 << 10;
constexpr size_t kSharedAlignment = 1024;
constexpr int64_t kMostTurns = 200'000'000;  // of the scheduler

struct Pending {
  Cta* cta;
  std::function<void()> work;
};

// Threads that are left behind: a warp of one CTA, or a lane of each of its warps.
struct Laggards {
  int cta, warp, lane;  // warp or lane is -1

  bool have(const Fiber& f) const {
    const auto thread = static_cast<int>(f.index.x);
    return static_cast<int>(f.cta->index.x) == cta && (thread / 32 == warp || thread % 32 == lane);
  }
};

struct Machine {
  Launch launch;
  const std::function<void(unsigned char*)>* kernel = nullptr;
  std::vector<std::unique_ptr<Cta>> ctas;
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::vector<Fiber*> runnable;
  std::vector<Pending> pending;
  std::mt19937_64 random;
  Laggards laggards{};
  uint64_t turns_a_copy = 64;  // in the mean, while there is something else to do
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

void do_some_work() {
  std::swap(machine->pending[machine->random() % machine->pending.size()], machine->pending.back());
  const Pending p = std::move(machine->pending.back());
  machine->pending.pop_back();
  p.work();
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

void do_later(std::function<void()> work) { machine->pending.push_back({self().cta, std::move(work)}); }

uint32_t to_address(const void* shared) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(shared) - self().cta->shared) + 1024;
}

namespace {

Laggards draw_laggards(std::mt19937_64& random, const Launch& launch) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  const bool by_warp = below(2) == 0;
  return {.cta = below(launch.ctas),
          .warp = by_warp ? below(launch.threads / 32) : -1,
          .lane = by_warp ? -1 : below(32)};
}

// Puts one of those that can run last. Laggards get a turn where others get 64.
void draw_next(Machine& m) {
  do std::swap(m.runnable[m.random() % m.runnable.size()], m.runnable.back());
  while (m.laggards.have(*m.runnable.back()) && m.random() % 64 != 0);
}

// One of those that can run, or a copy that is under way, or nothing if that is all there is.
void take_turn(Machine& m) {
  if (!m.pending.empty() && (m.runnable.empty() || m.random() % m.turns_a_copy == 0)) do_some_work();
  if (m.runnable.empty()) {
    if (m.pending.empty()) m.failure = describe_stuck();
    return;
  }
  draw_next(m);
  Fiber* f = m.runnable.back();
  m.runnable.pop_back();
  Cta* cta = f->cta;
  run_fiber(f);
  if (cta->fibers_left > 0) return;
  if (std::any_of(m.pending.begin(), m.pending.end(), [&](const Pending& b) { return b.cta == cta; }))
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
  m.laggards = draw_laggards(m.random, launch);
  if (m.random() % 2 == 0) m.turns_a_copy = 4096;
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
