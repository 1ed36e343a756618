// SPDX-License-Identifier: Apache-2.0
// Attention of prompt tokens over projected keys and values (ops/prefill_attention.h): who can do it, and how
// it is run. One conformance suite runs on every backend, unchanged.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "attention/backend.h"
#include "ops/prefill_attention.h"

namespace latent::attention {

// What a backend is chosen for: the operator's constants and types, not its batch.
struct PrefillDesc {
  ops::PrefillAttentionAttrs attrs;
  DType dtype = DType::kBF16;      // of queries, keys and values
  DType out_dtype = DType::kBF16;  // the same, or f32
  bool on_device = false;          // operands live in device memory
};

class PrefillBackend {
 public:
  virtual ~PrefillBackend() = default;
  virtual const char* name() const = 0;
  // Why this backend cannot serve the case here; nullopt if it can.
  virtual std::optional<Refusal> supports(const PrefillDesc& desc) const = 0;
  // Memory that outlives a launch; launches that share it follow one another. Null if none is needed.
  virtual std::shared_ptr<void> create_state() const { return nullptr; }
  // Writes every row of params.out and, if given, params.lse. Allocates nothing, needs no workspace, and may
  // be captured; the offsets are read on the device by a backend that lives there.
  virtual void run(const ops::PrefillAttentionParams& params, void* state,
                   const kernels::KernelContext& context) const = 0;
};

// Every backend of this build, best first, the reference last.
std::span<const PrefillBackend* const> prefill_backends();

// The first that supports the case, or the one of that name; errors as of attention::select.
Result<const PrefillBackend*> select_prefill(const PrefillDesc& desc, const std::string& forced_name = "");

// Why no backend can serve the description: sizes that are not positive, types outside the contract.
std::optional<Refusal> refuse_malformed(const PrefillDesc& desc);

}  // namespace latent::attention
