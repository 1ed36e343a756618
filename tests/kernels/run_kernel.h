// SPDX-License-Identifier: Apache-2.0
// Runs implementations the way an executor may not expect: exact workspaces with a guard behind, scratch and
// outputs full of poison, any number of threads.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "device/host_buffer.h"
#include "kernels/registry.h"
#include "tensor/tensor.h"
#include "testing/compare.h"
#include "testing/poison.h"

namespace latent::testing {

// Workspace and output hold the pattern before, and the bytes behind the workspace are untouched after.
template <class Params>
void run_poisoned(const kernels::Implementation<Params>& impl, const Params& params, PoisonPattern pattern,
                  int num_threads = 2) {
  constexpr size_t kGuard = 256;
  constexpr auto kGuardByte = std::byte{0xA5};
  const size_t bytes = impl.workspace_bytes != nullptr ? impl.workspace_bytes(params, num_threads) : 0;
  Result<HostBuffer> memory = HostBuffer::create(bytes + kGuard);
  ASSERT_TRUE(memory.ok());
  const std::span<std::byte> workspace(memory->data(), bytes);
  std::fill_n(memory->data() + bytes, kGuard, kGuardByte);
  poison(workspace, pattern);
  poison(params.out, pattern);
  impl.run(params, {.num_threads = num_threads, .deterministic = true, .workspace = workspace});
  EXPECT_TRUE(std::all_of(memory->data() + bytes, memory->data() + bytes + kGuard,
                          [=](std::byte b) { return b == kGuardByte; }))
      << impl.name << " wrote behind its workspace";
}

inline Tensor copy_of(const TensorView& view) {
  Result<Tensor> copy = Tensor::create(view.dtype(), view.shape());
  CHECK(copy.ok(), "{}", copy.error().message);
  copy_elements(view, copy->view());
  return *std::move(copy);
}

// Runs under each pattern, with one thread and with two; the output's bits are the same each time.
template <class Params>
void run_every_way(const kernels::Implementation<Params>& impl, const Params& params) {
  run_poisoned(impl, params, PoisonPattern::kNan, 2);
  const Tensor first = copy_of(params.out);
  for (const PoisonPattern pattern : kPoisonPatterns) {
    run_poisoned(impl, params, pattern, 1);
    EXPECT_TRUE(same_bits(params.out, first.view())) << impl.name << ", poison " << to_string(pattern);
  }
}

// Those that serve these operands on this machine, the reference last.
template <class Params>
std::vector<kernels::Implementation<Params>> serving(const Params& params) {
  std::vector<kernels::Implementation<Params>> all;
  for (const auto& impl : kernels::implementations<Params>())
    if (impl.refuse == nullptr || impl.refuse(params, cpu_features()) == nullptr) all.push_back(impl);
  return all;
}

// The same without the reference, unless it is the only one.
template <class Params>
std::vector<kernels::Implementation<Params>> serving_fast(const Params& params) {
  auto all = serving(params);
  if (all.size() > 1) all.pop_back();
  return all;
}

}  // namespace latent::testing
