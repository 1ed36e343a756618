// SPDX-License-Identifier: Apache-2.0
// An attention backend is five verbs: supports, plan, run, prepare_capture, prepare_replay. One conformance
// suite runs on every backend, unchanged. Backends are stateless; whatever a step needs is in its plan and
// workspace.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "kernels/registry.h"  // KernelContext
#include "ops/mla_attention.h"

namespace latent::attention {

// What a backend is chosen for: the operator's constants and types, not its batch.
struct MlaDesc {
  ops::MlaAttentionAttrs attrs;
  DType q_dtype = DType::kBF16;
  DType cache_dtype = DType::kBF16;  // with the format it stands for: ops/kv_layout.h
  DType kv_b_dtype = DType::kBF16;   // multi-head only
  bool on_device = false;            // operands live in device memory
};

// The largest step that will come; workspaces are sized by it and never grow (contract C13).
struct Limits {
  int max_tokens = 0;
  int max_seqs = 0;
  int max_kv_len = 0;
  int num_threads = 1;
  bool deterministic = false;
};

// One request's share of a step. Host data.
struct SeqLengths {
  std::span<const int32_t> q_starts;  // [num_seqs + 1]
  std::span<const int32_t> kv_lens;   // [num_seqs]; for operands in device memory an upper bound will do,
                                      // since the host need not know them
};

// A backend's division of a step's work, valid for every layer of that step and for any step of equal
// lengths.
struct Plan {
  std::vector<int32_t> words;  // the backend's own encoding; capacity is reserved by reserve_plan
  // Device memory of the backend's own, if it needs any that outlives a launch.
  std::shared_ptr<void> device_state;
};

struct Refusal {
  std::string reason;  // half a sentence: "needs AVX-512 BF16"
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;  // "ref", "cpu", "cuda_sm90"
  // Why this backend cannot serve the case here; nullopt if it can.
  virtual std::optional<Refusal> supports(const MlaDesc& desc) const = 0;
  // Scratch for run() of any step within the limits.
  virtual size_t workspace_bytes(const MlaDesc& desc, const Limits& limits) const = 0;
  // Reserves the plan's memory for the largest step.
  virtual void reserve_plan(const MlaDesc& desc, const Limits& limits, Plan* plan) const = 0;
  // Pure function of its arguments; allocates nothing after reserve_plan.
  virtual void plan(const MlaDesc& desc, const Limits& limits, const SeqLengths& lengths,
                    Plan* plan) const = 0;
  // Writes every row of params.out and, if given, params.lse. Allocates nothing.
  virtual void run(const ops::MlaAttentionParams& params, const Plan& plan,
                   const kernels::KernelContext& context) const = 0;
  // Captured graphs: once before capture, and before each replay with the new lengths. Nothing to do on a
  // CPU.
  virtual void prepare_capture(const MlaDesc& desc, const Limits& limits, Plan* plan) const {}
  virtual void prepare_replay(const SeqLengths& lengths, Plan* plan) const {}
};

// Every backend of this build, best first, the reference last.
std::span<const Backend* const> backends();

// A backend that was not built.
struct AbsentBackend {
  const char* name;
  const char* reason;  // half a sentence, as in Refusal
};
std::span<const AbsentBackend> absent_backends();

// The first that supports the case, or the one of that name. A forced backend that refuses is an error that
// says why; an unknown name is an error that lists the names.
Result<const Backend*> select(const MlaDesc& desc, const std::string& forced_name = "");

}  // namespace latent::attention
