// SPDX-License-Identifier: Apache-2.0
// The matrix operators against this machine's own ceilings, measured in turns in one run: products of few
// tokens against a plain read of the same weights, products of many against the best that oneDNN's bf16
// matmul (weights packed by it beforehand) has reached in the run so far, at this shape or another. Every row
// is the median of the rounds; a share is the median of the rounds' own ratios.
//
//   latent_bench_kernels [--threads N] [--rounds N] [--gib X] [--only decode|prefill|moe] [--clock wall|cpu]
#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "base/math.h"
#include "base/parallel.h"
#include "device/host_buffer.h"
#include "kernels/registry.h"
#include "tensor/tensor.h"

#ifdef LATENT_ONEDNN
#include <dnnl.hpp>
#include <unordered_map>
#endif

namespace latent {
namespace {

struct Options {
  int threads = available_cores();
  int rounds = 15;
  double gib = 1.0;
  std::string only;
};

// Wall time, or with --clock cpu the processor time of all threads over their number: for a machine that
// others use.
bool cpu_clock = false;
int cpu_clock_threads = 1;

double now() {
  timespec t{};
  clock_gettime(cpu_clock ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return (static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec)) /
         (cpu_clock ? cpu_clock_threads : 1);
}

double seconds(const std::function<void()>& body) {
  const double start = now();
  body();
  return now() - start;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Tensor make_tensor(DType dtype, const Shape& shape) {
  Result<Tensor> t = Tensor::create(dtype, shape);
  CHECK(t.ok(), "{}", t.error().message);
  return *std::move(t);
}

// Seeded bits that are finite and of moderate size in every float format: exponents near the middle.
void fill(const TensorView& view, uint64_t seed, int threads) {
  const uint64_t keep = view.dtype() == DType::kF32      ? 0x807FFFFF807FFFFFull
                        : view.dtype() == DType::kF8E4M3 ? 0x8F8F8F8F8F8F8F8Full
                                                         : 0x803F803F803F803Full;
  const uint64_t base = view.dtype() == DType::kF32      ? 0x3D0000003D000000ull
                        : view.dtype() == DType::kF8E4M3 ? 0x3030303030303030ull
                        : view.dtype() == DType::kF16    ? 0x2400240024002400ull
                                                         : 0x3D003D003D003D00ull;
  auto* words = static_cast<uint64_t*>(view.raw());
  parallel_ranges(threads, view.num_bytes() / 8, 1 << 12, [&](Range range) {
    for (int64_t i = range.begin; i < range.end; ++i) {
      uint64_t z = (static_cast<uint64_t>(i) + seed) * 0x9E3779B97F4A7C15ull;
      z = (z ^ (z >> 31)) * 0xBF58476D1CE4E5B9ull;
      words[i] = (z & keep) | base;
    }
  });
}

struct Weight {
  Tensor values, scales;
  ops::WeightView view;
};

Weight make_weight(DType dtype, const Shape& shape, uint64_t seed, int threads) {
  Weight w{.values = make_tensor(dtype, shape), .scales = {}, .view = {}};
  fill(w.values.view(), seed, threads);
  w.view.values = w.values.view();
  if (dtype != DType::kF8E4M3) return w;
  Shape blocks = shape;
  const int rank = shape.rank();
  for (int axis = rank - 2; axis < rank; ++axis) blocks[axis] = ceil_div<int64_t>(shape[axis], 128);
  w.scales = make_tensor(DType::kF32, blocks);
  fill(w.scales.view(), seed, 1);
  for (int64_t i = 0; i < blocks.num_elements(); ++i) w.scales.data<float>()[i] = 0.01f;
  w.view.scales = w.scales.view();
  w.view.block_rows = w.view.block_cols = 128;
  return w;
}

// Plain reads of memory: words of 32 or 64 bytes, in one or more streams side by side, each with its chains.
typedef uint64_t Words32 __attribute__((vector_size(32)));
typedef uint64_t Words64 __attribute__((vector_size(64)));
using ReadForm = uint64_t (*)(const std::byte* data, int64_t bytes);

template <class Words, int kStreams, int kChains>
[[gnu::always_inline]] inline uint64_t read_words(const std::byte* data, int64_t bytes) {
  constexpr int64_t kStep = kChains * static_cast<int64_t>(sizeof(Words));
  const int64_t part = bytes / kStreams / kStep * kStep;
  Words sum[kStreams][kChains] = {};
  for (int64_t at = 0; at < part; at += kStep)
    for (int s = 0; s < kStreams; ++s)
      for (int c = 0; c < kChains; ++c) sum[s][c] ^= reinterpret_cast<const Words*>(data + s * part + at)[c];
  for (int i = 1; i < kStreams * kChains; ++i) sum[0][0] ^= sum[i / kChains][i % kChains];
  return sum[0][0][0] ^ sum[0][0][3];
}

template <int kStreams, int kChains>
[[gnu::target("avx2")]] uint64_t read_32(const std::byte* data, int64_t bytes) {
  return read_words<Words32, kStreams, kChains>(data, bytes);
}
template <int kStreams, int kChains>
[[gnu::target("avx512f")]] uint64_t read_64(const std::byte* data, int64_t bytes) {
  return read_words<Words64, kStreams, kChains>(data, bytes);
}

constexpr ReadForm kReadForms[] = {read_32<1, 4>, read_32<1, 8>, read_32<1, 16>, read_32<2, 4>,
                                   read_32<4, 2>, read_32<8, 2>, read_64<1, 4>,  read_64<1, 8>,
                                   read_64<2, 4>, read_64<4, 1>, read_64<4, 4>,  read_64<8, 1>};
constexpr const char* kReadNames[] = {"32 B x 4",
                                      "32 B x 8",
                                      "32 B x 16",
                                      "2 streams of 32 B x 4",
                                      "4 streams of 32 B x 2",
                                      "8 streams of 32 B x 2",
                                      "64 B x 4",
                                      "64 B x 8",
                                      "2 streams of 64 B x 4",
                                      "4 streams of 64 B",
                                      "4 streams of 64 B x 4",
                                      "8 streams of 64 B"};
std::vector<ReadForm> best_reads;  // the best three

std::atomic<uint64_t> read_sink = 0;

// A contiguous part a thread, the last bytes short of 1 KiB left out.
void read_all(const std::byte* data, int64_t bytes, int threads, ReadForm form) {
  parallel_team(threads, [&](int thread, int team) {
    const Range range = split_range(bytes / 1024, thread, team);
    read_sink ^= form(data + range.begin * 1024, range.size() * 1024);
  });
}

// Seconds of `read`, by the best of the best forms.
double seconds_of_reads(const std::function<void(ReadForm)>& read) {
  double best = 0;
  for (const ReadForm form : best_reads) {
    const double time = seconds([&] { read(form); });
    if (best == 0 || time < best) best = time;
  }
  return best;
}

// Every row's ceiling is the best of three of these forms, chosen once.
void choose_read(const Options& o) {
  const Tensor memory = make_tensor(DType::kU8, {static_cast<int64_t>(o.gib * (1 << 30))});
  fill(memory.view(), 3, o.threads);
  std::vector<std::pair<double, ReadForm>> found;
  const size_t forms = cpu_features().avx512 ? std::size(kReadForms) : 6;
  for (size_t i = 0; i < forms; ++i) {
    std::vector<double> rates;
    for (int round = 0; round < 5; ++round) {
      const auto bytes = memory.view().num_bytes();
      const double time =
          seconds([&] { read_all(memory.data<std::byte>(), bytes, o.threads, kReadForms[i]); });
      rates.push_back(1e-9 * static_cast<double>(bytes) / time);
    }
    fmt::print("plain read, {}: {:.1f} GB/s\n", kReadNames[i], median(rates));
    found.emplace_back(median(rates), kReadForms[i]);
  }
  std::sort(found.begin(), found.end(), [](const auto& x, const auto& y) { return x.first > y.first; });
  for (size_t i = 0; i < 3; ++i) best_reads.push_back(found[i].second);
}

template <class Params>
class Runner {
 public:
  Runner(const Params& params, int threads) : impl_(kernels::select(params)), threads_(threads) {
    const size_t bytes = impl_.workspace_bytes != nullptr ? impl_.workspace_bytes(params, threads) : 0;
    Result<HostBuffer> memory = HostBuffer::create(bytes + 64, ElementKind::kBytes, PoisonPattern::kNan);
    CHECK(memory.ok(), "{}", memory.error().message);
    memory_ = *std::move(memory);
  }
  const char* name() const { return impl_.name; }
  double operator()(const Params& params) {
    return seconds([&] {
      impl_.run(params, {.num_threads = threads_, .workspace = {memory_.data(), memory_.size_bytes()}});
    });
  }

 private:
  kernels::Implementation<Params> impl_;
  int threads_;
  HostBuffer memory_;
};

struct Samples {
  std::vector<double> ours, ceiling, share;
  void add(double our_rate, double ceiling_rate) {
    ours.push_back(our_rate);
    ceiling.push_back(ceiling_rate);
    share.push_back(our_rate / ceiling_rate);
  }
  void print(const std::string& label, const char* unit) const {
    const auto most = [](const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); };
    fmt::print("{:<54} {:7.1f} (max {:7.1f}) {:<8} ceiling {:7.1f} (max {:7.1f})  share {:5.1f} %\n", label,
               median(ours), most(ours), unit, median(ceiling), most(ceiling), 100 * median(share));
    std::fflush(stdout);
  }
};

// Weights of at least `gib`, as a stack of matrices of one shape, each read once a round.
void bench_decode(const Options& o, DType x_type, DType weight_type, int64_t rows, int64_t cols,
                  std::initializer_list<int64_t> batches) {
  const int64_t matrix = rows * cols * static_cast<int64_t>(dtype_bytes(weight_type));
  const int64_t count = std::max<int64_t>(static_cast<int64_t>(o.gib * (1 << 30)) / matrix, 1);
  const Weight w = make_weight(weight_type, {count, rows, cols}, 7, o.threads);
  for (const int64_t tokens : batches) {
    Tensor x = make_tensor(x_type, {tokens, cols}), out = make_tensor(x_type, {tokens, rows});
    fill(x.view(), 1, 1);
    const auto params = [&](int64_t i) {
      return ops::LinearParams{.x = x.view(), .weight = w.view.at(i), .out = out.view()};
    };
    Runner<ops::LinearParams> runner(params(0), o.threads);
    Samples samples;
    for (int round = 0; round < o.rounds; ++round) {
      const double read = seconds_of_reads([&](ReadForm form) {
        read_all(static_cast<const std::byte*>(w.values.view().raw()), count * matrix, o.threads, form);
      });
      double ours = 0;
      for (int64_t i = 0; i < count; ++i) ours += runner(params(i));
      const double gigabytes = static_cast<double>(count * matrix) * 1e-9;
      samples.add(gigabytes / ours, gigabytes / read);
    }
    samples.print(fmt::format("{} tokens {}, {} x {} x {} {} [{}]", tokens, to_string(x_type), count, rows,
                              cols, to_string(weight_type), runner.name()),
                  "GB/s");
  }
}

#ifdef LATENT_ONEDNN
double best_product = 0;  // GFLOP/s of oneDNN so far in the run

// oneDNN's bf16 product of [tokens, cols] and [rows, cols] transposed, its weights packed as it likes best.
class OneDnn {
 public:
  OneDnn(const TensorView& x, const ops::WeightView& weight, const TensorView& out) {
    using Desc = dnnl::memory::desc;
    using Type = dnnl::memory::data_type;
    using Tag = dnnl::memory::format_tag;
    const int64_t m = x.dim(0), n = weight.rows(), k = weight.cols();
    const Desc src({m, k}, Type::bf16, Tag::ab), any({k, n}, Type::bf16, Tag::any);
    const Desc plain({k, n}, Type::bf16, Tag::ba), dst({m, n}, Type::bf16, Tag::ab);
    const dnnl::matmul::primitive_desc desc({src, any, dst}, engine_);
    dnnl::memory packed(desc.weights_desc(), engine_);
    dnnl::memory given(plain, engine_, weight.values.raw());
    dnnl::reorder(given, packed).execute(stream_, given, packed);
    stream_.wait();
    matmul_ = dnnl::matmul(desc);
    args_ = {{DNNL_ARG_SRC, dnnl::memory(src, engine_, x.raw())},
             {DNNL_ARG_WEIGHTS, packed},
             {DNNL_ARG_DST, dnnl::memory(dst, engine_, out.raw())}};
  }
  void run() {
    matmul_.execute(stream_, args_);
    stream_.wait();
  }

 private:
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  dnnl::matmul matmul_;
  std::unordered_map<int, dnnl::memory> args_;
};

void bench_prefill(const Options& o, DType x_type, DType weight_type, int64_t tokens, int64_t rows,
                   int64_t cols) {
  const Weight w = make_weight(weight_type, {rows, cols}, 7, o.threads);
  const Weight bf16 = make_weight(DType::kBF16, {rows, cols}, 7, o.threads);
  Tensor x = make_tensor(x_type, {tokens, cols}), out = make_tensor(x_type, {tokens, rows});
  Tensor dnnl_x = make_tensor(DType::kBF16, {tokens, cols}),
         dnnl_out = make_tensor(DType::kBF16, {tokens, rows});
  fill(x.view(), 1, o.threads);
  fill(dnnl_x.view(), 1, o.threads);
  const ops::LinearParams params{.x = x.view(), .weight = w.view, .out = out.view()};
  Runner<ops::LinearParams> runner(params, o.threads);
  OneDnn onednn(dnnl_x.view(), bf16.view, dnnl_out.view());
  const double flops =
      2e-9 * static_cast<double>(tokens) * static_cast<double>(rows) * static_cast<double>(cols);
  const int repeats = std::max(1, static_cast<int>(10 / flops));
  Samples samples;
  onednn.run();
  runner(params);
  for (int round = 0; round < o.rounds; ++round) {
    double ours = 0;
    for (int i = 0; i < repeats; ++i) ours += runner(params);
    const double theirs = seconds([&] {
      for (int i = 0; i < repeats; ++i) onednn.run();
    });
    best_product = std::max(best_product, flops * repeats / theirs);
    samples.add(flops * repeats / ours, best_product);
  }
  samples.print(fmt::format("{} tokens {}, {} x {} {} [{}]", tokens, to_string(x_type), rows, cols,
                            to_string(weight_type), runner.name()),
                "GFLOP/s");
}
#endif

// Routed experts: for few tokens against a read of the experts in use, for many the rate alone.
void bench_moe(const Options& o, DType weight_type, int64_t tokens, int64_t experts, int64_t top_k,
               int64_t hidden, int64_t inter) {
  const Weight gate = make_weight(weight_type, {experts, inter, hidden}, 1, o.threads);
  const Weight up = make_weight(weight_type, {experts, inter, hidden}, 2, o.threads);
  const Weight down = make_weight(weight_type, {experts, hidden, inter}, 3, o.threads);
  Tensor x = make_tensor(DType::kBF16, {tokens, hidden}), out = make_tensor(DType::kBF16, {tokens, hidden});
  Tensor weights = make_tensor(DType::kF32, {tokens, top_k}), ids = make_tensor(DType::kI32, {tokens, top_k});
  fill(x.view(), 1, 1);
  fill(weights.view(), 2, 1);
  const ops::MoeExpertsParams params{.x = x.view(),
                                     .weights = weights.view(),
                                     .ids = ids.view(),
                                     .gate = gate.view,
                                     .up = up.view,
                                     .down = down.view,
                                     .out = out.view(),
                                     .attrs = {}};
  Runner<ops::MoeExpertsParams> runner(params, o.threads);
  const int64_t matrix = gate.values.view().num_bytes() / experts;
  Samples samples;
  int64_t next = 0;
  for (int round = 0; round < o.rounds; ++round) {
    // Other experts each time, so that none is in a cache.
    for (int64_t i = 0; i < tokens * top_k; ++i)
      ids.data<int32_t>()[i] = static_cast<int32_t>(next++ % experts);
    const int64_t used = std::min(tokens * top_k, experts);
    const double read = seconds_of_reads([&](ReadForm form) {
      for (const Weight* w : {&gate, &up, &down})
        for (int64_t i = 0; i < used; ++i)
          read_all(static_cast<const std::byte*>(w->view.values.at((next + i) % experts).raw()), matrix,
                   o.threads, form);
    });
    const double ours = runner(params);
    const double gigabytes = 3e-9 * static_cast<double>(used * matrix);
    samples.add(gigabytes / ours, gigabytes / read);
  }
  const double flops = 6e-9 * static_cast<double>(tokens * top_k * hidden) * static_cast<double>(inter);
  const double rate =
      flops * median(samples.ours) / (3e-9 * static_cast<double>(std::min(tokens * top_k, experts) * matrix));
  samples.print(fmt::format("moe {} tokens, {} of {} experts {} x {} {} ({:.0f} GFLOP/s)", tokens, top_k,
                            experts, inter, hidden, to_string(weight_type), rate),
                "GB/s");
}

void run(const Options& o) {
  const auto wanted = [&](const char* part) { return o.only.empty() || o.only == part; };
  fmt::print("{} threads, {}\n", o.threads, to_string(cpu_features()));
  choose_read(o);
  if (wanted("decode")) {
    bench_decode(o, DType::kBF16, DType::kBF16, 2048, 4096, {1, 2, 4, 8, 16});
    bench_decode(o, DType::kBF16, DType::kBF16, 1536, 7168, {1});
    bench_decode(o, DType::kBF16, DType::kF8E4M3, 2048, 7168, {1, 4, 8});
    bench_decode(o, DType::kF32, DType::kF32, 2048, 4096, {1, 4});
    bench_decode(o, DType::kF32, DType::kBF16, 2048, 4096, {1});
    bench_decode(o, DType::kF32, DType::kF16, 2048, 4096, {1});
  }
#ifdef LATENT_ONEDNN
  if (wanted("prefill")) {
    for (const int64_t tokens : {64, 512}) bench_prefill(o, DType::kBF16, DType::kBF16, tokens, 2048, 2048);
    bench_prefill(o, DType::kBF16, DType::kBF16, 512, 4096, 7168);
    bench_prefill(o, DType::kBF16, DType::kBF16, 512, 576, 2048);
    bench_prefill(o, DType::kBF16, DType::kBF16, 512, 2048, 10944);
    bench_prefill(o, DType::kBF16, DType::kF8E4M3, 512, 2048, 7168);
    bench_prefill(o, DType::kF32, DType::kF32, 512, 2048, 2048);
  }
#endif
  if (wanted("moe")) {
    bench_moe(o, DType::kBF16, 1, 64, 6, 2048, 1408);
    bench_moe(o, DType::kBF16, 4, 64, 6, 2048, 1408);
    bench_moe(o, DType::kBF16, 512, 64, 6, 2048, 1408);
  }
}

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--threads") o.threads = std::atoi(argv[i + 1]);
    if (flag == "--rounds") o.rounds = std::atoi(argv[i + 1]);
    if (flag == "--gib") o.gib = std::atof(argv[i + 1]);
    if (flag == "--only") o.only = argv[i + 1];
    if (flag == "--clock") cpu_clock = std::string(argv[i + 1]) == "cpu";
  }
  return o;
}

}  // namespace
}  // namespace latent

int main(int argc, char** argv) {
  const latent::Options options = latent::parse(argc, argv);
#ifdef LATENT_OPENMP
  omp_set_num_threads(options.threads);
#endif
  latent::cpu_clock_threads = options.threads;
  latent::run(options);
  return 0;
}
