// SPDX-License-Identifier: Apache-2.0
// What the authors of a model recommend for sampling: generation_config.json.
#pragma once

#include <filesystem>

#include "runtime/request.h"

namespace latent::cli {

// temperature, top_k, top_p, min_p, repetition_penalty and do_sample (false: greedy) of the folder's
// generation_config.json; what it does not say, or all without the file, stays at the defaults. kCorrupt for
// a file that cannot be read so.
Result<runtime::SamplingParams> generation_defaults(const std::filesystem::path& model_folder);

}  // namespace latent::cli
