// SPDX-License-Identifier: Apache-2.0
// Mixture of experts: the router and the routed experts. Shared experts are ordinary layers and are never
// scaled.
#pragma once

#include "base/result.h"
#include "ops/linear.h"
#include "tensor/tensor_view.h"

namespace latent::ops {

enum class RouterScore { kSoftmax, kSigmoid };
enum class GroupScore {
  kMax,      // a group counts as its best expert (V2)
  kTop2Sum,  // as the sum of its two best biased scores (V3)
};

// score = softmax or sigmoid of the logits in f32; choice = score + bias. Groups outside the best topk_group
// are masked with -inf; the top_k best choices win, in the total order (choice descending, id ascending). The
// weights are the unbiased scores, divided by their sum + 1e-20 if norm_topk, then times routed_scale, once.
// A row with a NaN logit gets top_k distinct valid ids and NaN weights.
struct RouterAttrs {
  RouterScore score = RouterScore::kSigmoid;
  GroupScore group_score = GroupScore::kTop2Sum;
  int num_experts = 0;
  int top_k = 0;
  int num_groups = 1;
  int topk_group = 1;
  bool norm_topk = false;
  float routed_scale = 1.0f;
};
struct RouterParams {
  TensorView logits;   // [num_tokens, num_experts] f32
  TensorView bias;     // [num_experts] f32; may be empty
  TensorView weights;  // [num_tokens, top_k] f32
  TensorView ids;      // [num_tokens, top_k] i32, distinct in a row
  RouterAttrs attrs;
};
Status check(const RouterParams& params);

// out[t] = sum_j weights[t, j] * down[e] . (silu(gate[e] . x[t]) * (up[e] . x[t])),  e = ids[t, j] -
// first_expert. Ids outside [first_expert, first_expert + num_local) belong to another rank and add nothing;
// the sum runs over j in ascending order whatever the batch.
struct MoeExpertsAttrs {
  int first_expert = 0;
};
struct MoeExpertsParams {
  TensorView x;        // [num_tokens, hidden]
  TensorView weights;  // [num_tokens, top_k] f32
  TensorView ids;      // [num_tokens, top_k] i32
  WeightView gate;     // [num_local, inter, hidden]
  WeightView up;       // [num_local, inter, hidden]
  WeightView down;     // [num_local, hidden, inter]
  TensorView out;      // [num_tokens, hidden]
  MoeExpertsAttrs attrs;
};
Status check(const MoeExpertsParams& params);

}  // namespace latent::ops
