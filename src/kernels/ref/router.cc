// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/check.h"
#include "kernels/ref/rowwise.h"

namespace latent::kernels::ref {
namespace {

// The total order: larger value first, then the smaller id.
bool stands_before(std::span<const float> values, size_t a, size_t b) {
  return values[a] > values[b] || (values[a] == values[b] && a < b);
}

constexpr size_t kNone = std::numeric_limits<size_t>::max();

// The first of those that `allowed` lets pass and that stand behind `last` (kNone: of all of them).
template <class Allowed>
size_t next_best(std::span<const float> values, size_t last, Allowed allowed) {
  size_t best = kNone;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!allowed(i) || (last != kNone && !stands_before(values, last, i))) continue;
    if (best == kNone || stands_before(values, i, best)) best = i;
  }
  return best;
}

// Computed in double, rounded to f32 once.
void compute_scores(std::span<const float> logits, ops::RouterScore kind, std::span<float> scores) {
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const float x : logits) max = std::max(max, double{x});
  for (const float x : logits) sum += std::exp(x - max);
  for (size_t e = 0; e < logits.size(); ++e) {
    const double x = logits[e];
    scores[e] = static_cast<float>(kind == ops::RouterScore::kSigmoid ? 1 / (1 + std::exp(-x))
                                                                      : std::exp(x - max) / sum);
  }
}

float group_score(std::span<const float> choices, ops::GroupScore kind) {
  const auto any = [](size_t) { return true; };
  const size_t first = next_best(choices, kNone, any);
  const size_t second = next_best(choices, first, any);
  if (kind == ops::GroupScore::kMax || second == kNone) return choices[first];
  return choices[first] + choices[second];
}

struct Row {
  std::span<float> scores, choices, groups;
  float* weights;
  int32_t* ids;
};

// The last group that is kept; every group that stands behind it is masked.
size_t last_kept_group(const Row& row, const ops::RouterAttrs& attrs) {
  const size_t size = row.choices.size() / row.groups.size();
  for (size_t g = 0; g < row.groups.size(); ++g)
    row.groups[g] = group_score(row.choices.subspan(g * size, size), attrs.group_score);
  size_t last = kNone;
  for (int i = 0; i < attrs.topk_group; ++i) last = next_best(row.groups, last, [](size_t) { return true; });
  return last;
}

void choose_experts(const Row& row, const ops::RouterAttrs& attrs) {
  const size_t size = row.choices.size() / row.groups.size();
  const size_t last_group = last_kept_group(row, attrs);
  const auto kept = [&](size_t e) { return !stands_before(row.groups, last_group, e / size); };
  size_t last = kNone;
  for (int j = 0; j < attrs.top_k; ++j) {
    last = next_best(row.choices, last, kept);
    row.ids[j] = static_cast<int32_t>(last);
  }
}

void weigh_experts(const Row& row, const ops::RouterAttrs& attrs) {
  double sum = 0;
  for (int j = 0; j < attrs.top_k; ++j) sum += row.scores[static_cast<size_t>(row.ids[j])];
  const double divisor = attrs.norm_topk ? sum + 1e-20 : 1;
  for (int j = 0; j < attrs.top_k; ++j)
    row.weights[j] = static_cast<float>(row.scores[static_cast<size_t>(row.ids[j])] / divisor *
                                        double{attrs.routed_scale});
}

void refuse_row(const Row& row, const ops::RouterAttrs& attrs) {
  for (int j = 0; j < attrs.top_k; ++j) {
    row.ids[j] = j;
    row.weights[j] = std::numeric_limits<float>::quiet_NaN();
  }
}

bool has_nan(std::span<const float> values) {
  return std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); });
}

}  // namespace

size_t router_workspace(const ops::RouterParams& p, int) {
  return static_cast<size_t>(2 * p.attrs.num_experts + p.attrs.num_groups) * sizeof(float);
}

void router(const ops::RouterParams& p, const KernelContext& context) {
  CHECK(context.workspace.size() >= router_workspace(p, 1), "router: a workspace of {} bytes",
        context.workspace.size());
  const auto num_experts = static_cast<size_t>(p.attrs.num_experts);
  auto* scratch = reinterpret_cast<float*>(context.workspace.data());
  for (int64_t t = 0; t < p.logits.dim(0); ++t) {
    const Row row = {.scores = {scratch, num_experts},
                     .choices = {scratch + num_experts, num_experts},
                     .groups = {scratch + 2 * num_experts, static_cast<size_t>(p.attrs.num_groups)},
                     .weights = p.weights.row<float>(t),
                     .ids = p.ids.row<int32_t>(t)};
    compute_scores({p.logits.row<float>(t), num_experts}, p.attrs.score, row.scores);
    for (size_t e = 0; e < num_experts; ++e)
      row.choices[e] = p.bias.empty() ? row.scores[e] : row.scores[e] + p.bias.data<float>()[e];
    if (has_nan(row.choices)) {
      refuse_row(row, p.attrs);
      continue;
    }
    choose_experts(row, p.attrs);
    weigh_experts(row, p.attrs);
  }
}

}  // namespace latent::kernels::ref
