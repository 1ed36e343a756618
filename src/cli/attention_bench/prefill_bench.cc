// SPDX-License-Identifier: Apache-2.0
#include "cli/attention_bench/prefill_bench.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/log.h"
#include "tensor/float_types.h"

namespace latent::cli {
namespace {

constexpr double kPassBytes = 1e9;
constexpr int kMostSets = 64;

// Rotating input sets of one case.
class PrefillSets {
 public:
  static Result<PrefillSets> create(Machine& machine, const PrefillBenchCase& c) {
    PrefillSets sets;
    sets.machine_ = &machine;
    const auto count =
        static_cast<int>(std::clamp(std::ceil(kPassBytes / work_of(c).bytes), 2.0, double{kMostSets}));
    for (int i = 0; i < count; ++i)
      if (Status s = sets.add(c); !s) return s.error();
    return sets;
  }

  int count() const { return static_cast<int>(params_.size()); }
  const ops::PrefillAttentionParams& params(int64_t index) const {
    return params_[static_cast<size_t>(index) % params_.size()];
  }

 private:
  Result<std::byte*> allocate(int64_t bytes) {
    Result<std::shared_ptr<std::byte>> memory = machine_->allocate(static_cast<size_t>(bytes));
    if (!memory) return memory.error();
    memory_.push_back(*std::move(memory));
    return memory_.back().get();
  }
  // [count, heads, width] of N(0, 1).
  Result<TensorView> draw(int64_t count, int64_t heads, int64_t width) {
    const int64_t elements = count * heads * width;
    Result<std::byte*> at = allocate(std::max<int64_t>(elements, 1) * 2);
    if (!at) return at.error();
    machine_->fill_normal(*at, elements, memory_.size());
    return TensorView(*at, DType::kBF16, {count, heads, width});
  }
  Result<TensorView> starts(int batch, int len) {
    std::vector<int32_t> words;
    for (int s = 0; s <= batch; ++s) words.push_back(s * len);
    Result<std::byte*> at = allocate(static_cast<int64_t>(words.size()) * 4);
    if (!at) return at.error();
    machine_->copy_in(*at, words.data(), words.size() * 4);
    return TensorView(*at, DType::kI32, {batch + 1});
  }

  Status add(const PrefillBenchCase& c) {
    const int64_t tokens = int64_t{c.batch} * c.len, keys = int64_t{c.batch} * (c.len + c.context);
    const Result<TensorView> q = draw(tokens, c.heads, c.nope + c.rope),
                             kv = draw(keys, c.heads, c.nope + c.v), k_pe = draw(keys, 1, c.rope),
                             out = draw(tokens, c.heads, c.v), q_starts = starts(c.batch, c.len),
                             kv_starts = starts(c.batch, c.len + c.context);
    for (const Result<TensorView>* r : {&q, &kv, &k_pe, &out, &q_starts, &kv_starts})
      if (!*r) return r->error();
    Result<std::byte*> lse = allocate(tokens * c.heads * 4);
    if (!lse) return lse.error();
    params_.push_back({.q_nope = q->slice(2, 0, c.nope),
                       .q_pe = q->slice(2, c.nope, c.nope + c.rope),
                       .k_nope = kv->slice(2, 0, c.nope),
                       .k_pe = {k_pe->raw(), k_pe->dtype(), {keys, c.heads, c.rope}, {k_pe->stride(0), 0, 1}},
                       .v = kv->slice(2, c.nope, c.nope + c.v),
                       .q_starts = *q_starts,
                       .kv_starts = *kv_starts,
                       .out = *out,
                       .lse = {*lse, DType::kF32, {tokens, c.heads}},
                       .attrs = {.num_heads = c.heads,
                                 .nope_dim = c.nope,
                                 .rope_dim = c.rope,
                                 .v_dim = c.v,
                                 .softmax_scale = 1.0f / std::sqrt(static_cast<float>(c.nope + c.rope))}});
    return {};
  }

  Machine* machine_ = nullptr;
  std::vector<std::shared_ptr<std::byte>> memory_;
  std::vector<ops::PrefillAttentionParams> params_;
};

BenchCall call_of(const PrefillSets& sets, const attention::PrefillBackend& backend) {
  return [&sets, &backend, state = backend.create_state()](int64_t index, void* stream) {
    backend.run(sets.params(index), state.get(), {.stream = stream});
  };
}

// The outputs of set 0, written into memory that held NaN.
std::vector<BFloat16> outputs_of(Machine& machine, const PrefillSets& sets, const BenchCall& call) {
  const TensorView& out = sets.params(0).out;
  std::vector<BFloat16> values(static_cast<size_t>(out.num_elements()), BFloat16::from_float(NAN));
  auto* device = static_cast<std::byte*>(out.raw());
  machine.copy_in(device, values.data(), values.size() * sizeof values[0]);
  call(0, nullptr);
  machine.copy_out(values.data(), device, values.size() * sizeof values[0]);
  return values;
}

double difference(const std::vector<BFloat16>& got, const std::vector<BFloat16>& want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double g = got[i].to_float(), w = want[i].to_float();
    error += (g - w) * (g - w);
    norm += w * w;
  }
  return std::sqrt(error / norm);
}

Status bench_case(Machine& machine, const PrefillBenchCase& c,
                  const std::vector<const attention::PrefillBackend*>& backends,
                  const std::vector<Protocol>& protocols, std::vector<PrefillBenchRow>* rows) {
  const Result<PrefillSets> sets = PrefillSets::create(machine, c);
  if (!sets) return sets.error();
  std::vector<const attention::PrefillBackend*> serving;
  for (const attention::PrefillBackend* b : backends) {
    const auto refusal = b->supports({.attrs = sets->params(0).attrs, .on_device = machine.is_device()});
    if (refusal)
      log(LogLevel::kWarn, "{}: {} {}", to_string(c), b->name(), refusal->reason);
    else
      serving.push_back(b);
  }
  if (serving.empty()) return make_error(ErrorCode::kUnsupported, "no backend serves this case");
  std::vector<BenchCall> calls;
  std::vector<double> differences;
  std::vector<BFloat16> first;
  for (const attention::PrefillBackend* b : serving) {
    calls.push_back(call_of(*sets, *b));
    const std::vector<BFloat16> out = outputs_of(machine, *sets, calls.back());
    if (first.empty()) first = out;
    differences.push_back(difference(out, first));
  }
  for (const Protocol protocol : protocols) {
    const std::vector<Timing> timings = measure(machine, calls, sets->count(), protocol);
    for (size_t i = 0; i < serving.size(); ++i)
      rows->push_back({.problem = c,
                       .backend = serving[i]->name(),
                       .protocol = protocol,
                       .timing = timings[i],
                       .difference = differences[i]});
  }
  return {};
}

}  // namespace

std::string to_string(const PrefillBenchCase& c) {
  return fmt::format("heads {}, {}/{}, batch {}, {} tokens after {}", c.heads, c.nope + c.rope, c.v, c.batch,
                     c.len, c.context);
}

BenchWork work_of(const PrefillBenchCase& c) {
  const double len = c.len, keys = len + c.context, heads = c.heads, widths = c.nope + c.rope + c.v;
  const double pairs = len * c.context + len * len / 2;
  return {.tokens = int64_t{c.batch} * (c.len + c.context),
          .bytes = 2.0 * c.batch * (len * heads * widths + keys * (heads * (c.nope + c.v) + c.rope)),
          .flops = 2.0 * c.batch * heads * pairs * widths};
}

std::vector<PrefillBenchCase> judged_prefill_cases() {
  return {{.len = 2048},
          {.len = 4096},
          {.len = 8192},
          {.batch = 16, .len = 512},
          {.len = 2048, .context = 6144},
          {.heads = 20, .nope = 192, .v = 256, .len = 8192}};
}

Result<std::vector<PrefillBenchRow>> bench_prefill(
    Machine& machine, const std::vector<PrefillBenchCase>& cases,
    const std::vector<const attention::PrefillBackend*>& backends, const std::vector<Protocol>& protocols) {
  std::vector<PrefillBenchRow> rows;
  for (const PrefillBenchCase& c : cases)
    if (Status s = bench_case(machine, c, backends, protocols, &rows); !s)
      return s.error().with_context(to_string(c));
  return rows;
}

}  // namespace latent::cli
