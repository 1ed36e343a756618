// SPDX-License-Identifier: Apache-2.0
// Where tests find tokenizers that the repository does not hold.
#pragma once

#include <filesystem>

namespace latent::text {

// DeepSeek-V3's tokenizer.json and tokenizer_config.json, installed by scripts/setup into
// build/test-data (or the folder that LATENT_TEST_DATA names). Empty if it is not there.
std::filesystem::path deepseek_v3_folder();

}  // namespace latent::text
