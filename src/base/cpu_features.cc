// SPDX-License-Identifier: Apache-2.0
#include "base/cpu_features.h"

#include <cstdlib>
#include <string_view>

#include "base/env.h"

namespace latent {
namespace {

CpuFeatures detect() {
  CpuFeatures f;
#if defined(__x86_64__)
  __builtin_cpu_init();
  f.avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  f.avx512 = f.avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  f.avx512_bf16 = f.avx512 && __builtin_cpu_supports("avx512bf16");
  f.avx512_vbmi = f.avx512 && __builtin_cpu_supports("avx512vbmi");
  f.avx512_vnni = f.avx512 && __builtin_cpu_supports("avx512vnni");
#endif
  return f;
}

CpuFeatures capped(CpuFeatures f) {
  const std::string cap = env_string("LATENT_ISA", "");
  if (cap == "scalar") return {};
  if (cap == "avx2") {
    CpuFeatures only;
    only.avx2 = f.avx2;
    return only;
  }
  if (cap == "avx512") f.avx512_bf16 = f.avx512_vbmi = f.avx512_vnni = false;
  return f;
}

}  // namespace

const CpuFeatures& cpu_features() {
  static const CpuFeatures features = capped(detect());
  return features;
}

std::string to_string(const CpuFeatures& f) {
  std::string text;
  const auto add = [&](bool has, const char* name) {
    if (has) text += (text.empty() ? "" : " ") + std::string(name);
  };
  add(f.avx2, "avx2");
  add(f.avx512, "avx512");
  add(f.avx512_bf16, "avx512_bf16");
  add(f.avx512_vbmi, "avx512_vbmi");
  add(f.avx512_vnni, "avx512_vnni");
  return text.empty() ? "scalar" : text;
}

}  // namespace latent
