// SPDX-License-Identifier: Apache-2.0
#include "model/loader.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/available_memory.h"
#include "base/math.h"
#include "io/safetensors.h"
#include "model/rope_table.h"
#include "model/weight_copy.h"

namespace latent::model {
namespace {

using Entry = io::Checkpoint::Entry;

std::string dims_text(const std::vector<int64_t>& dims) {
  std::string text;
  for (const int64_t d : dims) text += fmt::format("{}{}", text.empty() ? "" : ", ", d);
  return "[" + text + "]";
}

Error tensor_error(ErrorCode code, const Entry& e, const std::string& message) {
  return make_error(code, "{}: tensor '{}' {}", e.file->path().string(), e.tensor->name, message);
}

// [.., rows, cols] in elements to [.., rows, cols] in blocks, the last ones clipped.
std::vector<int64_t> scale_dims(std::vector<int64_t> dims, const QuantConfig& quant) {
  const size_t n = dims.size();
  dims[n - 2] = ceil_div<int64_t>(dims[n - 2], quant.block_rows);
  dims[n - 1] = ceil_div<int64_t>(dims[n - 1], quant.block_cols);
  return dims;
}

// The block scales that go with a part of a quantised weight. Cuts lie between blocks (shard_plan.cc), but
// the rows of a fused tensor may not.
WeightPart scale_part(const WeightPart& part, const QuantConfig& quant) {
  const auto blocks = [](Range r, int64_t block) { return Range{r.begin / block, ceil_div(r.end, block)}; };
  return {.source = scale_name(part.source),
          .source_dims = scale_dims(part.source_dims, quant),
          .source_index = part.source_index,
          .dest_index = part.dest_index,
          .rows = blocks(part.rows, quant.block_rows),
          .cols = blocks(part.cols, quant.block_cols)};
}

// Everything about the tensors that can be known before memory is taken.
class Inspector {
 public:
  Inspector(const ModelConfig& config, const io::Checkpoint& checkpoint)
      : config_(config), checkpoint_(checkpoint) {}

  Status run(const std::vector<WeightSpec>& specs) {
    for (const WeightSpec& spec : specs)
      for (const WeightPart& part : spec.parts) note(part.source);
    if (!missing_.empty())
      return make_error(ErrorCode::kNotFound, "{} tensors are missing from the checkpoint: {}",
                        missing_.size(), io::list_some(missing_));
    for (const WeightSpec& spec : specs)
      if (Status s = check_spec(spec); !s) return s;
    if (missing_.empty()) return {};
    return make_error(ErrorCode::kNotFound, "{} block scales are missing from the checkpoint: {}",
                      missing_.size(), io::list_some(missing_));
  }

  // What the checkpoint holds beyond what the model needs.
  void report(LoadReport* report) const {
    std::set<int> layers;
    for (const auto& [name, entry] : checkpoint_.tensors()) {
      if (used_.contains(name)) continue;
      if (const int layer = layer_of(name); layer >= config_.num_layers)
        layers.insert(layer);
      else
        report->unknown_tensors.push_back(name);
    }
    report->skipped_layers.assign(layers.begin(), layers.end());
    report->stale_tensors = checkpoint_.stale();
    report->num_files = checkpoint_.num_files();
  }

 private:
  // Counts the tensor as used, or as missing.
  const Entry* note(const std::string& name) {
    const Entry* entry = checkpoint_.find(name);
    if (entry == nullptr)
      missing_.push_back(name);
    else
      used_.insert(entry->tensor->name);
    return entry;
  }

  Status check_spec(const WeightSpec& spec) {
    const DType dtype = checkpoint_.find(spec.parts[0].source)->tensor->dtype.value_or(DType::kU8);
    for (const WeightPart& part : spec.parts) {
      const Entry& e = *checkpoint_.find(part.source);
      if (Status s = check_shape(e, part.source_dims); !s) return s;
      if (Status s = check_dtype(e, spec.kind); !s) return s;
      if (*e.tensor->dtype != dtype)
        return tensor_error(
            ErrorCode::kUnsupported, e,
            fmt::format("is {}, other experts of its layer are {}", e.tensor->dtype_name, to_string(dtype)));
      if (dtype != DType::kF8E4M3) continue;
      if (Status s = check_scale(part); !s) return s;
    }
    return {};
  }

  static Status check_shape(const Entry& e, const std::vector<int64_t>& expected) {
    if (e.tensor->dims == expected) return {};
    return tensor_error(ErrorCode::kCorrupt, e,
                        fmt::format("has the shape {}, config.json asks for {}", dims_text(e.tensor->dims),
                                    dims_text(expected)));
  }

  Status check_dtype(const Entry& e, WeightKind kind) const {
    const std::optional<DType> dtype = e.tensor->dtype;
    if (dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16) return {};
    if (dtype != DType::kF8E4M3 || kind == WeightKind::kNorm || kind == WeightKind::kBias)
      return tensor_error(
          ErrorCode::kUnsupported, e,
          fmt::format("is stored as {}; F32, F16, BF16 and, for matrices, block-quantised F8_E4M3 are "
                      "supported",
                      e.tensor->dtype_name));
    if (config_.quant.block_rows > 0) return {};
    return tensor_error(ErrorCode::kUnsupported, e,
                        "is F8_E4M3, but config.json has no quantization_config.weight_block_size");
  }

  Status check_scale(const WeightPart& part) {
    const Entry* e = note(scale_name(part.source));
    if (e == nullptr) return {};
    if (Status s = check_shape(*e, scale_dims(part.source_dims, config_.quant)); !s) return s;
    const std::optional<DType> dtype = e->tensor->dtype;
    if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF8E8M0)
      return tensor_error(ErrorCode::kUnsupported, *e,
                          fmt::format("holds block scales as {}; F32, BF16 and F8_E8M0 are supported",
                                      e->tensor->dtype_name));
    if (part.rows.begin % config_.quant.block_rows == 0 && part.cols.begin % config_.quant.block_cols == 0)
      return {};
    return tensor_error(
        ErrorCode::kUnsupported, *e,
        fmt::format("is cut inside a block at row {}, column {}", part.rows.begin, part.cols.begin));
  }

  const ModelConfig& config_;
  const io::Checkpoint& checkpoint_;
  std::set<std::string_view> used_;
  std::vector<std::string> missing_;
};

// What a weight is kept as: its own type, except that biases are f32 and that a bf16 model rounds what its
// checkpoint holds in f32 or f16 (but for the router).
DType storage_type(WeightKind kind, DType source, DType activation) {
  if (kind == WeightKind::kBias) return DType::kF32;
  const bool rounds = kind != WeightKind::kRouter && source != DType::kF8E4M3 && activation == DType::kBF16;
  return rounds ? DType::kBF16 : source;
}

class Loader {
 public:
  Loader(const io::Checkpoint& checkpoint, const LoadOptions& options, LoadedModel* model)
      : checkpoint_(checkpoint), options_(options), model_(model) {}

  Status run(const std::vector<WeightSpec>& specs) {
    for (const WeightSpec& spec : specs) total_ += spec_bytes(spec);
    if (Status s = check_memory(total_); !s) return s;
    for (const WeightSpec& spec : specs)
      if (Status s = load(spec); !s) return s;
    if (options_.progress && !options_.progress(total_, total_)) return cancelled(total_);
    return {};
  }

 private:
  DType source_type(const WeightSpec& spec) const {
    return *checkpoint_.find(spec.parts[0].source)->tensor->dtype;
  }

  int64_t spec_bytes(const WeightSpec& spec) const {
    int64_t bytes =
        static_cast<int64_t>(dtype_bytes(storage_type(spec.kind, source_type(spec), model_->activation)));
    for (const int64_t d : spec.dims) bytes *= d;
    return bytes;
  }

  Status load(const WeightSpec& spec) {
    const DType source = source_type(spec);
    graph::WeightStore::Entry entry;
    Result<Tensor> values =
        load_tensor(spec.dims, storage_type(spec.kind, source, model_->activation), spec.parts);
    if (!values) return values.error();
    entry.values = *std::move(values);
    done_ += entry.values.view().num_bytes();
    if (source == DType::kF8E4M3) {
      const QuantConfig& quant = model_->config.quant;
      std::vector<WeightPart> parts;
      for (const WeightPart& part : spec.parts) parts.push_back(scale_part(part, quant));
      Result<Tensor> scales = load_tensor(scale_dims(spec.dims, quant), DType::kF32, parts);
      if (!scales) return scales.error();
      entry.scales = *std::move(scales);
      entry.block_rows = quant.block_rows;
      entry.block_cols = quant.block_cols;
    }
    model_->weights.add(spec.name, std::move(entry));
    return {};
  }

  Result<Tensor> load_tensor(const std::vector<int64_t>& dims, DType dtype,
                             const std::vector<WeightPart>& parts) {
    Result<Tensor> tensor = Tensor::create(dtype, Shape(dims));
    if (!tensor) return tensor.error().with_context(parts[0].source);
    std::vector<CopyJob> jobs;
    for (const WeightPart& part : parts)
      jobs.push_back(make_copy_job(part, *checkpoint_.find(part.source), tensor->view()));
    const auto progress = [&](int64_t bytes) {
      reached_ = std::min(done_ + bytes, total_);
      return !options_.progress || options_.progress(reached_, total_);
    };
    const Result<bool> whole = run_copy_jobs(jobs, options_.num_threads, progress);
    if (!whole) return whole.error();
    if (!*whole) return cancelled(reached_);
    return tensor;
  }

  Error cancelled(int64_t bytes) const {
    return make_error(ErrorCode::kCancelled, "interrupted when {} of {} MiB of weights were loaded",
                      bytes >> 20, total_ >> 20);
  }

  const io::Checkpoint& checkpoint_;
  const LoadOptions& options_;
  LoadedModel* model_;
  int64_t done_ = 0, total_ = 0, reached_ = 0;
};

// The type that the checkpoint's own numbers have, where config.json does not say.
DType stated_or_stored_dtype(const ModelConfig& config, const io::Checkpoint& checkpoint,
                             const std::string& embed) {
  const Entry* e = checkpoint.find(embed);
  return config.dtype_stated || e == nullptr ? config.checkpoint_dtype
                                             : e->tensor->dtype.value_or(DType::kBF16);
}

// A config that announces far more experts than there are tensors is wrong; say so before listing them all.
Status check_expert_count(const ModelConfig& config, const io::Checkpoint& checkpoint) {
  const auto moe_layers = std::count(config.layer_is_moe.begin(), config.layer_is_moe.end(), true);
  const int64_t announced = moe_layers * config.moe.num_experts;
  constexpr int64_t kFew = 1'000'000;  // names that may be listed at leisure
  if (announced < kFew || announced <= static_cast<int64_t>(checkpoint.tensors().size())) return {};
  return make_error(ErrorCode::kCorrupt,
                    "config.json announces {} experts in {} layers, but the checkpoint has {} tensors",
                    config.moe.num_experts, moe_layers, checkpoint.tensors().size());
}

}  // namespace

Result<LoadedModel> load_model(const std::filesystem::path& folder, const LoadOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  Result<ModelConfig> config = load_config(folder);
  if (!config) return config.error();
  Result<int> positions = served_context(*config, options.max_positions);
  if (!positions) return positions.error();
  Result<io::Checkpoint> checkpoint = io::Checkpoint::open(folder);
  if (!checkpoint) return checkpoint.error();
  if (Status s = check_expert_count(*config, *checkpoint); !s) return s.error();
  const auto has = [&](std::string_view name) { return checkpoint->find(name) != nullptr; };
  Result<std::vector<WeightSpec>> specs = weight_map(*config, options.shard, has);
  if (!specs) return specs.error();
  Inspector inspector(*config, *checkpoint);
  if (Status s = inspector.run(*specs); !s) return s.error().with_context(folder.string());

  LoadedModel model{.config = *std::move(config), .weights = {}, .max_positions = *positions, .report = {}};
  model.config.checkpoint_dtype =
      stated_or_stored_dtype(model.config, *checkpoint, specs->front().parts[0].source);
  model.activation = activation_dtype(model.config.checkpoint_dtype, options.compute);
  inspector.report(&model.report);
  if (Status s = Loader(*checkpoint, options, &model).run(*specs); !s) return s.error();
  if (Status s = add_rope_tables(model.config, *positions, &model.weights); !s) return s.error();
  model.report.bytes = model.weights.num_bytes();
  model.report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return model;
}

Status check_memory(int64_t weight_bytes) {
  const int64_t available = available_memory_bytes();
  if (weight_bytes <= available) return {};
  constexpr double kGiB = 1 << 30;
  return make_error(
      ErrorCode::kExhausted,
      "the weights take {:.1f} GiB, and {:.1f} GiB of memory are free; end other programs, or take "
      "a smaller model or, of a shape, fewer --layers",
      static_cast<double>(weight_bytes) / kGiB, static_cast<double>(available) / kGiB);
}

DType activation_dtype(DType checkpoint_dtype, std::optional<DType> compute) {
  if (compute) return *compute;
  return checkpoint_dtype == DType::kF32 || checkpoint_dtype == DType::kF16 ? DType::kF32 : DType::kBF16;
}

int default_context(const ModelConfig& config) {
  const bool longrope = config.rope.type == RopeConfig::Type::kLongRope;
  return longrope ? std::min(config.rope.original_max_positions, config.max_positions) : config.max_positions;
}

Result<int> served_context(const ModelConfig& config, int wanted) {
  if (wanted == 0) return default_context(config);
  if (wanted > 0 && wanted <= config.max_positions) return wanted;
  return make_error(ErrorCode::kInvalidArgument, "a context of {} positions was asked for; {} has 1 to {}",
                    wanted, config.architecture_name, config.max_positions);
}

}  // namespace latent::model
