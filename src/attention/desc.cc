// SPDX-License-Identifier: Apache-2.0
#include "attention/desc.h"

#include <fmt/format.h>

namespace latent::attention {
namespace {

bool is_wide_float(DType d) { return d == DType::kF32 || d == DType::kF16 || d == DType::kBF16; }

}  // namespace

std::optional<Refusal> refuse_malformed(const MlaDesc& desc) {
  const ops::MlaAttentionAttrs& a = desc.attrs;
  const auto refuse = [](std::string reason) { return Refusal{std::move(reason)}; };
  if (a.num_heads < 1 || a.kv_rank < 1 || a.page_tokens < 1)
    return refuse(fmt::format("needs heads, a latent and pages, not {} heads, kv_rank {}, {} tokens a page",
                              a.num_heads, a.kv_rank, a.page_tokens));
  if (a.rope_dim < 0 || a.rope_dim % 2 != 0)
    return refuse(fmt::format("rotates in pairs, so not rope_dim {}", a.rope_dim));
  if (!is_absorbed(a) && (a.nope_dim < 0 || a.v_dim < 1 || a.nope_dim + a.rope_dim < 1))
    return refuse(fmt::format("needs keys and values, not nope_dim {} and v_dim {}", a.nope_dim, a.v_dim));
  if (!is_wide_float(desc.q_dtype))
    return refuse(fmt::format("takes queries in f32, f16 or bf16, not {}", to_string(desc.q_dtype)));
  const ops::KvLayout layout = kv_layout(desc);
  if (!is_wide_float(desc.cache_dtype) && layout.format() == ops::KvFormat::kWide)
    return refuse(fmt::format("reads a cache of f32, f16, bf16, f8_e4m3 or bytes (u8), not {}",
                              to_string(desc.cache_dtype)));
  if (const char* reason = ops::refuse_kv_row(layout))
    return refuse(fmt::format("finds that kv_rank {} {}", a.kv_rank, reason));
  if (!is_absorbed(a) && !is_wide_float(desc.kv_b_dtype) && desc.kv_b_dtype != DType::kF8E4M3)
    return refuse(fmt::format("reads kv_b as f32, f16, bf16 or f8_e4m3, not {}", to_string(desc.kv_b_dtype)));
  return std::nullopt;
}

std::optional<Refusal> refuse_device_memory(const MlaDesc& desc) {
  if (!desc.on_device) return std::nullopt;
  return Refusal{"reads host memory, and these operands live in device memory"};
}

}  // namespace latent::attention
