// SPDX-License-Identifier: Apache-2.0
// The C interface on host memory, through the shared library.
#include <gtest/gtest.h>
#include <latent/attention.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "device/host_buffer.h"
#include "kernels/kv_row.h"
#include "tensor/convert.h"
#include "tensor/float_types.h"
#include "testing/compare.h"
#include "testing/random.h"

namespace latent {
namespace {

using testing::Random;

std::string last_error() { return latent_attention_last_error(); }

template <class T>
T sized() {
  T value{};
  value.struct_size = sizeof value;
  return value;
}

int32_t code(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return LATENT_F32;
    case DType::kF16:
      return LATENT_F16;
    case DType::kF8E4M3:
      return LATENT_F8_E4M3;
    case DType::kU8:
      return LATENT_U8;
    default:
      return LATENT_BF16;
  }
}

struct Shapes {
  int num_heads = 5;
  int latent = 64;
  int rope = 16;
  int page_tokens = 16;
  DType q_dtype = DType::kBF16;
  DType cache_dtype = DType::kBF16;
  std::vector<int32_t> q_lens = {1, 3, 2, 0};
  std::vector<int32_t> kv_lens = {33, 3, 70, 0};
  int padded_rows = 2;
  float cache_scale = 0;

  ops::KvLayout layout() const {
    return {.kv_rank = latent, .rope_dim = rope, .page_tokens = page_tokens, .dtype = cache_dtype};
  }
  bool has_codes() const { return layout().format() != ops::KvFormat::kWide; }
  float code_scale() const { return cache_scale == 0 ? 1 : cache_scale; }
};

// A step with its operands: heads and pages lie apart, unused cache is NaN, page 0 is used, ids past a
// request's pages are absurd.
class Step {
 public:
  explicit Step(const Shapes& shapes, uint64_t seed = 1)
      : shapes_(shapes), random_(testing::test_seed(seed)) {
    q_starts_.resize(shapes.q_lens.size() + 1);
    std::partial_sum(shapes.q_lens.begin(), shapes.q_lens.end(), q_starts_.begin() + 1);
    rows_ = q_starts_.back() + shapes.padded_rows;
    query_ = random_.tensor(shapes.q_dtype, {rows_, shapes.num_heads, width() + kGap});
    fill_cache();
    out_ = *Tensor::create(shapes.q_dtype, {rows_, shapes.num_heads + 1, shapes.latent}, PoisonPattern::kNan);
    lse_ = *Tensor::create(DType::kF32, {rows_, shapes.num_heads + 1}, PoisonPattern::kNan);
  }

  latent_attention_desc desc() const {
    auto d = sized<latent_attention_desc>();
    d.form = LATENT_ABSORBED;
    d.memory = LATENT_HOST;
    d.num_heads = shapes_.num_heads;
    d.latent_dim = shapes_.latent;
    d.rope_dim = shapes_.rope;
    d.page_tokens = shapes_.page_tokens;
    d.q_dtype = code(shapes_.q_dtype);
    d.cache_dtype = code(shapes_.cache_dtype);
    return d;
  }
  latent_attention_limits limits() const {
    auto l = sized<latent_attention_limits>();
    l.max_tokens = static_cast<int32_t>(rows_);
    l.max_seqs = num_seqs();
    l.max_kv_len = 100;
    l.num_threads = 2;
    return l;
  }
  latent_attention_step step() const {
    auto s = sized<latent_attention_step>();
    s.num_seqs = num_seqs();
    s.q_starts = q_starts_.data();
    s.kv_lens = shapes_.kv_lens.data();
    return s;
  }
  latent_attention_operands operands() const {
    auto o = sized<latent_attention_operands>();
    o.num_tokens = static_cast<int32_t>(rows_);
    o.num_seqs = num_seqs();
    o.num_pages = static_cast<int32_t>(cache_.shape()[0]);
    o.max_pages = static_cast<int32_t>(table_.shape()[1]) - 1;
    o.softmax_scale = kScale;
    o.cache_scale = shapes_.cache_scale;
    o.q_nope = query_.view().raw();
    o.q_nope_token_stride = query_.view().stride(0);
    o.q_nope_head_stride = query_.view().stride(1);
    const auto bytes = static_cast<int64_t>(dtype_bytes(shapes_.q_dtype));
    o.q_pe = static_cast<std::byte*>(query_.view().raw()) + shapes_.latent * bytes;
    o.q_pe_token_stride = o.q_nope_token_stride;
    o.q_pe_head_stride = o.q_nope_head_stride;
    o.cache = cache_.view().raw();
    o.cache_page_stride = cache_.view().stride(0);
    o.cache_token_stride = cache_.view().stride(1);
    o.q_starts = q_starts_.data();
    o.kv_lens = shapes_.kv_lens.data();
    o.block_table = table_.data<int32_t>();
    o.block_table_stride = table_.view().stride(0);
    o.out = out_.view().raw();
    o.out_token_stride = out_.view().stride(0);
    o.out_head_stride = out_.view().stride(1);
    o.lse = lse_.data<float>();
    o.lse_token_stride = lse_.view().stride(0);
    o.lse_head_stride = lse_.view().stride(1);
    return o;
  }

  // What plain loops in double make of it: rows and their LSE, rows without keys 0 and -inf.
  void compute(Tensor* out, Tensor* lse) const {
    *out = *Tensor::create(DType::kF32, {rows_, shapes_.num_heads, shapes_.latent});
    *lse = *Tensor::create(DType::kF32, {rows_, shapes_.num_heads});
    std::fill_n(out->data<float>(), out->view().num_elements(), 0.0f);
    std::fill_n(lse->data<float>(), lse->view().num_elements(), -INFINITY);
    for (size_t s = 0; s < shapes_.q_lens.size(); ++s)
      for (int32_t t = q_starts_[s]; t < q_starts_[s + 1]; ++t)
        for (int h = 0; h < shapes_.num_heads; ++h)
          attend(s, t, h, shapes_.kv_lens[s] - (q_starts_[s + 1] - t) + 1, out, lse);
  }

  Tensor out_as_f32() const {
    Tensor f32 = *Tensor::create(DType::kF32, {rows_, shapes_.num_heads, shapes_.latent});
    for (int64_t t = 0; t < rows_; ++t)
      for (int64_t h = 0; h < shapes_.num_heads; ++h)
        for (int64_t i = 0; i < shapes_.latent; ++i)
          f32.view().row<float>(t)[h * shapes_.latent + i] = element_to_float(
              out_.view().raw(), out_.dtype(), t * out_.view().stride(0) + h * shapes_.latent + i);
    return f32;
  }
  // Output and LSE of the head that is not there.
  bool spare_head_is_untouched() const {
    for (int64_t t = 0; t < rows_; ++t)
      if (!std::isnan(lse_.view().row<float>(t)[shapes_.num_heads]) ||
          !std::isnan(element_to_float(out_.view().raw(), out_.dtype(), (t + 1) * out_.view().stride(0) - 1)))
        return false;
    return true;
  }

  int32_t num_seqs() const { return static_cast<int32_t>(shapes_.kv_lens.size()); }
  const Tensor& lse() const { return lse_; }
  int32_t* table() { return table_.data<int32_t>(); }
  std::vector<int32_t>& kv_lens() { return shapes_.kv_lens; }
  uint64_t seed() const { return random_.seed(); }

  static constexpr float kScale = 0.2f;

 private:
  static constexpr int kGap = 3;  // between heads

  int width() const { return shapes_.latent + shapes_.rope; }

  void fill_cache() {
    int64_t num_pages = 0;
    for (const int32_t len : shapes_.kv_lens)
      num_pages += (len + shapes_.page_tokens - 1) / shapes_.page_tokens;
    cache_ = *Tensor::create(shapes_.cache_dtype, {num_pages, shapes_.page_tokens, shapes_.layout().width()},
                             PoisonPattern::kNan);
    table_ = *Tensor::create(DType::kI32, {num_seqs(), 70 / shapes_.page_tokens + 3}, PoisonPattern::kNan);
    int32_t page = static_cast<int32_t>(num_pages);
    for (int s = 0; s < num_seqs(); ++s)
      for (int32_t token = 0; token < shapes_.kv_lens[static_cast<size_t>(s)]; token += shapes_.page_tokens) {
        table_.view().row<int32_t>(s)[token / shapes_.page_tokens] = --page;
        const int32_t rest = shapes_.kv_lens[static_cast<size_t>(s)] - token;
        const TensorView rows = cache_.view().at(page).slice(0, 0, std::min(shapes_.page_tokens, rest));
        if (shapes_.has_codes())
          fill_codes(rows);
        else
          random_.fill(rows);
      }
  }
  void fill_codes(const TensorView& rows) {
    const Tensor values = random_.tensor(DType::kF32, {rows.dim(0), width()});
    for (int64_t t = 0; t < rows.dim(0); ++t)
      kernels::encode_kv_columns(shapes_.layout(), values.view().row<float>(t), 0, width(),
                                 shapes_.code_scale(), rows.row<std::byte>(t));
  }

  double q(int64_t t, int64_t h, int64_t i) const {
    return element_to_float(query_.view().raw(), query_.dtype(),
                            t * query_.view().stride(0) + h * query_.view().stride(1) + i);
  }
  double key(size_t s, int64_t token, int64_t i) const {
    const int64_t page = table_.view().row<int32_t>(static_cast<int64_t>(s))[token / shapes_.page_tokens];
    const TensorView row = cache_.view().at(page).at(token % shapes_.page_tokens);
    if (shapes_.has_codes())
      return kernels::kv_element(shapes_.layout(), row.data<std::byte>(), shapes_.code_scale(),
                                 static_cast<int>(i));
    return element_to_float(row.raw(), cache_.dtype(), i);
  }

  void attend(size_t s, int64_t t, int64_t h, int num_keys, Tensor* out, Tensor* lse) const {
    if (num_keys <= 0) return;
    std::vector<double> weights(static_cast<size_t>(num_keys));
    for (int j = 0; j < num_keys; ++j) {
      double dot = 0;
      for (int i = 0; i < width(); ++i) dot += q(t, h, i) * key(s, j, i);
      weights[static_cast<size_t>(j)] = dot * kScale;
    }
    const double largest = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& w : weights) sum += w = std::exp(w - largest);
    for (int i = 0; i < shapes_.latent; ++i) {
      double value = 0;
      for (int j = 0; j < num_keys; ++j) value += weights[static_cast<size_t>(j)] * key(s, j, i);
      out->view().row<float>(t)[h * shapes_.latent + i] = static_cast<float>(value / sum);
    }
    lse->view().row<float>(t)[h] = static_cast<float>(largest + std::log(sum));
  }

  Shapes shapes_;
  Random random_;
  int64_t rows_ = 0;
  std::vector<int32_t> q_starts_;
  Tensor query_, cache_, table_, out_, lse_;
};

// A backend, a plan and a workspace for a step.
class Session {
 public:
  latent_status open(const Step& step, const char* backend) {
    const auto desc = step.desc();
    const auto limits = step.limits();
    if (const latent_status s = latent_attention_create(&desc, backend, &attention_); s != LATENT_OK)
      return s;
    size_t bytes = 0;
    if (const latent_status s = latent_attention_workspace_size(attention_, &limits, &bytes); s != LATENT_OK)
      return s;
    memory_ = *HostBuffer::create(bytes + 256, ElementKind::kFloat32, PoisonPattern::kNan);
    bytes_ = bytes;
    return latent_attention_plan_create(attention_, &limits, &plan_);
  }
  ~Session() {
    latent_attention_plan_destroy(plan_);
    latent_attention_destroy(attention_);
  }

  latent_status plan(const latent_attention_step& step) { return latent_attention_plan_step(plan_, &step); }
  latent_status run(const latent_attention_operands& o) {
    return latent_attention_run(plan_, &o, workspace(), bytes_, nullptr);
  }

  void* workspace() {
    return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(memory_.data()) + 255) / 256 * 256);
  }
  size_t bytes() const { return bytes_; }
  latent_attention* attention() const { return attention_; }
  latent_attention_plan* plan() const { return plan_; }

 private:
  latent_attention* attention_ = nullptr;
  latent_attention_plan* plan_ = nullptr;
  HostBuffer memory_;
  size_t bytes_ = 0;
};

void expect_right(const Shapes& shapes, const char* backend, double bound) {
  SCOPED_TRACE(backend);
  const Step step(shapes);
  Session session;
  ASSERT_EQ(session.open(step, backend), LATENT_OK) << last_error();
  ASSERT_EQ(session.plan(step.step()), LATENT_OK) << last_error();
  ASSERT_EQ(session.run(step.operands()), LATENT_OK) << last_error();
  Tensor want, want_lse;
  step.compute(&want, &want_lse);
  EXPECT_TRUE(testing::is_close(step.out_as_f32().view(), want.view(), bound, step.seed()));
  for (int64_t t = 0; t < want_lse.shape()[0]; ++t)
    for (int64_t h = 0; h < want_lse.shape()[1]; ++h) {
      const float x = step.lse().view().row<float>(t)[h], y = want_lse.view().row<float>(t)[h];
      if (std::isinf(y))
        EXPECT_EQ(x, y) << "row " << t;
      else
        EXPECT_NEAR(x, y, 1e-5 + 16 * 0x1p-24 * std::fabs(y)) << "row " << t << " seed " << step.seed();
    }
  EXPECT_TRUE(step.spare_head_is_untouched());
}

// fp32 sums of some hundred products; 16-bit outputs are rounded once (2^-9, 2^-12), and the bf16 kernel of a
// CPU rounds the weights, too (docs/notes/20261130-cpu-attention.md).
// contract: C1 C2 C9
TEST(AttentionC, values_strides_pages_and_padding_on_every_backend) {
  for (const char* backend : {"ref", "cpu"}) {
    expect_right({}, backend, 3.2e-3);
    expect_right({.q_dtype = DType::kF32, .cache_dtype = DType::kF32}, backend, 1e-5);
    expect_right({.q_dtype = DType::kF32, .cache_dtype = DType::kF16}, backend, 1e-5);
    expect_right({.num_heads = 1, .latent = 512, .rope = 0, .page_tokens = 1}, backend, 3.2e-3);
  }
  expect_right({.q_dtype = DType::kF16, .cache_dtype = DType::kF16}, "ref", 3e-4);
}

TEST(AttentionC, caches_of_codes_and_the_scale_of_one_of_them) {
  for (const char* backend : {"ref", "cpu"})
    for (const float scale : {0.0f, 0.3f}) {
      expect_right({.latent = 96, .cache_dtype = DType::kF8E4M3, .cache_scale = scale}, backend, 3.2e-3);
      expect_right({.latent = 256, .q_dtype = DType::kF32, .cache_dtype = DType::kU8, .cache_scale = scale},
                   backend, 1e-5);
    }
}

TEST(AttentionC, uniform_steps_need_no_starts) {
  const Step step({.q_lens = {2, 2, 2}, .kv_lens = {5, 40, 17}, .padded_rows = 0});
  Session session;
  ASSERT_EQ(session.open(step, "cpu"), LATENT_OK) << last_error();
  auto uniform = step.step();
  uniform.q_starts = nullptr;
  uniform.max_q_len = 2;
  ASSERT_EQ(session.plan(uniform), LATENT_OK) << last_error();
  EXPECT_EQ(session.run(step.operands()), LATENT_OK) << last_error();
}

TEST(AttentionC, the_multi_head_form_agrees_with_the_absorbed_one) {
  // With kv_b the identity, one head's keys and values are the latent itself.
  const Shapes shapes{.num_heads = 1, .q_dtype = DType::kF32, .cache_dtype = DType::kF32};
  Step step(shapes);
  std::vector<float> kv_b(static_cast<size_t>(2 * shapes.latent * shapes.latent), 0.0f);
  for (int i = 0; i < 2 * shapes.latent; ++i)
    kv_b[static_cast<size_t>(i * shapes.latent + i % shapes.latent)] = 1.0f;
  auto desc = step.desc();
  desc.form = LATENT_MULTI_HEAD;
  desc.nope_dim = desc.v_dim = shapes.latent;
  desc.kv_b_dtype = LATENT_F32;
  const auto limits = step.limits();
  auto o = step.operands();
  o.kv_b = kv_b.data();
  o.kv_b_row_stride = shapes.latent;
  Tensor want, want_lse;
  step.compute(&want, &want_lse);
  for (const char* backend : {"ref", "cpu"}) {
    latent_attention* attention = nullptr;
    latent_attention_plan* plan = nullptr;
    size_t bytes = 0;
    ASSERT_EQ(latent_attention_create(&desc, backend, &attention), LATENT_OK) << last_error();
    ASSERT_EQ(latent_attention_workspace_size(attention, &limits, &bytes), LATENT_OK) << last_error();
    ASSERT_EQ(latent_attention_plan_create(attention, &limits, &plan), LATENT_OK) << last_error();
    void* workspace = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    const auto lengths = step.step();
    ASSERT_EQ(latent_attention_plan_step(plan, &lengths), LATENT_OK) << last_error();
    EXPECT_EQ(latent_attention_run(plan, &o, workspace, bytes, nullptr), LATENT_OK) << last_error();
    EXPECT_TRUE(testing::is_close(step.out_as_f32().view(), want.view(), 1e-5, step.seed())) << backend;
    std::free(workspace);
    latent_attention_plan_destroy(plan);
    latent_attention_destroy(attention);
  }
}

TEST(AttentionC, every_backend_is_listed_with_a_reason_where_it_cannot_serve) {
  const Step step({});
  auto desc = step.desc();
  std::vector<std::string> names;
  for (int i = 0; i < latent_attention_num_backends(); ++i) {
    auto info = sized<latent_attention_backend_info>();
    ASSERT_EQ(latent_attention_query_backend(i, &desc, &info), LATENT_OK) << last_error();
    EXPECT_EQ(info.can_serve == 0, info.reason[0] != '\0') << info.name;
    EXPECT_TRUE(info.can_serve == 0 || info.is_built != 0) << info.name;
    names.push_back(info.name);
  }
  for (const char* name : {"ref", "cpu", "cuda_sm80", "cuda_sm90"})
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  auto info = sized<latent_attention_backend_info>();
  EXPECT_EQ(latent_attention_query_backend(99, &desc, &info), LATENT_INVALID_ARGUMENT);
  EXPECT_NE(last_error().find("99"), std::string::npos);
}

TEST(AttentionC, the_environment_forces_a_backend_unless_the_caller_does) {
  const Step step({});
  const auto desc = step.desc();
  ASSERT_EQ(setenv("LATENT_ATTENTION_BACKEND", "ref", 1), 0);
  for (const auto& [asked, got] :
       {std::pair<const char*, const char*>{nullptr, "ref"}, {"", "ref"}, {"cpu", "cpu"}}) {
    latent_attention* attention = nullptr;
    ASSERT_EQ(latent_attention_create(&desc, asked, &attention), LATENT_OK) << last_error();
    EXPECT_STREQ(latent_attention_backend(attention), got);
    latent_attention_destroy(attention);
  }
  unsetenv("LATENT_ATTENTION_BACKEND");
}

struct BadDesc {
  std::function<void(latent_attention_desc*)> spoil;
  const char* words;
  latent_status status = LATENT_INVALID_ARGUMENT;
};

// contract: C14 C15
TEST(AttentionC, a_bad_description_is_named) {
  const BadDesc cases[] = {
      {[](auto* d) { d->struct_size = 8; }, "struct_size 8"},
      {[](auto* d) { d->struct_size += 8; }, "older than the header", LATENT_UNSUPPORTED},
      {[](auto* d) { d->form = 0; }, "form 0"},
      {[](auto* d) { d->memory = 7; }, "memory 7"},
      {[](auto* d) { d->num_heads = 0; }, "num_heads 0"},
      {[](auto* d) { d->latent_dim = -512; }, "latent_dim -512"},
      {[](auto* d) { d->rope_dim = 63; }, "rope_dim 63"},
      {[](auto* d) { d->page_tokens = 0; }, "page_tokens 0"},
      {[](auto* d) { d->nope_dim = 128; }, "nope_dim 128"},
      {[](auto* d) { d->v_dim = 128; }, "v_dim 128"},
      {[](auto* d) { d->q_dtype = 0; }, "q_dtype 0"},
      {[](auto* d) { d->cache_dtype = 9; }, "cache_dtype 9"},
      {[](auto* d) { d->out_dtype = LATENT_F16; }, "out_dtype f16"},
      {[](auto* d) { d->q_dtype = LATENT_F8_E4M3, d->out_dtype = LATENT_F32; }, "f8_e4m3",
       LATENT_UNSUPPORTED},
      {[](auto* d) { d->q_dtype = LATENT_U8, d->out_dtype = LATENT_F32; }, "not u8", LATENT_UNSUPPORTED},
      {[](auto* d) { d->cache_dtype = LATENT_U8; }, "kv_rank 64 is no multiple of 128", LATENT_UNSUPPORTED},
      {[](auto* d) { d->memory = LATENT_DEVICE, d->rope_dim = 62; }, "cpu reads host memory",
       LATENT_UNSUPPORTED},
      {[](auto* d) { d->form = LATENT_MULTI_HEAD, d->v_dim = 8; }, "kv_b_dtype 0"},
      {[](auto* d) { d->form = LATENT_MULTI_HEAD, d->kv_b_dtype = LATENT_F32; }, "v_dim 0"},
  };
  const Step step({});
  for (const BadDesc& bad : cases) {
    SCOPED_TRACE(bad.words);
    latent_attention_desc desc = step.desc();
    bad.spoil(&desc);
    auto* attention = reinterpret_cast<latent_attention*>(1);
    EXPECT_EQ(latent_attention_create(&desc, nullptr, &attention), bad.status);
    EXPECT_EQ(attention, nullptr);
    EXPECT_NE(last_error().find(bad.words), std::string::npos) << last_error();
  }
  EXPECT_EQ(latent_attention_create(nullptr, nullptr, nullptr), LATENT_INVALID_ARGUMENT);
  latent_attention* attention = nullptr;
  EXPECT_EQ(latent_attention_create(nullptr, nullptr, &attention), LATENT_INVALID_ARGUMENT);
  EXPECT_NE(last_error().find("latent_attention_desc is NULL"), std::string::npos) << last_error();
  const auto desc = step.desc();
  EXPECT_EQ(latent_attention_create(&desc, "fast", &attention), LATENT_INVALID_ARGUMENT);
  EXPECT_NE(last_error().find("'fast'"), std::string::npos) << last_error();
}

// contract: C13 C15
TEST(AttentionC, limits_that_cannot_be_are_named) {
  const Step step({});
  const auto desc = step.desc();
  latent_attention* attention = nullptr;
  ASSERT_EQ(latent_attention_create(&desc, nullptr, &attention), LATENT_OK) << last_error();
  const std::pair<std::function<void(latent_attention_limits*)>, const char*> cases[] = {
      {[](auto* l) { l->struct_size = 0; }, "struct_size 0"},
      {[](auto* l) { l->max_tokens = 0; }, "max_tokens 0"},
      {[](auto* l) { l->max_tokens = 1 << 30; }, "max_tokens 1073741824"},
      {[](auto* l) { l->max_seqs = -1; }, "max_seqs -1"},
      {[](auto* l) { l->max_kv_len = 0; }, "max_kv_len 0"},
      {[](auto* l) { l->num_threads = -2; }, "num_threads -2"},
      {[](auto* l) { l->reserved = 5; }, "reserved 5"},
  };
  for (const auto& [spoil, words] : cases) {
    SCOPED_TRACE(words);
    auto limits = step.limits();
    spoil(&limits);
    size_t bytes = 0;
    latent_attention_plan* plan = nullptr;
    EXPECT_EQ(latent_attention_workspace_size(attention, &limits, &bytes), LATENT_INVALID_ARGUMENT);
    EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
    EXPECT_EQ(latent_attention_plan_create(attention, &limits, &plan), LATENT_INVALID_ARGUMENT);
    EXPECT_EQ(plan, nullptr);
  }
  const auto limits = step.limits();
  EXPECT_EQ(latent_attention_workspace_size(attention, &limits, nullptr), LATENT_INVALID_ARGUMENT);
  EXPECT_EQ(latent_attention_workspace_size(nullptr, &limits, nullptr), LATENT_INVALID_ARGUMENT);
  latent_attention_destroy(attention);
}

// contract: C7 C15
TEST(AttentionC, a_step_that_cannot_be_is_named) {
  const Step step({});
  Session session;
  ASSERT_EQ(session.open(step, nullptr), LATENT_OK) << last_error();
  static const int32_t late[] = {1, 2, 3, 4, 5}, falling[] = {0, 4, 2, 6, 6}, many[] = {0, 4, 5, 6, 99};
  static const int32_t negative[] = {33, -3, 70, 0}, long_one[] = {33, 3, 101, 0};
  const std::pair<std::function<void(latent_attention_step*)>, const char*> cases[] = {
      {[](auto* s) { s->struct_size = 4; }, "struct_size 4"},
      {[](auto* s) { s->num_seqs = 5; }, "num_seqs 5"},
      {[](auto* s) { s->num_seqs = -1; }, "num_seqs -1"},
      {[](auto* s) { s->kv_lens = nullptr; }, "kv_lens is NULL"},
      {[](auto* s) { s->q_starts = late; }, "q_starts[0] is 1"},
      {[](auto* s) { s->q_starts = falling; }, "q_starts[2] 2"},
      {[](auto* s) { s->q_starts = many; }, "q_starts[4] 99"},
      {[](auto* s) { s->q_starts = nullptr, s->max_q_len = -1; }, "max_q_len -1"},
      {[](auto* s) { s->q_starts = nullptr, s->max_q_len = 7; }, "4 requests of 7"},
      {[](auto* s) { s->kv_lens = negative; }, "kv_lens[1] -3"},
      {[](auto* s) { s->kv_lens = long_one; }, "kv_lens[2] 101"},
  };
  for (const auto& [spoil, words] : cases) {
    SCOPED_TRACE(words);
    auto bad = step.step();
    spoil(&bad);
    EXPECT_EQ(session.plan(bad), LATENT_INVALID_ARGUMENT);
    EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
    EXPECT_EQ(session.run(step.operands()), LATENT_INVALID_ARGUMENT);  // no plan is left behind
    EXPECT_NE(last_error().find("no step"), std::string::npos) << last_error();
  }
  EXPECT_EQ(latent_attention_plan_step(nullptr, nullptr), LATENT_INVALID_ARGUMENT);
}

// contract: C15
TEST(AttentionC, operands_that_cannot_be_are_named) {
  Step step({});
  Session session;
  ASSERT_EQ(session.open(step, nullptr), LATENT_OK) << last_error();
  ASSERT_EQ(session.plan(step.step()), LATENT_OK) << last_error();
  const auto odd = [](const void* p) {
    return static_cast<const void*>(static_cast<const std::byte*>(p) + 1);
  };
  static const int32_t other_lens[] = {33, 3, 69, 0}, other_starts[] = {0, 1, 4, 5, 5};
  const std::pair<std::function<void(latent_attention_operands*)>, const char*> cases[] = {
      {[](auto* o) { o->struct_size = 1; }, "struct_size 1"},
      {[](auto* o) { o->num_tokens = 1000; }, "num_tokens 1000"},
      {[](auto* o) { o->num_tokens = -4; }, "num_tokens is -4"},
      {[](auto* o) { o->num_tokens = 3; }, "num_tokens 3: the step has 6"},
      {[](auto* o) { o->num_seqs = 3; }, "num_seqs 3"},
      {[](auto* o) { o->num_pages = -1; }, "num_pages is -1"},
      {[](auto* o) { o->max_pages = 4; }, "kv_lens[2] 70 needs 5 pages"},
      {[](auto* o) { o->softmax_scale = NAN; }, "softmax_scale is nan"},
      {[](auto* o) { o->cache_scale = -1; }, "cache_scale is -1"},
      {[](auto* o) { o->cache_scale = NAN; }, "cache_scale is nan"},
      {[](auto* o) { o->q_nope = nullptr; }, "q_nope is NULL"},
      {[](auto* o) { o->q_pe = nullptr; }, "q_pe is NULL"},
      {[](auto* o) { o->cache = nullptr; }, "cache is NULL"},
      {[](auto* o) { o->out = nullptr; }, "out is NULL"},
      {[](auto* o) { o->q_starts = nullptr; }, "q_starts is NULL"},
      {[](auto* o) { o->kv_lens = nullptr; }, "kv_lens is NULL"},
      {[](auto* o) { o->block_table = nullptr; }, "block_table is NULL"},
      {[&](auto* o) { o->cache = odd(o->cache); }, "cache at 0x"},
      {[](auto* o) { o->q_nope_head_stride = -1; }, "q_nope has the stride -1"},
      {[](auto* o) { o->block_table_stride = -2; }, "block_table has the stride -2"},
      {[](auto* o) { o->kv_lens = other_lens; }, "kv_lens[2] is 69"},
      {[](auto* o) { o->q_starts = other_starts; }, "q_starts[3] is 5"},
      {[](auto* o) { o->num_pages = 3; }, "and the cache has 3 pages"},
  };
  for (const auto& [spoil, words] : cases) {
    SCOPED_TRACE(words);
    auto bad = step.operands();
    spoil(&bad);
    EXPECT_EQ(session.run(bad), LATENT_INVALID_ARGUMENT);
    EXPECT_NE(last_error().find(words), std::string::npos) << last_error();
  }
  const int32_t page = step.table()[0];
  step.table()[0] = -1;
  EXPECT_EQ(session.run(step.operands()), LATENT_INVALID_ARGUMENT);
  EXPECT_NE(last_error().find("block_table[0][0] is -1"), std::string::npos) << last_error();
  step.table()[0] = page;
  EXPECT_EQ(session.run(step.operands()), LATENT_OK) << last_error();
}

TEST(AttentionC, a_workspace_that_will_not_do_is_refused) {
  const Step step({});
  Session session;
  ASSERT_EQ(session.open(step, "ref"), LATENT_OK) << last_error();
  ASSERT_EQ(session.plan(step.step()), LATENT_OK) << last_error();
  ASSERT_GT(session.bytes(), 0u);
  const auto o = step.operands();
  EXPECT_EQ(latent_attention_run(session.plan(), &o, session.workspace(), session.bytes() - 1, nullptr),
            LATENT_INVALID_ARGUMENT);
  EXPECT_NE(last_error().find("workspace_bytes " + std::to_string(session.bytes() - 1)), std::string::npos);
  EXPECT_EQ(latent_attention_run(session.plan(), &o, nullptr, session.bytes(), nullptr),
            LATENT_INVALID_ARGUMENT);
  auto* off = static_cast<std::byte*>(session.workspace()) + 64;
  EXPECT_EQ(latent_attention_run(session.plan(), &o, off, session.bytes(), nullptr), LATENT_INVALID_ARGUMENT);
  EXPECT_NE(last_error().find("256"), std::string::npos) << last_error();
}

TEST(AttentionC, a_plan_serves_every_step_within_its_limits) {
  Step step({});
  Session session;
  ASSERT_EQ(session.open(step, "cpu"), LATENT_OK) << last_error();
  EXPECT_EQ(latent_attention_prepare_capture(session.plan()), LATENT_INVALID_ARGUMENT);
  ASSERT_EQ(session.plan(step.step()), LATENT_OK) << last_error();
  EXPECT_EQ(latent_attention_prepare_capture(session.plan()), LATENT_OK) << last_error();
  step.kv_lens() = {10, 3, 50, 0};
  const auto shorter = step.step();
  EXPECT_EQ(latent_attention_prepare_replay(session.plan(), &shorter), LATENT_OK) << last_error();
  EXPECT_EQ(session.run(step.operands()), LATENT_OK) << last_error();
  Tensor want, want_lse;
  step.compute(&want, &want_lse);
  EXPECT_TRUE(testing::is_close(step.out_as_f32().view(), want.view(), 3.2e-3, step.seed()));
}

TEST(AttentionC, an_error_belongs_to_its_thread) {
  EXPECT_EQ(latent_attention_create(nullptr, nullptr, nullptr), LATENT_INVALID_ARGUMENT);
  EXPECT_FALSE(last_error().empty());
  std::string theirs = "unset";
  std::thread([&] { theirs = last_error(); }).join();
  EXPECT_EQ(theirs, "");
}

}  // namespace
}  // namespace latent
