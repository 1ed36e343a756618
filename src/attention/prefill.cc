// SPDX-License-Identifier: Apache-2.0
#include "attention/prefill.h"

#include <fmt/format.h>

#include <array>

#include "attention/backends/ref/ref_prefill.h"
#ifdef LATENT_CUDA
#include "attention/backends/cuda_sm80/cuda_sm80_prefill.h"
#include "attention/backends/cuda_sm90/cuda_sm90_prefill.h"
#endif

namespace latent::attention {

std::span<const PrefillBackend* const> prefill_backends() {
  static const std::array<const PrefillBackend*,
#ifdef LATENT_CUDA
                          3
#else
                          1
#endif
                          >
      all = {
#ifdef LATENT_CUDA
          &cuda_sm90_prefill(),
          &cuda_sm80_prefill(),
#endif
          &ref_prefill(),
      };
  return all;
}

Result<const PrefillBackend*> select_prefill(const PrefillDesc& desc, const std::string& forced_name) {
  std::string reasons;
  for (const PrefillBackend* backend : prefill_backends()) {
    if (!forced_name.empty() && forced_name != backend->name()) continue;
    const std::optional<Refusal> refusal = backend->supports(desc);
    if (!refusal) return backend;
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : "; ", backend->name(), refusal->reason);
  }
  for (const AbsentBackend& absent : absent_backends())
    if (forced_name.empty() || forced_name == absent.name)
      reasons += fmt::format("{}{} {}", reasons.empty() ? "" : "; ", absent.name, absent.reason);
  if (reasons.empty())
    return make_error(ErrorCode::kInvalidArgument, "no attention backend '{}' for prompts", forced_name);
  return make_error(ErrorCode::kUnsupported, "no attention backend serves these prompts: {}", reasons);
}

std::optional<Refusal> refuse_malformed(const PrefillDesc& desc) {
  const ops::PrefillAttentionAttrs& a = desc.attrs;
  const auto is_float = [](DType d) { return d == DType::kF32 || d == DType::kF16 || d == DType::kBF16; };
  if (a.num_heads < 1 || a.v_dim < 1 || a.nope_dim < 0 || a.rope_dim < 0 || a.nope_dim + a.rope_dim < 1)
    return Refusal{
        fmt::format("needs heads, keys and values, not {} heads, nope_dim {}, rope_dim {}, v_dim {}",
                    a.num_heads, a.nope_dim, a.rope_dim, a.v_dim)};
  if (!is_float(desc.dtype))
    return Refusal{fmt::format("takes operands in f32, f16 or bf16, not {}", to_string(desc.dtype))};
  if (desc.out_dtype != desc.dtype && desc.out_dtype != DType::kF32)
    return Refusal{fmt::format("writes {} or f32, not {}", to_string(desc.dtype), to_string(desc.out_dtype))};
  return std::nullopt;
}

}  // namespace latent::attention
