// SPDX-License-Identifier: Apache-2.0
// How much memory the commands hold, on checkpoints of a gigabyte that are written here.
#include <gtest/gtest.h>

#include <iostream>

#include "base/parallel.h"
#include "cli/fixture.h"
#include "io/safetensors.h"
#include "model/loader.h"
#include "model/weight_map.h"
#include "runtime/tiny_tokenizer.h"
#include "testing/sanitizer.h"

namespace latent::cli {
namespace {

constexpr int kVocab = 32768;

// Wide enough for a gigabyte in few layers: dense layers of MiniCPM3's widths, or DeepSeek-V3's MoE layers in
// block-fp8.
constexpr char kDense[] =
    R"({"architectures": ["MiniCPM3ForCausalLM"], "vocab_size": 32768, "hidden_size": 2560,
  "intermediate_size": 6400, "num_hidden_layers": 8, "num_attention_heads": 40, "q_lora_rank": 768,
  "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "scale_emb": 12,
  "scale_depth": 1.4, "dim_model_base": 256, "max_position_embeddings": 4096, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2})";
constexpr char kFp8[] =
    R"({"architectures": ["DeepseekV3ForCausalLM"], "vocab_size": 32768, "hidden_size": 2048,
  "intermediate_size": 8192, "moe_intermediate_size": 1408, "num_hidden_layers": 3, "num_attention_heads": 16,
  "q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
  "n_routed_experts": 64, "n_shared_experts": 1, "num_experts_per_tok": 4, "n_group": 8, "topk_group": 4,
  "first_k_dense_replace": 1, "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
  "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]},
  "bos_token_id": 0, "eos_token_id": 1})";

// A folder with random weights for this config.json and a tokenizer.
void write_model(const testing::TempFolder& folder, const char* config_json, DType dtype) {
  const model::ModelConfig config = model::parse_config(config_json).value();
  const model::LoadedModel model =
      model::random_weights(config, {.dtype = dtype, .num_threads = available_cores()}).value();
  std::vector<io::NamedView> tensors;
  const auto specs = model::weight_map(config, {}, [](std::string_view) { return false; }).value();
  for (const model::WeightSpec& spec : specs) {
    const auto& entry = model.weights.entries().at(spec.name);
    for (const model::WeightPart& part : spec.parts) {
      const auto of_part = [&](const Tensor& whole) {
        return part.dest_index < 0 ? whole.view() : whole.view().at(part.dest_index);
      };
      tensors.push_back({part.source, of_part(entry.values)});
      if (entry.block_rows > 0) tensors.push_back({model::scale_name(part.source), of_part(entry.scales)});
    }
  }
  ASSERT_TRUE(io::write_safetensors(folder / "model.safetensors", tensors).ok());
  folder.write("config.json", config_json);
  folder.write("tokenizer.json", runtime::tiny_tokenizer_json(kVocab));
}

// The figure of the debug line that every command ends with.
int64_t peak_bytes(const Outcome& run) {
  const std::string line = "peak resident memory: ";
  const size_t begin = run.err.rfind(line);
  return begin == std::string::npos ? 0 : std::stoll(run.err.substr(begin + line.size()));
}

// Weights as inspect counts them, the cache, and a tenth.
int64_t allowed_bytes(const std::string& model) {
  const Json memory = parse(run_latent({"inspect", model, "--json"}).out)["memory"];
  const auto bytes = memory["weights"].get<int64_t>() + memory["cache"].get<int64_t>();
  EXPECT_GE(memory["weights"].get<int64_t>(), int64_t{1} << 30) << "the bound is for models of this size";
  return bytes + bytes / 10;
}

void expect_bounded(const char* config_json, DType dtype) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer keeps memory of its own";
  const testing::TempFolder folder;
  write_model(folder, config_json, dtype);
  const std::string model = folder.path().string();
  std::string text;
  for (int i = 0; i < 1500; ++i) text += static_cast<char>(' ' + i * 37 % 95);
  const std::string file = folder.write("text", text).string(), out = (folder / "out.json").string();
  const int64_t allowed = allowed_bytes(model);
  for (const Arguments& command :
       {Arguments{"run", model, "-f", file, "-n", "4", "--temperature", "0"},
        Arguments{"score", model, "--text", file, "--json", out},
        Arguments{"perplexity", model, "--text", file},
        Arguments{"bench", "model", model, "--contexts", "512", "--rounds", "1", "--decode-tokens", "2"}}) {
    const Outcome run = run_latent(command, "", {"LATENT_LOG=debug"});
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const int64_t peak = peak_bytes(run);
    if (peak == 0) GTEST_SKIP() << "the system does not tell how much memory a process held";
    EXPECT_LE(peak, allowed) << command[0];
    std::cout << command[0] << ": " << (peak >> 20) << " MiB, allowed " << (allowed >> 20) << " MiB\n";
  }
}

TEST(SlowMemory, a_bf16_model_holds_its_weights_its_cache_and_a_tenth) {
  expect_bounded(kDense, DType::kBF16);
}

TEST(SlowMemory, a_block_fp8_model_holds_its_weights_its_cache_and_a_tenth) {
  expect_bounded(kFp8, DType::kF8E4M3);
}

// The tiny model: 64 MiB beside its weights and cache.
TEST(Memory, a_small_model_holds_64_mib_more) {
  if (testing::kSanitized) GTEST_SKIP() << "a sanitizer keeps memory of its own";
  const std::string model = std::string(LATENT_SOURCE_DIR) + "/models/tiny";
  const Outcome run = run_latent({"run", model, "--prompt", "Call me", "-n", "8", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json memory = parse(run.out)["timings"]["memory_bytes"];
  if (memory["peak"] == 0) GTEST_SKIP() << "the system does not tell how much memory a process held";
  EXPECT_GT(memory["peak"], memory["weights"]);
  EXPECT_LE(memory["peak"].get<int64_t>(),
            memory["weights"].get<int64_t>() + memory["cache"].get<int64_t>() + (64 << 20));
}

}  // namespace
}  // namespace latent::cli
