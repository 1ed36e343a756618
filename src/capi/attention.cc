// SPDX-License-Identifier: Apache-2.0
// The functions of include/latent/attention.h.
#include <latent/attention.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "attention/backend.h"
#include "capi/desc.h"
#include "capi/last_error.h"
#include "capi/operands.h"
#include "capi/read_struct.h"
#include "capi/step_lengths.h"

using latent::ErrorCode;
using latent::make_error;
using latent::Result;
using latent::Status;
namespace attention = latent::attention;
namespace capi = latent::capi;

struct latent_attention {
  capi::Description desc;
  const attention::Backend* backend;
};

struct latent_attention_plan {
  const latent_attention* attention;
  attention::Limits limits;
  size_t workspace_bytes = 0;
  attention::Plan plan;
  capi::StepLengths step;
  bool is_planned = false;
};

namespace {

constexpr uintptr_t kWorkspaceAlignment = 256;

Status null_argument(const char* name) { return make_error(ErrorCode::kInvalidArgument, "{} is NULL", name); }

std::string forced_backend(const char* asked) {
  if (asked != nullptr && *asked != '\0') return asked;
  const char* variable = std::getenv("LATENT_ATTENTION_BACKEND");
  return variable == nullptr ? "" : variable;
}

template <size_t kSize>
void copy_text(const std::string& text, char (&to)[kSize]) {
  std::snprintf(to, kSize, "%s", text.c_str());
}

Status query_backend(int32_t index, const latent_attention_desc* given, latent_attention_backend_info* info) {
  if (Result<latent_attention_backend_info> read = capi::read_struct(info, "latent_attention_backend_info");
      !read)
    return read.error();
  if (index < 0 || index >= latent_attention_num_backends())
    return make_error(ErrorCode::kInvalidArgument, "index {}: there are {} backends", index,
                      latent_attention_num_backends());
  const auto built = attention::backends();
  const auto at = static_cast<size_t>(index);
  std::string name, reason;
  if (at < built.size()) {
    name = built[at]->name();
    if (given != nullptr) {
      const Result<capi::Description> desc = capi::read_desc(given);
      if (!desc) return desc.error();
      if (const auto refusal = built[at]->supports(desc->mla)) reason = refusal->reason;
    }
  } else {
    const attention::AbsentBackend& absent = attention::absent_backends()[at - built.size()];
    name = absent.name;
    reason = absent.reason;
  }
  info->is_built = at < built.size();
  info->can_serve = reason.empty();
  copy_text(name, info->name);
  copy_text(reason, info->reason);
  return {};
}

Status create(const latent_attention_desc* given, const char* backend, latent_attention** to) {
  if (to == nullptr) return null_argument("attention");
  *to = nullptr;
  const Result<capi::Description> desc = capi::read_desc(given);
  if (!desc) return desc.error();
  const Result<const attention::Backend*> chosen = attention::select(desc->mla, forced_backend(backend));
  if (!chosen) return chosen.error();
  *to = new latent_attention{.desc = *desc, .backend = *chosen};
  return {};
}

Status create_plan(const latent_attention* owner, const latent_attention_limits* given,
                   latent_attention_plan** to) {
  if (to == nullptr) return null_argument("plan");
  *to = nullptr;
  if (owner == nullptr) return null_argument("attention");
  const Result<attention::Limits> limits = capi::read_limits(given, owner->desc.mla);
  if (!limits) return limits.error();
  auto plan = std::make_unique<latent_attention_plan>();
  plan->attention = owner;
  plan->limits = *limits;
  plan->workspace_bytes = owner->backend->workspace_bytes(owner->desc.mla, *limits);
  plan->step.reserve(*limits);
  owner->backend->reserve_plan(owner->desc.mla, *limits, &plan->plan);
  *to = plan.release();
  return {};
}

Status plan_step(latent_attention_plan* plan, const latent_attention_step* step) {
  if (plan == nullptr) return null_argument("plan");
  const latent_attention& owner = *plan->attention;
  plan->is_planned = false;
  if (Status s = plan->step.assign(step, plan->limits, owner.desc.mla.on_device); !s) return s;
  owner.backend->plan(owner.desc.mla, plan->limits, plan->step.lengths(), &plan->plan);
  plan->is_planned = true;
  return {};
}

Status check_workspace(const latent_attention_plan& plan, const void* workspace, size_t num_bytes) {
  const size_t needed = plan.workspace_bytes;
  if (num_bytes < needed)
    return make_error(ErrorCode::kInvalidArgument, "workspace_bytes {}: the limits of this plan need {}",
                      num_bytes, needed);
  if (workspace == nullptr && needed > 0) return null_argument("workspace");
  if (reinterpret_cast<uintptr_t>(workspace) % kWorkspaceAlignment != 0)
    return make_error(ErrorCode::kInvalidArgument, "workspace does not start at a multiple of {} bytes",
                      kWorkspaceAlignment);
  return {};
}

// The operands are of the step that was planned.
Status check_planned(const latent_attention_plan& plan, const latent::ops::MlaAttentionParams& params) {
  if (!plan.is_planned)
    return make_error(ErrorCode::kInvalidArgument,
                      "the plan has no step: call latent_attention_plan_step first");
  const int64_t num_tokens = params.out.dim(0), num_seqs = params.batch.kv_lens.dim(0);
  if (num_tokens > plan.limits.max_tokens)
    return make_error(ErrorCode::kInvalidArgument, "num_tokens {} is above max_tokens {}", num_tokens,
                      plan.limits.max_tokens);
  if (num_seqs != plan.step.num_seqs())
    return make_error(ErrorCode::kInvalidArgument, "num_seqs {}: the step was planned with {}", num_seqs,
                      plan.step.num_seqs());
  if (plan.attention->desc.mla.on_device) return {};
  if (Status s =
          plan.step.check_same(params.batch.q_starts.data<int32_t>(), params.batch.kv_lens.data<int32_t>());
      !s)
    return s;
  const int32_t num_rows = plan.step.lengths().q_starts.back();
  if (num_rows > num_tokens)
    return make_error(ErrorCode::kInvalidArgument, "num_tokens {}: the step has {} query rows", num_tokens,
                      num_rows);
  return capi::check_pages(params);
}

Status run(const latent_attention_plan* plan, const latent_attention_operands* operands, void* workspace,
           size_t workspace_bytes, void* stream) {
  if (plan == nullptr) return null_argument("plan");
  const latent_attention& owner = *plan->attention;
  const Result<latent::ops::MlaAttentionParams> params = capi::read_operands(operands, owner.desc);
  if (!params) return params.error();
  if (Status s = check_planned(*plan, *params); !s) return s;
  if (Status s = check_workspace(*plan, workspace, workspace_bytes); !s) return s;
  if (params->out.dim(0) == 0) return {};
  owner.backend->run(*params, plan->plan,
                     {.num_threads = plan->limits.num_threads,
                      .deterministic = plan->limits.deterministic,
                      .workspace = {static_cast<std::byte*>(workspace), workspace_bytes},
                      .stream = stream});
  return {};
}

Status prepare_capture(latent_attention_plan* plan) {
  if (plan == nullptr) return null_argument("plan");
  if (!plan->is_planned)
    return make_error(ErrorCode::kInvalidArgument,
                      "the plan has no step: plan the largest before the capture");
  plan->attention->backend->prepare_capture(plan->attention->desc.mla, plan->limits, &plan->plan);
  return {};
}

// What was captured keeps its shape: the grid is that of the planned step.
Status prepare_replay(latent_attention_plan* plan, const latent_attention_step* given) {
  if (plan == nullptr) return null_argument("plan");
  const latent_attention& owner = *plan->attention;
  if (!owner.desc.mla.on_device) return plan_step(plan, given);
  if (!plan->is_planned)
    return make_error(ErrorCode::kInvalidArgument, "the plan has no step: it was not captured");
  capi::StepLengths step;
  if (Status s = step.assign(given, plan->limits, true); !s) return s;
  if (step.num_seqs() > plan->step.num_seqs())
    return make_error(ErrorCode::kInvalidArgument, "num_seqs {}: {} were captured", step.num_seqs(),
                      plan->step.num_seqs());
  if (step.max_q_len() > plan->step.max_q_len())
    return make_error(ErrorCode::kInvalidArgument, "a request has {} query rows: {} were captured",
                      step.max_q_len(), plan->step.max_q_len());
  owner.backend->prepare_replay(step.lengths(), &plan->plan);
  return {};
}

}  // namespace

uint32_t latent_attention_abi_version(void) { return LATENT_ATTENTION_ABI_VERSION; }

const char* latent_attention_version(void) { return LATENT_VERSION; }

const char* latent_attention_last_error(void) { return capi::last_error(); }

int32_t latent_attention_num_backends(void) {
  return static_cast<int32_t>(attention::backends().size() + attention::absent_backends().size());
}

latent_status latent_attention_query_backend(int32_t index, const latent_attention_desc* desc,
                                             latent_attention_backend_info* info) {
  return capi::guarded([&] { return query_backend(index, desc, info); });
}

latent_status latent_attention_create(const latent_attention_desc* desc, const char* backend,
                                      latent_attention** to) {
  return capi::guarded([&] { return create(desc, backend, to); });
}

void latent_attention_destroy(latent_attention* owner) { delete owner; }

const char* latent_attention_backend(const latent_attention* owner) {
  return owner == nullptr ? "" : owner->backend->name();
}

latent_status latent_attention_workspace_size(const latent_attention* owner,
                                              const latent_attention_limits* given, size_t* bytes) {
  return capi::guarded([&]() -> Status {
    if (owner == nullptr) return null_argument("attention");
    if (bytes == nullptr) return null_argument("bytes");
    const Result<attention::Limits> limits = capi::read_limits(given, owner->desc.mla);
    if (!limits) return limits.error();
    *bytes = owner->backend->workspace_bytes(owner->desc.mla, *limits);
    return {};
  });
}

latent_status latent_attention_plan_create(const latent_attention* owner,
                                           const latent_attention_limits* limits,
                                           latent_attention_plan** plan) {
  return capi::guarded([&] { return create_plan(owner, limits, plan); });
}

void latent_attention_plan_destroy(latent_attention_plan* plan) { delete plan; }

latent_status latent_attention_plan_step(latent_attention_plan* plan, const latent_attention_step* step) {
  return capi::guarded([&] { return plan_step(plan, step); });
}

latent_status latent_attention_run(const latent_attention_plan* plan,
                                   const latent_attention_operands* operands, void* workspace,
                                   size_t workspace_bytes, void* stream) {
  return capi::guarded([&] { return run(plan, operands, workspace, workspace_bytes, stream); });
}

latent_status latent_attention_prepare_capture(latent_attention_plan* plan) {
  return capi::guarded([&] { return prepare_capture(plan); });
}

latent_status latent_attention_prepare_replay(latent_attention_plan* plan,
                                              const latent_attention_step* step) {
  return capi::guarded([&] { return prepare_replay(plan, step); });
}
