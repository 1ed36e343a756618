// SPDX-License-Identifier: Apache-2.0
#include "graph/pipeline.h"

#include <chrono>

#include "graph/passes/passes.h"
#include "graph/verify.h"

namespace latent::graph {
namespace {

struct Pass {
  const char* name;
  int (*apply)(Graph&, const PipelineOptions&);
};

// clang-format off
constexpr Pass kPasses[] = {
    // Before folding, which then finds the split of kv_b to be constant.
    {"absorb_weights", [](Graph& g, const PipelineOptions& o) {
       return o.form == ops::AttentionForm::kAbsorbed ? absorb_weights(g) : 0; }},
    {"fold_constants", [](Graph& g, const PipelineOptions&) { return fold_constants(g); }},
    {"fuse_rope_cache_write", [](Graph& g, const PipelineOptions&) { return fuse_rope_cache_write(g); }},
    {"fuse_silu_mul", [](Graph& g, const PipelineOptions&) { return fuse_silu_mul(g); }},
    // After whatever may leave something unread.
    {"eliminate_dead_code", [](Graph& g, const PipelineOptions&) { return eliminate_dead_code(g); }},
    // Last: it marks the values that are left.
    {"mark_poison", [](Graph& g, const PipelineOptions& o) { return mark_poison(g, o.poison); }},
};
// clang-format on

Status check_disabled(const std::set<std::string>& disabled) {
  std::string names;
  for (const Pass& pass : kPasses) names += (names.empty() ? "" : ", ") + std::string(pass.name);
  for (const std::string& name : disabled) {
    bool known = false;
    for (const Pass& pass : kPasses) known = known || name == pass.name;
    if (!known)
      return make_error(ErrorCode::kInvalidArgument, "no pass is named '{}'; there are {}", name, names);
  }
  return {};
}

}  // namespace

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : kPasses) names.emplace_back(pass.name);
  return names;
}

Result<std::vector<PassReport>> run_pipeline(Graph& graph, const PipelineOptions& options) {
  if (Status s = check_disabled(options.disabled); !s) return s.error();
  if (Status s = verify(graph); !s) return s.error().with_context("as built");
  std::vector<PassReport> reports;
  for (const Pass& pass : kPasses) {
    PassReport report{.name = pass.name, .disabled = options.disabled.count(pass.name) > 0};
    if (!report.disabled) {
      const auto start = std::chrono::steady_clock::now();
      report.matches = pass.apply(graph, options);
      report.us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
      if (Status s = verify(graph); !s)
        return s.error().with_context(fmt::format("after pass {}", pass.name));
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

}  // namespace latent::graph
