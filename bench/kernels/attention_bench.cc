// SPDX-License-Identifier: Apache-2.0
// MLA attention on the CPU against the multiplication rate of this machine, measured in turns in one run.
// Decode streams the caches of --layers layers, more than the processor's own caches hold. A share is the
// median of the rounds' own ratios to the best of the ceiling's loop forms in that round.
//
//   latent_bench_attention [--threads N] [--rounds N] [--heads N] [--keys N] [--layers N] [--tokens N]
//                          [--clock wall|cpu] [--only decode|prefill]
#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "attention/backend.h"
#include "base/math.h"
#include "base/parallel.h"
#include "dot_rate.h"
#include "tensor/tensor.h"

namespace latent::bench {
namespace {

using ops::AttentionForm;

struct Options {
  int threads = available_cores(), rounds = 15, heads = 16, keys = 2048, layers = 64, tokens = 512;
  std::string only;
  bool wants(const char* part) const { return only.empty() || only == part; }
};

// Wall time, or the processor time of all threads over their number: for a machine that others use.
bool cpu_clock = false;

double now(int threads) {
  timespec t{};
  clock_gettime(cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec)) / (cpu_clock ? threads : 1);
}

double seconds(int threads, const std::function<void()>& body) {
  const double start = now(threads);
  body();
  return now(threads) - start;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

// Flops a second of the best loop form, each on all threads for a few milliseconds.
double best_rate(std::span<const DotLoop> loops, int threads) {
  double best = 0;
  for (const DotLoop& loop : loops) {
    const auto rounds = static_cast<int64_t>(1e9 / loop.flops);
    const double time =
        seconds(threads, [&] { parallel_team(threads, [&](int, int) { loop.run(rounds); }); });
    best = std::max(best, static_cast<double>(rounds) * loop.flops * threads / time);
  }
  return best;
}

// Finite numbers of order one in every float type: sign and mantissa are a hash of the place.
Tensor make_tensor(DType dtype, const Shape& shape) {
  Result<Tensor> t = Tensor::create(dtype, shape);
  CHECK(t.ok(), "{}", t.error().message);
  auto* bytes = static_cast<uint8_t*>(t->view().raw());
  const auto size = static_cast<int64_t>(dtype_bytes(dtype));
  for (int64_t i = 0; i < t->shape().num_elements(); ++i) {
    const auto hash = static_cast<uint32_t>((static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ull >> 40);
    const uint32_t bits = 0x3F000000u | (hash << 31) | (hash & 0x7FFFFFu);
    for (int64_t b = 0; b < size; ++b)
      bytes[i * size + b] = static_cast<uint8_t>(bits >> (8 * (4 - size + b)));
  }
  return *std::move(t);
}

struct StepShape {
  AttentionForm form;
  DType dtype;
  int tokens, keys, layers;
};

// One step of one request over the caches of several layers.
class Step {
 public:
  Step(const Options& options, const StepShape& shape) : options_(options), shape_(shape) {
    const int heads = options.heads, width = is_absorbed() ? 512 : 128;
    const int64_t pages = ceil_div(shape.keys, 64);
    q_nope_ = make_tensor(shape.dtype, {shape.tokens, heads, width});
    q_pe_ = make_tensor(shape.dtype, {shape.tokens, heads, 64});
    kv_b_ = make_tensor(shape.dtype, {int64_t{heads} * 256, 512});
    out_ = make_tensor(shape.dtype, {shape.tokens, heads, width});
    table_ = make_tensor(DType::kI32, {1, pages});
    for (int64_t i = 0; i < pages; ++i) table_.data<int32_t>()[i] = static_cast<int32_t>(pages - i);
    for (int i = 0; i < shape.layers; ++i) caches_.push_back(make_tensor(shape.dtype, {pages + 1, 64, 576}));
    prepare();
  }

  void run() {
    for (const Tensor& cache : caches_) {
      params_.cache = cache.view();
      backend_->run(params_, plan_,
                    {.num_threads = options_.threads,
                     .workspace = {static_cast<std::byte*>(workspace_.view().raw()),
                                   static_cast<size_t>(workspace_.view().num_bytes())}});
    }
  }
  int num_layers() const { return shape_.layers; }

 private:
  bool is_absorbed() const { return shape_.form == AttentionForm::kAbsorbed; }

  void prepare() {
    const attention::MlaDesc desc = {.attrs = {.form = shape_.form,
                                               .num_heads = options_.heads,
                                               .kv_rank = 512,
                                               .rope_dim = 64,
                                               .nope_dim = 128,
                                               .v_dim = 128,
                                               .page_tokens = 64,
                                               .softmax_scale = 0.1f},
                                     .q_dtype = shape_.dtype,
                                     .cache_dtype = shape_.dtype,
                                     .kv_b_dtype = shape_.dtype};
    const attention::Limits limits = {.max_tokens = shape_.tokens,
                                      .max_seqs = 1,
                                      .max_kv_len = shape_.keys,
                                      .num_threads = options_.threads};
    const auto chosen = attention::select(desc);
    CHECK(chosen.ok(), "{}", chosen.error().message);
    backend_ = *chosen;
    workspace_ = make_tensor(DType::kU8, {static_cast<int64_t>(backend_->workspace_bytes(desc, limits))});
    starts_ = {0, shape_.tokens};
    lens_ = {shape_.keys};
    backend_->reserve_plan(desc, limits, &plan_);
    backend_->plan(desc, limits, {.q_starts = starts_, .kv_lens = lens_}, &plan_);
    params_ = {.q_nope = q_nope_.view(),
               .q_pe = q_pe_.view(),
               .cache = {},
               .batch = {.q_starts = {starts_.data(), DType::kI32, {2}},
                         .kv_lens = {lens_.data(), DType::kI32, {1}},
                         .block_table = table_.view()},
               .kv_b = {.values = kv_b_.view(), .scales = {}},
               .out = out_.view(),
               .lse = {},
               .attrs = desc.attrs};
  }

  const Options& options_;
  StepShape shape_;
  std::vector<int32_t> starts_, lens_;
  Tensor q_nope_, q_pe_, kv_b_, out_, table_, workspace_;
  std::vector<Tensor> caches_;
  const attention::Backend* backend_ = nullptr;
  attention::Plan plan_;
  ops::MlaAttentionParams params_;
};

void measure(const Options& o, const char* name, const StepShape& shape, double flops,
             std::span<const DotLoop> ceiling) {
  Step step(o, shape);
  std::vector<double> rates, ceilings, shares;
  step.run();
  for (int round = 0; round < o.rounds; ++round) {
    const double time = seconds(o.threads, [&] { step.run(); });
    ceilings.push_back(best_rate(ceiling, o.threads));
    rates.push_back(flops * step.num_layers() / time);
    shares.push_back(ceilings.back() > 0 ? rates.back() / ceilings.back() : 0);
  }
  fmt::print("{:<40} {:8.3f} ms/layer {:6.0f} GFLOP/s of {:4.0f}: {:5.1f} % (best round {:5.1f} %)\n", name,
             1e3 * flops / median(rates), median(rates) * 1e-9, median(ceilings) * 1e-9, 100 * median(shares),
             100 * *std::max_element(shares.begin(), shares.end()));
}

void run_decode(const Options& o) {
  const double flops = 2.0 * o.heads * o.keys * (576 + 512);
  measure(o, "decode, absorbed, bf16 of bf16 dots",
          {AttentionForm::kAbsorbed, DType::kBF16, 1, o.keys, o.layers}, flops, bf16_dot_loops());
  measure(o, "decode, absorbed, f32 of f32 fma",
          {AttentionForm::kAbsorbed, DType::kF32, 1, o.keys, ceil_div(o.layers, 2)}, flops, f32_fma_loops());
}

// Causal: row i sees i + 1 keys. The up-projection is counted, too, by whole tiles of 128 keys.
void run_prefill(const Options& o) {
  const double t = o.tokens;
  const double flops =
      2.0 * o.heads * (t * (t + 1) / 2 * (192 + 128) + round_up(o.tokens, 128) * 512.0 * 256);
  measure(o, "prefill, multi-head, bf16 of bf16 dots",
          {AttentionForm::kMultiHead, DType::kBF16, o.tokens, o.tokens, 4}, flops, bf16_dot_loops());
  measure(o, "prefill, multi-head, f32 of f32 fma",
          {AttentionForm::kMultiHead, DType::kF32, o.tokens, o.tokens, 4}, flops, f32_fma_loops());
}

void run(const Options& o) {
  fmt::print("{} threads, {} heads, {} keys, {} prompt tokens, {} rounds, {} clock; {}\n", o.threads, o.heads,
             o.keys, o.tokens, o.rounds, cpu_clock ? "processor" : "wall", to_string(cpu_features()));
  if (o.wants("decode")) run_decode(o);
  if (o.wants("prefill")) run_prefill(o);
}

int run_main(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    int* target = flag == "--threads"  ? &o.threads
                  : flag == "--rounds" ? &o.rounds
                  : flag == "--heads"  ? &o.heads
                  : flag == "--keys"   ? &o.keys
                  : flag == "--layers" ? &o.layers
                  : flag == "--tokens" ? &o.tokens
                                       : nullptr;
    if (target != nullptr) {
      *target = std::max(1, std::atoi(value.c_str()));
    } else if (flag == "--only") {
      o.only = value;
    } else if (flag == "--clock") {
      cpu_clock = value == "cpu";
    } else {
      fmt::print(stderr, "unknown option {}\n", flag);
      return 2;
    }
  }
  run(o);
  return 0;
}

}  // namespace
}  // namespace latent::bench

int main(int argc, char** argv) { return latent::bench::run_main(argc, argv); }
