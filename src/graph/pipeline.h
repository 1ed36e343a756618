// SPDX-License-Identifier: Apache-2.0
// The ordered list of passes. Each has a name, can be switched off by it, is timed and counted, and the
// verifier runs after it.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "graph/ir.h"

namespace latent::graph {

struct PipelineOptions {
  // The form of attention the graph shall take: multi-head for prompts, absorbed for generated tokens.
  ops::AttentionForm form = ops::AttentionForm::kMultiHead;
  PoisonPattern poison = PoisonPattern::kNone;
  std::set<std::string> disabled;  // pass names; an unknown one is an error that lists the names
};

struct PassReport {
  std::string name;
  int matches = 0;
  double us = 0;
  bool disabled = false;
};

// Names in the order they run.
std::vector<std::string> pass_names();

Result<std::vector<PassReport>> run_pipeline(Graph& graph, const PipelineOptions& options);

}  // namespace latent::graph
