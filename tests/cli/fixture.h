// SPDX-License-Identifier: Apache-2.0
// Tiny checkpoints and the little that the tests of all commands need.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/process.h"
#include "testing/temp_folder.h"

namespace latent::cli {

using Json = nlohmann::json;
using Arguments = std::vector<std::string>;

Arguments operator+(Arguments a, const Arguments& b);
Json parse(const std::string& text);
bool contains(const std::string& text, const std::string& part);
std::string ids_text(const std::vector<int32_t>& ids);  // a JSON list

class TinyModelTest : public ::testing::Test {
 protected:
  static constexpr int kVocab = 104, kContext = 256;

  static void SetUpTestSuite();
  static void TearDownTestSuite() { folder_.reset(); }

  static std::filesystem::path golden(const std::string& name);
  // DeepSeek-V3's architecture, no tokenizer.
  static std::string model() { return golden("v3-yarn").string(); }
  // The same with a tokenizer of single characters (runtime/tiny_tokenizer.h), BOS 100, and a chat template.
  static std::string text_model() { return path("model"); }

  // A file of the test suite's own folder.
  static std::string path(const std::string& name) { return (folder_->path() / name).string(); }
  static std::string write(const std::string& name, const std::string& text) {
    return folder_->write(name, text).string();
  }

  static std::vector<int32_t> some_ids(int count);

 private:
  static std::unique_ptr<testing::TempFolder> folder_;
};

}  // namespace latent::cli
