// SPDX-License-Identifier: Apache-2.0
#include "model/loader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "io/safetensors.h"
#include "model/checkpoint_writer.h"
#include "model/rope_table.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"
#include "testing/compare.h"
#include "testing/temp_folder.h"

namespace latent::model {
namespace {

using testing::TempFolder;
using testing::tiny_config;
using testing::tiny_fp8_config;
using testing::TinyCheckpoint;

Result<LoadedModel> try_load(const TempFolder& folder, LoadOptions options = {}) {
  return load_model(folder.path(), options);
}

LoadedModel load(const TinyCheckpoint& checkpoint, LoadOptions options = {}) {
  TempFolder folder;
  checkpoint.write(folder.path());
  Result<LoadedModel> model = try_load(folder, options);
  EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
  return *std::move(model);
}

std::string refusal(const TinyCheckpoint& checkpoint) {
  TempFolder folder;
  checkpoint.write(folder.path());
  const Result<LoadedModel> model = try_load(folder);
  return model.ok() ? "accepted" : model.error().message;
}

#define EXPECT_REFUSED(checkpoint, phrase) \
  EXPECT_NE(refusal(checkpoint).find(phrase), std::string::npos) << refusal(checkpoint)

const std::string kKvB = "model.layers.1.self_attn.kv_b_proj.weight";

float value_at(const TensorView& view, int64_t index) {
  return element_to_float(view.raw(), view.dtype(), index);
}

TEST(Loader, every_weight_holds_the_bits_of_its_tensor) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const char* name = dtype == DType::kF32 ? "float32" : dtype == DType::kF16 ? "float16" : "bfloat16";
    TinyCheckpoint checkpoint(tiny_config(std::string(R"({"torch_dtype": ")") + name + "\"}"), dtype);
    const LoadedModel model = load(checkpoint);
    EXPECT_EQ(model.activation, dtype == DType::kBF16 ? DType::kBF16 : DType::kF32);
    const std::vector<WeightSpec> specs =
        weight_map(checkpoint.config(), {}, [](std::string_view) { return false; }).value();
    for (const WeightSpec& spec : specs)
      for (const WeightPart& part : spec.parts) {
        TensorView got = model.weights.view(spec.name).values;
        if (part.dest_index >= 0) got = got.at(part.dest_index);
        EXPECT_TRUE(testing::same_bits(got, checkpoint.tensor(part.source).view())) << spec.name;
      }
    EXPECT_TRUE(model.report.unknown_tensors.empty());
    EXPECT_EQ(model.report.bytes, model.weights.num_bytes());
    EXPECT_EQ(model.weights.view(kRopeTableName).rows(), 128);
  }
}

TEST(Loader, any_number_of_threads_loads_the_same_bits_and_reports_progress) {
  TinyCheckpoint checkpoint(tiny_config(R"({"vocab_size": 60000, "hidden_size": 40})"));  // several chunks
  const LoadedModel one = load(checkpoint);
  std::vector<int64_t> done;
  int64_t announced = 0;
  const LoadedModel four = load(
      checkpoint, {.compute = {}, .num_threads = 4, .shard = {}, .progress = [&](int64_t d, int64_t total) {
                     done.push_back(d);
                     announced = total;
                     return true;
                   }});
  for (const auto& [name, entry] : one.weights.entries())
    EXPECT_TRUE(testing::same_bits(four.weights.view(name).values, entry.values.view())) << name;
  ASSERT_GT(done.size(), 1u);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_EQ(done.back(), announced);
}

TEST(Loader, ends_at_the_first_call_that_says_so) {
  const TinyCheckpoint checkpoint(tiny_config(R"({"vocab_size": 60000, "hidden_size": 40})"));
  const TempFolder folder;
  checkpoint.write(folder.path());
  for (const int num_threads : {1, 4})
    for (const int last : {1, 2, 5}) {
      int calls = 0;
      LoadOptions options;
      options.num_threads = num_threads;
      options.progress = [&](int64_t, int64_t) { return ++calls < last; };
      const Result<LoadedModel> model = try_load(folder, options);
      ASSERT_FALSE(model.ok());
      EXPECT_EQ(model.error().code, ErrorCode::kCancelled) << model.error().message;
      EXPECT_EQ(calls, last) << num_threads << " threads";
    }
}

TEST(Loader, prefix_and_fused_experts_are_only_spellings) {
  TinyCheckpoint plain(tiny_config()), bare(tiny_config()), fused(tiny_config());
  bare.strip_prefix();
  fused.fuse_experts();
  const LoadedModel want = load(plain), from_bare = load(bare), from_fused = load(fused);
  for (const auto& [name, entry] : want.weights.entries()) {
    EXPECT_TRUE(testing::same_bits(from_bare.weights.view(name).values, entry.values.view())) << name;
    EXPECT_TRUE(testing::same_bits(from_fused.weights.view(name).values, entry.values.view())) << name;
  }
  EXPECT_TRUE(from_fused.report.unknown_tensors.empty());
}

// contract: C10
// E3
TEST(Loader, correction_bias_stays_fp32_in_a_bf16_model) {
  TinyCheckpoint checkpoint(tiny_config(R"({"torch_dtype": "bfloat16"})"), DType::kBF16);
  Tensor& bias = checkpoint.tensor("model.layers.1.mlp.gate.e_score_correction_bias");
  for (int i = 0; i < 8; ++i) bias.data<float>()[i] = 7 + static_cast<float>(i) / 1024;
  const LoadedModel model = load(checkpoint);
  const TensorView got = model.weights.view("layers.1.router_bias").values;
  ASSERT_EQ(got.dtype(), DType::kF32);
  for (int i = 0; i < 8; ++i) EXPECT_EQ(got.data<float>()[i], 7 + static_cast<float>(i) / 1024);
}

TEST(Loader, bf16_compute_rounds_wider_checkpoints_but_not_their_routers) {
  TinyCheckpoint checkpoint(tiny_config());
  const LoadedModel model = load(checkpoint, {.compute = DType::kBF16, .shard = {}, .progress = {}});
  EXPECT_EQ(model.activation, DType::kBF16);
  EXPECT_EQ(model.weights.view("layers.1.router").values.dtype(), DType::kF32);
  const TensorView got = model.weights.view("layers.1.kv_b").values;
  const TensorView want = checkpoint.tensor(kKvB).view();
  ASSERT_EQ(got.dtype(), DType::kBF16);
  for (int64_t i = 0; i < want.num_elements(); ++i)
    EXPECT_EQ(value_at(got, i), BFloat16::from_float(value_at(want, i)).to_float());
}

TEST(Loader, dtype_comes_from_the_file_where_the_config_is_silent) {
  TinyCheckpoint checkpoint(tiny_config(R"({"torch_dtype": null})"), DType::kF16);
  EXPECT_EQ(load(checkpoint).activation, DType::kF32);
  EXPECT_EQ(load(TinyCheckpoint(tiny_config(R"({"torch_dtype": null})"), DType::kBF16)).activation,
            DType::kBF16);
}

// contract: C6
// I4 and its kind: nothing is made up for what is missing.
TEST(Loader, names_and_counts_missing_tensors) {
  TinyCheckpoint checkpoint(tiny_config());
  checkpoint.tensors().erase(kKvB);
  EXPECT_REFUSED(checkpoint, "1 tensors are missing from the checkpoint: " + kKvB);
  for (int e = 0; e < 8; ++e)
    checkpoint.tensors().erase("model.layers.2.mlp.experts." + std::to_string(e) + ".up_proj.weight");
  EXPECT_REFUSED(checkpoint, "9 tensors are missing");
  EXPECT_REFUSED(checkpoint, "and 6 more");
}

TEST(Loader, refuses_a_config_with_more_experts_than_the_files_could_hold) {
  TinyCheckpoint checkpoint(tiny_config());
  TempFolder folder;
  checkpoint.write(folder.path());
  folder.write("config.json", tiny_config(R"({"n_routed_experts": 16384, "num_hidden_layers": 1000})"));
  EXPECT_NE(try_load(folder).error().message.find("announces 16384 experts in 999 layers"),
            std::string::npos);
}

TEST(Loader, names_tensors_of_the_wrong_shape_or_dtype) {
  TinyCheckpoint checkpoint(tiny_config());
  checkpoint.add(kKvB, DType::kF32, {43, 10});
  EXPECT_REFUSED(checkpoint, "tensor '" + kKvB + "' has the shape [43, 10], config.json asks for [44, 10]");
  checkpoint.add(kKvB, DType::kF32, {10, 44});
  EXPECT_REFUSED(checkpoint, "[10, 44]");
  checkpoint.add(kKvB, DType::kF32, {440});
  EXPECT_REFUSED(checkpoint, "[440]");
  checkpoint.add(kKvB, DType::kI64, {44, 10});
  EXPECT_REFUSED(checkpoint, "is stored as I64");
  checkpoint.add(kKvB, DType::kF8E4M3, {44, 10});
  EXPECT_REFUSED(checkpoint, "no quantization_config.weight_block_size");
}

// D1: a packed kv_b as AWQ and GPTQ store it has other names; what is there is named, so is what is not.
TEST(Loader, refuses_packed_kv_b) {
  TinyCheckpoint checkpoint(tiny_config());
  checkpoint.tensors().erase(kKvB);
  checkpoint.add("model.layers.1.self_attn.kv_b_proj.qweight", DType::kI32, {10, 6});
  EXPECT_REFUSED(checkpoint, kKvB);
}

// contract: C6
// C6
TEST(Loader, names_the_element_that_is_not_finite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    TinyCheckpoint checkpoint(tiny_config());
    checkpoint.tensor(kKvB).data<float>()[3 * 10 + 7] = bad;
    EXPECT_REFUSED(checkpoint, "model.safetensors: tensor '" + kKvB + "' is not finite at [3, 7]");
  }
  TinyCheckpoint norm(tiny_config(R"({"torch_dtype": "bfloat16"})"), DType::kBF16);
  norm.tensor("model.norm.weight").data<BFloat16>()[5] = BFloat16::from_float(INFINITY);
  EXPECT_REFUSED(norm, "tensor 'model.norm.weight' is not finite at [5]");
}

// I6 and truncation: through the whole loader, with the file's name.
TEST(Loader, refuses_truncated_and_overlong_files) {
  TinyCheckpoint checkpoint(tiny_config());
  TempFolder folder;
  checkpoint.write(folder.path());
  const auto path = folder / "model.safetensors";
  const auto size = std::filesystem::file_size(path);
  for (const auto cut : {size - 1, size - 4096, size / 2, size_t{9}, size_t{0}}) {
    std::filesystem::resize_file(path, cut);
    const Result<LoadedModel> model = try_load(folder);
    ASSERT_FALSE(model.ok()) << cut;
    EXPECT_NE(model.error().message.find("model.safetensors"), std::string::npos) << model.error().message;
    checkpoint.write(folder.path());
  }
  for (const auto extra : {1, 4096}) {
    std::filesystem::resize_file(path, size + static_cast<size_t>(extra));
    EXPECT_NE(try_load(folder).error().message.find(std::to_string(extra) + " bytes follow"),
              std::string::npos);
  }
}

// I7
TEST(Loader, skips_layers_beyond_the_last_by_number) {
  for (const bool prefixed : {true, false}) {
    TinyCheckpoint checkpoint(tiny_config());
    for (const char* name : {"eh_proj.weight", "enorm.weight", "hnorm.weight", "shared_head.norm.weight",
                             "self_attn.kv_b_proj.weight"})
      checkpoint.add(std::string("model.layers.3.") + name, DType::kF32, {4});
    checkpoint.add("model.layers.11.enorm.weight", DType::kF32, {4});
    checkpoint.add("model.layers.2.surprise", DType::kU8, {4});
    if (!prefixed) checkpoint.strip_prefix();
    const LoadedModel model = load(checkpoint);
    EXPECT_EQ(model.report.skipped_layers, (std::vector<int>{3, 11}));
    EXPECT_EQ(model.report.unknown_tensors,
              std::vector<std::string>{prefixed ? "model.layers.2.surprise" : "layers.2.surprise"});
  }
}

TEST(Loader, announced_mtp_layers_may_be_absent) {
  const LoadedModel model = load(TinyCheckpoint(tiny_config(R"({"num_nextn_predict_layers": 2})")));
  EXPECT_TRUE(model.report.skipped_layers.empty());
}

// contract: C13
TEST(Loader, serves_the_context_that_was_asked_for) {
  TinyCheckpoint checkpoint(tiny_config());
  const LoadedModel model =
      load(checkpoint, {.max_positions = 17, .compute = {}, .shard = {}, .progress = {}});
  EXPECT_EQ(model.max_positions, 17);
  EXPECT_EQ(model.weights.view(kRopeTableName).rows(), 17);
  TempFolder folder;
  checkpoint.write(folder.path());
  EXPECT_EQ(try_load(folder, {.max_positions = 129, .compute = {}, .shard = {}, .progress = {}}).error().code,
            ErrorCode::kInvalidArgument);
}

TEST(Loader, names_what_is_missing_from_the_folder) {
  TempFolder folder;
  EXPECT_NE(try_load(folder).error().message.find("config.json"), std::string::npos);
  folder.write("config.json", tiny_config());
  EXPECT_NE(try_load(folder).error().message.find("*.safetensors"), std::string::npos);
}

// Value of a block-quantised weight, element by element (D3).
float dequantised(const ops::WeightView& w, int64_t row, int64_t col) {
  const int64_t grid_cols = w.scales.dim(1);
  return value_at(w.values, row * w.cols() + col) *
         w.scales.data<float>()[row / w.block_rows * grid_cols + col / w.block_cols];
}

// D3, D4
TEST(Loader, block_scales_of_any_dtype_give_the_same_values) {
  std::vector<LoadedModel> models;
  for (const DType scale : {DType::kF32, DType::kBF16, DType::kF8E8M0}) {
    TinyCheckpoint checkpoint(tiny_fp8_config(), DType::kF8E4M3, scale);
    models.push_back(load(checkpoint));
    const LoadedModel& model = models.back();
    const ops::WeightView w =
        model.weights.view("layers.0.kv_a");  // 156 x 200: 2 x 2 blocks, the last ones clipped
    ASSERT_EQ(w.values.dtype(), DType::kF8E4M3);
    ASSERT_EQ(w.scales.shape(), Shape({2, 2}));
    const std::string source = "model.layers.0.self_attn.kv_a_proj_with_mqa.weight";
    const TensorView scales = checkpoint.tensor(source + "_scale_inv").view();
    for (int64_t r = 0; r < w.rows(); ++r)
      for (int64_t c = 0; c < w.cols(); ++c)
        ASSERT_EQ(dequantised(w, r, c), value_at(checkpoint.tensor(source).view(), r * w.cols() + c) *
                                            value_at(scales, r / 128 * 2 + c / 128));
  }
  const auto expect_same = [&](const std::string& name) {
    for (size_t i = 1; i < models.size(); ++i)
      EXPECT_TRUE(
          testing::same_bits(models[i].weights.view(name).scales, models[0].weights.view(name).scales))
          << name;
  };
  expect_same("layers.0.kv_b");
  expect_same("layers.1.experts.down");
}

TEST(Loader, reads_fused_fp8_experts_with_blocks_in_order) {
  TinyCheckpoint plain(tiny_fp8_config(R"({"moe_intermediate_size": 256})"), DType::kF8E4M3);
  TinyCheckpoint fused(tiny_fp8_config(R"({"moe_intermediate_size": 256})"), DType::kF8E4M3);
  const int64_t experts = fused.config().moe.num_experts;
  Tensor gate_up = Tensor::create(DType::kF32, {experts, 4, 2}).value(),
         down = Tensor::create(DType::kF32, {experts, 2, 2}).value();
  for (int64_t e = 0; e < experts; ++e) {
    const std::string base = fmt::format("model.layers.1.mlp.experts.{}.", e);
    copy_elements(fused.tensor(base + "gate_proj.weight_scale_inv").view(),
                  gate_up.view().at(e).slice(0, 0, 2));
    copy_elements(fused.tensor(base + "up_proj.weight_scale_inv").view(),
                  gate_up.view().at(e).slice(0, 2, 4));
    copy_elements(fused.tensor(base + "down_proj.weight_scale_inv").view(), down.view().at(e));
  }
  fused.fuse_experts();
  for (int64_t e = 0; e < experts; ++e)
    for (const char* what : {"gate_proj", "up_proj", "down_proj"})
      fused.tensors().erase(fmt::format("model.layers.1.mlp.experts.{}.{}.weight_scale_inv", e, what));
  fused.tensors()["model.layers.1.mlp.experts.gate_up_proj_scale_inv"] = std::move(gate_up);
  fused.tensors()["model.layers.1.mlp.experts.down_proj_scale_inv"] = std::move(down);
  const LoadedModel want = load(plain), got = load(fused);
  for (const char* name : {"layers.1.experts.gate", "layers.1.experts.up", "layers.1.experts.down"}) {
    EXPECT_TRUE(testing::same_bits(got.weights.view(name).values, want.weights.view(name).values)) << name;
    EXPECT_TRUE(testing::same_bits(got.weights.view(name).scales, want.weights.view(name).scales)) << name;
  }
}

// D2, D3, I4
TEST(Loader, refuses_scales_that_are_missing_transposed_or_of_another_grid) {
  const std::string kv_b = "model.layers.0.self_attn.kv_b_proj.weight",
                    scale = kv_b + "_scale_inv";                                 // 256 x 140: 2 x 2
  const std::string q_b = "model.layers.0.self_attn.q_b_proj.weight_scale_inv";  // 192 x 129: 2 x 2
  const std::string down = "model.layers.0.mlp.down_proj.weight_scale_inv";      // 200 x 300: 2 x 3
  TinyCheckpoint checkpoint(tiny_fp8_config(), DType::kF8E4M3);
  checkpoint.tensors().erase(scale);
  EXPECT_REFUSED(checkpoint, "1 block scales are missing from the checkpoint: " + scale);
  checkpoint.add(scale, DType::kF32, {2, 2});
  checkpoint.add(down, DType::kF32, {3, 2});
  EXPECT_REFUSED(checkpoint, "'" + down + "' has the shape [3, 2], config.json asks for [2, 3]");
  checkpoint.add(down, DType::kF32, {2, 3});
  checkpoint.add(q_b, DType::kF32, {1, 2});
  EXPECT_REFUSED(checkpoint, "[1, 2]");
  checkpoint.add(q_b, DType::kI32, {2, 2});
  EXPECT_REFUSED(checkpoint, "holds block scales as I32");
  checkpoint.add(q_b, DType::kF32, {2, 2});
  EXPECT_EQ(refusal(checkpoint), "accepted");
  checkpoint.tensor(q_b).data<float>()[3] = NAN;
  EXPECT_REFUSED(checkpoint, "'" + q_b + "' is not finite at [1, 1]");
}

// contract: C6
TEST(Loader, refuses_the_fp8_byte_that_is_nan) {
  TinyCheckpoint checkpoint(tiny_fp8_config(), DType::kF8E4M3);
  checkpoint.tensor("model.layers.0.self_attn.kv_b_proj.weight").data<uint8_t>()[141] = 0xFF;
  EXPECT_REFUSED(checkpoint, "is not finite at [1, 1] (stored as F8_E4M3");
}

TEST(Loader, takes_unquantised_matrices_in_an_fp8_checkpoint) {
  TinyCheckpoint checkpoint(tiny_fp8_config(), DType::kF8E4M3);
  const std::string kv_b = "model.layers.0.self_attn.kv_b_proj.weight";
  checkpoint.add(kv_b, DType::kBF16, {256, 140});
  checkpoint.tensors().erase(kv_b + "_scale_inv");
  const LoadedModel model = load(checkpoint);
  EXPECT_EQ(model.weights.view("layers.0.kv_b").values.dtype(), DType::kBF16);
  EXPECT_EQ(model.weights.view("layers.1.kv_b").values.dtype(), DType::kF8E4M3);
}

TEST(Loader, refuses_experts_of_mixed_dtypes) {
  TinyCheckpoint checkpoint(tiny_config());
  checkpoint.add("model.layers.1.mlp.experts.3.up_proj.weight", DType::kBF16, {12, 24});
  EXPECT_REFUSED(checkpoint, "experts.3.up_proj.weight' is BF16, other experts of its layer are f32");
}

TEST(Loader, activations_follow_the_checkpoint) {
  EXPECT_EQ(activation_dtype(DType::kF32), DType::kF32);
  EXPECT_EQ(activation_dtype(DType::kF16), DType::kF32);
  EXPECT_EQ(activation_dtype(DType::kBF16), DType::kBF16);
  EXPECT_EQ(activation_dtype(DType::kF32, DType::kBF16), DType::kBF16);
  EXPECT_EQ(activation_dtype(DType::kBF16, DType::kF32), DType::kF32);
}

}  // namespace
}  // namespace latent::model
