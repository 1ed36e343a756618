// SPDX-License-Identifier: Apache-2.0
// From a model's graph, as built, to an executor: the pipeline of passes, then everything that the executor
// reserves.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "exec/executor.h"

namespace latent::exec {

struct CompileOptions {
  ops::AttentionForm form = ops::AttentionForm::kMultiHead;
  std::set<std::string> disabled_passes;  // by name; an unknown one is an error that lists the names
  StepLimits limits;
  ExecOptions exec;  // its poison is also the pipeline's
};

// `weights` and `cache` must outlive the executor.
Result<std::unique_ptr<Executor>> compile(graph::Graph graph, graph::WeightStore* weights, KvCache* cache,
                                          const CompileOptions& options);

}  // namespace latent::exec
