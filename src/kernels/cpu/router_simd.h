// SPDX-License-Identifier: Apache-2.0
// Definition of router.h's kernel, included by router_<isa>.cc only.
#pragma once

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/parallel.h"
#include "kernels/cpu/exp.h"
#include "kernels/cpu/router.h"
#include "kernels/cpu/router_select.h"
#include "kernels/cpu/router_workspace.h"

namespace latent::kernels::cpu {
namespace {

void sigmoid_scores(const float* logits, int64_t count, float* scores) {
#pragma omp simd
  for (int64_t e = 0; e < count; ++e) scores[e] = static_cast<float>(sigmoid(double{logits[e]}));
}

// A NaN logit makes the sum NaN, and with it every score.
void softmax_scores(const float* logits, int64_t count, double* powers, float* scores) {
  float max = -std::numeric_limits<float>::infinity();
  for (int64_t e = 0; e < count; ++e) max = std::max(max, logits[e]);
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t e = 0; e < count; ++e) {
    powers[e] = exp_of_negative(double{logits[e]} - double{max});
    sum += powers[e];
  }
#pragma omp simd
  for (int64_t e = 0; e < count; ++e) scores[e] = static_cast<float>(powers[e] / sum);
}

// choice = score + bias; true if one is NaN.
bool add_bias(const float* scores, const TensorView& bias, int64_t count, float* choices) {
  const float* b = bias.empty() ? nullptr : bias.data<float>();
  int num_nan = 0;
#pragma omp simd reduction(+ : num_nan)
  for (int64_t e = 0; e < count; ++e) {
    choices[e] = b == nullptr ? scores[e] : scores[e] + b[e];
    num_nan += choices[e] != choices[e] ? 1 : 0;
  }
  return num_nan > 0;
}

float group_score(const float* choices, int64_t size, ops::GroupScore kind) {
  float first = -std::numeric_limits<float>::infinity(), second = first;
  for (int64_t e = 0; e < size; ++e) {
    second = std::max(second, std::min(first, choices[e]));
    first = std::max(first, choices[e]);
  }
  return kind == ops::GroupScore::kMax || size == 1 ? first : first + second;
}

// Best experts of the best groups, in the total order.
void choose(const ops::RouterAttrs& attrs, const RouterScratch& scratch, int32_t* ids) {
  const int size = attrs.num_experts / attrs.num_groups;
  for (int g = 0; g < attrs.num_groups; ++g)
    scratch.group_scores[g] = group_score(scratch.choices + g * size, size, attrs.group_score);
  BestIds groups(scratch.group_scores, scratch.groups, attrs.topk_group);
  for (int g = 0; g < attrs.num_groups; ++g) groups.offer(g);
  const int last = scratch.groups[attrs.topk_group - 1];
  BestIds experts(scratch.choices, ids, attrs.top_k);
  for (int g = 0; g < attrs.num_groups; ++g) {
    const bool tied = scratch.group_scores[g] == scratch.group_scores[last];
    if (tied ? g > last : scratch.group_scores[g] < scratch.group_scores[last]) continue;
    for (int e = g * size; e < (g + 1) * size; ++e) experts.offer(e);
  }
}

void weigh(const ops::RouterAttrs& attrs, const float* scores, const int32_t* ids, float* weights) {
  double sum = 0;
  for (int j = 0; j < attrs.top_k; ++j) sum += double{scores[ids[j]]};
  const double divisor = attrs.norm_topk ? sum + 1e-20 : 1;
  for (int j = 0; j < attrs.top_k; ++j)
    weights[j] = static_cast<float>(scores[ids[j]] / divisor * double{attrs.routed_scale});
}

void route_row(const ops::RouterParams& p, int64_t row, const RouterScratch& scratch) {
  const ops::RouterAttrs& attrs = p.attrs;
  const float* logits = p.logits.row<float>(row);
  int32_t* ids = p.ids.row<int32_t>(row);
  float* weights = p.weights.row<float>(row);
  if (attrs.score == ops::RouterScore::kSigmoid)
    sigmoid_scores(logits, attrs.num_experts, scratch.scores);
  else
    softmax_scores(logits, attrs.num_experts, scratch.powers, scratch.scores);
  if (add_bias(scratch.scores, p.bias, attrs.num_experts, scratch.choices)) {
    for (int j = 0; j < attrs.top_k; ++j) ids[j] = j;
    std::fill_n(weights, attrs.top_k, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  choose(attrs, scratch, ids);
  weigh(attrs, scratch.scores, ids, weights);
}

}  // namespace

template <class Isa>
void router(const ops::RouterParams& p, const KernelContext& context) {
  CHECK(context.workspace.size() >= router_workspace(p, context.num_threads),
        "router: a workspace of {} bytes", context.workspace.size());
  const bool worth_a_team = p.logits.num_elements() >= kLogitsWorthATeam;
  parallel_team(worth_a_team ? context.num_threads : 1, [&](int thread, int threads) {
    const RouterScratch scratch(p.attrs, context.workspace.data(), thread);
    const Range rows = split_range(p.logits.dim(0), thread, threads);
    for (int64_t t = rows.begin; t < rows.end; ++t) route_row(p, t, scratch);
  });
}

}  // namespace latent::kernels::cpu
