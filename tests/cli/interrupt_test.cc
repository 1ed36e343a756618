// SPDX-License-Identifier: Apache-2.0
// Ctrl-C while a large model loads.
#include <gtest/gtest.h>

#include <fstream>

#include "cli/fixture.h"
#include "model/weight_map.h"

namespace latent::cli {
namespace {

// 2 GiB of weights, so that loading is far from its end when the signal comes.
constexpr char kConfig[] =
    R"({"architectures": ["MiniCPM3ForCausalLM"], "vocab_size": 131072, "hidden_size": 2560,
  "intermediate_size": 6400, "num_hidden_layers": 14, "num_attention_heads": 40, "q_lora_rank": 768,
  "kv_lora_rank": 256, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64, "scale_emb": 12,
  "scale_depth": 1.4, "dim_model_base": 256, "max_position_embeddings": 4096, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2})";

// A folder with this config.json and zeros for weights, which take no room: the file is a hole after its
// header.
void write_hollow_model(const testing::TempFolder& folder) {
  const model::ModelConfig config = model::parse_config(kConfig).value();
  const auto specs = model::weight_map(config, {}, [](std::string_view) { return false; }).value();
  Json header;
  int64_t end = 0;
  for (const model::WeightSpec& spec : specs)
    for (const model::WeightPart& part : spec.parts) {
      const int64_t begin = end;
      int64_t bytes = 2;
      for (const int64_t d : part.source_dims) bytes *= d;
      end += bytes;
      header[part.source] = {{"dtype", "BF16"}, {"shape", part.source_dims}, {"data_offsets", {begin, end}}};
    }
  ASSERT_GE(end, int64_t{2} << 30);
  const std::string text = header.dump();
  std::string size;  // eight bytes, little end first
  for (int i = 0; i < 8; ++i) size += static_cast<char>(text.size() >> (8 * i) & 0xff);
  const std::filesystem::path file = folder.write("model.safetensors", size + text);
  std::filesystem::resize_file(file, size.size() + text.size() + static_cast<uintmax_t>(end));
  folder.write("config.json", kConfig);
}

TEST(Interrupt, ends_the_loading_of_a_large_model) {
  const testing::TempFolder folder;
  write_hollow_model(folder);
  const std::string model = folder.path().string();
  const std::string ids = folder.write("ids.json", "[1, 2, 3]").string(),
                    text = folder.write("text", "abc").string();
  for (const Arguments& command :
       {Arguments{"run", model, "--token-ids", ids}, Arguments{"score", model, "--token-ids", ids},
        Arguments{"perplexity", model, "--text", text}, Arguments{"compare", model, "--token-ids", ids},
        Arguments{"bench", "model", model}}) {
    const Outcome outcome = run_latent_and_interrupt(command, "loading ", {"LATENT_LOG=debug"});
    EXPECT_EQ(outcome.exit_code, 130) << command[0] << ": " << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "interrupted when ")) << command[0] << ": " << outcome.err;
    EXPECT_TRUE(contains(outcome.err, "MiB of weights were loaded")) << command[0] << ": " << outcome.err;
    EXPECT_EQ(outcome.out, "") << command[0];
  }
}

TEST(Interrupt, ends_the_drawing_of_random_weights) {
  const Outcome outcome = run_latent_and_interrupt(
      {"bench", "model", "--shape", "minicpm3", "--layers", "20"}, "drawing ", {"LATENT_LOG=debug"});
  EXPECT_EQ(outcome.exit_code, 130) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "MiB of weights were drawn")) << outcome.err;
}

}  // namespace
}  // namespace latent::cli
