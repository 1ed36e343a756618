// SPDX-License-Identifier: Apache-2.0
#include "exec/compile.h"

#include "graph/pipeline.h"

namespace latent::exec {

Result<std::unique_ptr<Executor>> compile(graph::Graph graph, graph::WeightStore* weights, KvCache* cache,
                                          const CompileOptions& options) {
  const graph::PipelineOptions pipeline{
      .form = options.form, .poison = options.exec.poison, .disabled = options.disabled_passes};
  if (Result<std::vector<graph::PassReport>> passes = graph::run_pipeline(graph, pipeline); !passes)
    return passes.error();
  return Executor::create(std::move(graph), weights, cache, options.limits, options.exec);
}

}  // namespace latent::exec
