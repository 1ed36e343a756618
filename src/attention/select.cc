// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <array>

#include "attention/backend.h"
#include "attention/backends/cpu/cpu_backend.h"
#include "attention/backends/ref/ref_backend.h"
#include "base/log.h"
#ifdef LATENT_CUDA
#include "attention/backends/cuda_sm80/cuda_sm80_backend.h"
#include "attention/backends/cuda_sm90/cuda_sm90_backend.h"
#endif

namespace latent::attention {
namespace {

std::string backend_names() {
  std::string names;
  for (const Backend* b : backends()) names += fmt::format("{}{}", names.empty() ? "" : ", ", b->name());
  return names;
}

Result<const Backend*> select_by_name(const MlaDesc& desc, const std::string& name) {
  for (const Backend* backend : backends()) {
    if (name != backend->name()) continue;
    if (const std::optional<Refusal> refusal = backend->supports(desc))
      return make_error(ErrorCode::kUnsupported, "attention backend '{}' cannot serve this model: it {}",
                        name, refusal->reason);
    return backend;
  }
  for (const AbsentBackend& absent : absent_backends())
    if (name == absent.name)
      return make_error(ErrorCode::kUnsupported, "attention backend '{}' {}; this build has {}", name,
                        absent.reason, backend_names());
  return make_error(ErrorCode::kInvalidArgument, "no attention backend '{}'; this build has {}", name,
                    backend_names());
}

}  // namespace

std::span<const Backend* const> backends() {
  static const std::array all = {
#ifdef LATENT_CUDA
      &cuda_sm90_backend(),
      &cuda_sm80_backend(),
#endif
      &cpu_backend(),
      &ref_backend(),
  };
  return all;
}

std::span<const AbsentBackend> absent_backends() {
#ifdef LATENT_CUDA
  return {};
#else
  static constexpr AbsentBackend kAbsent[] = {
      {"cuda_sm90", "was not built (LATENT_WITH_CUDA is off)"},
      {"cuda_sm80", "was not built (LATENT_WITH_CUDA is off)"},
  };
  return kAbsent;
#endif
}

Result<const Backend*> select(const MlaDesc& desc, const std::string& forced_name) {
  if (!forced_name.empty()) return select_by_name(desc, forced_name);
  std::string reasons;
  for (const Backend* backend : backends()) {
    const std::optional<Refusal> refusal = backend->supports(desc);
    if (!refusal) return backend;
    log(LogLevel::kDebug, "attention: {} {}", backend->name(), refusal->reason);
    reasons += fmt::format("{}{} {}", reasons.empty() ? "" : "; ", backend->name(), refusal->reason);
  }
  for (const AbsentBackend& absent : absent_backends())
    reasons += fmt::format("; {} {}", absent.name, absent.reason);
  return make_error(ErrorCode::kUnsupported, "no attention backend serves this model: {}", reasons);
}

}  // namespace latent::attention
