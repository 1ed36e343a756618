// SPDX-License-Identifier: Apache-2.0
// Decode on the device against the reference on the same inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "attention/backends/cuda/device_run.h"
#include "attention/backends/cuda_common/device_info.h"
#include "tensor/convert.h"
#include "testing/compare.h"
#include "testing/poison.h"
#include "testing/random.h"

namespace latent::attention {
namespace {

using testing::Random;

struct CaseShape {
  int num_heads = 16;
  int kv_rank = 512;
  int rope_dim = 64;
  int page_tokens = 64;
  DType dtype = DType::kBF16;
  std::vector<int> q_lens;
  std::vector<int> kv_lens;
  int padded_rows = 0;
  float query_scale = 1.0f;
};

// Host tensors of one call. The cache is NaN wherever no token lives; table entries past a request are
// absurd.
class Case {
 public:
  Case(const CaseShape& shape, uint64_t seed) : shape_(shape), random_(seed) {
    const auto num_seqs = static_cast<int64_t>(shape.kv_lens.size());
    std::vector<int32_t> starts = {0};
    for (const int q : shape.q_lens) starts.push_back(starts.back() + q);
    const int64_t rows = starts.back() + shape.padded_rows;
    const int longest = *std::max_element(shape.kv_lens.begin(), shape.kv_lens.end());
    const int64_t columns = longest / shape.page_tokens + 2;
    int64_t num_pages = 1;
    for (const int len : shape.kv_lens) num_pages += (len + shape.page_tokens - 1) / shape.page_tokens;

    cache_ = *Tensor::create(shape.dtype, {num_pages, shape.page_tokens, shape.kv_rank + shape.rope_dim},
                             PoisonPattern::kNan);
    table_ = *Tensor::create(DType::kI32, {num_seqs, columns}, PoisonPattern::kNan);
    fill_cache();
    q_nope_ = random_.tensor(shape.dtype, {rows, shape.num_heads, shape.kv_rank}, testing::Values::kNormal,
                             shape.query_scale);
    q_pe_ = random_.tensor(shape.dtype, {rows, shape.num_heads, shape.rope_dim}, testing::Values::kNormal,
                           shape.query_scale);
    starts_ = *Tensor::create(DType::kI32, {num_seqs + 1});
    std::copy(starts.begin(), starts.end(), starts_.data<int32_t>());
    lens_ = *Tensor::create(DType::kI32, {num_seqs});
    std::copy(shape.kv_lens.begin(), shape.kv_lens.end(), lens_.data<int32_t>());
    out_ = *Tensor::create(shape.dtype, {rows, shape.num_heads, shape.kv_rank});
    lse_ = *Tensor::create(DType::kF32, {rows, shape.num_heads});
  }

  ops::MlaAttentionParams params() const {
    return {.q_nope = q_nope_.view(),
            .q_pe = q_pe_.view(),
            .cache = cache_.view(),
            .batch = {.q_starts = starts_.view(), .kv_lens = lens_.view(), .block_table = table_.view()},
            .out = out_.view(),
            .lse = lse_.view(),
            .attrs = {.form = ops::AttentionForm::kAbsorbed,
                      .num_heads = shape_.num_heads,
                      .kv_rank = shape_.kv_rank,
                      .rope_dim = shape_.rope_dim,
                      .nope_dim = 128,
                      .v_dim = 128,
                      .page_tokens = shape_.page_tokens,
                      .softmax_scale = 1.0f / 24}};
  }
  Limits limits() const {
    return {.max_tokens = static_cast<int>(out_.shape()[0]),
            .max_seqs = static_cast<int>(shape_.kv_lens.size()),
            .max_kv_len = *std::max_element(shape_.kv_lens.begin(), shape_.kv_lens.end()) + 1};
  }

  void run_reference() {
    const Backend& ref = *backends().back();
    const MlaDesc desc{.attrs = params().attrs, .q_dtype = shape_.dtype, .cache_dtype = shape_.dtype};
    HostBuffer scratch = *HostBuffer::create(ref.workspace_bytes(desc, limits()));
    // fp32 results, so that only the device's error is measured.
    want_ = *Tensor::create(DType::kF32, out_.shape());
    want_lse_ = *Tensor::create(DType::kF32, lse_.shape());
    ops::MlaAttentionParams p = params();
    p.out = want_.view();
    p.lse = want_lse_.view();
    ref.run(p, {}, {.workspace = {scratch.data(), scratch.size_bytes()}});
  }

  const TensorView& out() const { return out_.view(); }
  const TensorView& lse() const { return lse_.view(); }
  const TensorView& want() const { return want_.view(); }
  const TensorView& want_lse() const { return want_lse_.view(); }

 private:
  void fill_cache() {
    std::vector<int32_t> pages(static_cast<size_t>(cache_.shape()[0] - 1));
    std::iota(pages.begin(), pages.end(), 1);
    std::mt19937_64 shuffler(random_.seed());
    std::shuffle(pages.begin(), pages.end(), shuffler);
    size_t next = 0;
    for (size_t seq = 0; seq < shape_.kv_lens.size(); ++seq)
      for (int token = 0; token < shape_.kv_lens[seq]; token += shape_.page_tokens) {
        const int32_t page = pages[next++];
        table_.view().row<int32_t>(static_cast<int64_t>(seq))[token / shape_.page_tokens] = page;
        random_.fill(
            cache_.view().at(page).slice(0, 0, std::min(shape_.page_tokens, shape_.kv_lens[seq] - token)));
      }
  }

  CaseShape shape_;
  Random random_;
  Tensor cache_, table_, q_nope_, q_pe_, starts_, lens_, out_, lse_, want_, want_lse_;
};

class CudaDecode : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::device_info().present) GTEST_SKIP() << "no NVIDIA GPU here";
  }

  // Values by the contract's bound, LSE too; the same bits under every poison pattern and from run to run.
  void expect_right(const Backend& backend, const CaseShape& shape, double bound = 2.2e-3) {
    const uint64_t seed = testing::test_seed(++salt_);
    Case c(shape, seed);
    c.run_reference();
    std::vector<Tensor> outs, lses;
    for (const PoisonPattern pattern : testing::kPoisonPatterns) {
      testing::poison(c.out(), pattern);
      testing::poison(c.lse(), pattern);
      testing::run_on_device(backend, c.params(), c.limits(), {.pattern = pattern, .repeats = 2});
      Tensor out = *Tensor::create(c.out().dtype(), c.out().shape());
      Tensor lse = *Tensor::create(DType::kF32, c.lse().shape());
      copy_elements(c.out(), out.view());
      copy_elements(c.lse(), lse.view());
      if (!outs.empty()) {
        EXPECT_TRUE(testing::same_bits(out.view(), outs.front().view()));
        EXPECT_TRUE(testing::same_bits(lse.view(), lses.front().view()));
      }
      outs.push_back(std::move(out));
      lses.push_back(std::move(lse));
    }
    Tensor got = *Tensor::create(DType::kF32, c.out().shape());
    convert_elements(outs[0].view().raw(), shape.dtype, got.view().raw(), DType::kF32,
                     got.view().num_elements());
    EXPECT_TRUE(testing::is_close(got.view(), c.want(), bound, seed));
    const auto* lse = lses[0].data<float>();
    const auto* want = c.want_lse().data<float>();
    for (int64_t i = 0; i < lses[0].view().num_elements(); ++i) {
      if (std::isinf(want[i]))
        EXPECT_EQ(lse[i], want[i]) << i;
      else
        EXPECT_NEAR(lse[i], want[i], 1e-5 + 16 * 0x1p-24 * std::fabs(want[i])) << i << " seed " << seed;
    }
  }

  static std::vector<const Backend*> device_backends() {
    std::vector<const Backend*> found;
    for (const Backend* b : backends())
      if (std::string_view(b->name()).starts_with("cuda")) found.push_back(b);
    return found;
  }

  uint64_t salt_ = 0;
};

TEST_F(CudaDecode, any_number_of_heads) {
  for (const Backend* b : device_backends())
    for (const int heads : {1, 2, 5, 8, 16, 20, 40, 64, 128}) {
      SCOPED_TRACE(std::string(b->name()) + " heads " + std::to_string(heads));
      expect_right(*b, {.num_heads = heads, .q_lens = {1, 1, 1}, .kv_lens = {1, 130, 700}});
    }
}

TEST_F(CudaDecode, any_length) {
  std::vector<int> lens(200), ones(200, 1);
  std::iota(lens.begin(), lens.end(), 0);
  for (const Backend* b : device_backends())
    expect_right(*b, {.num_heads = 5, .q_lens = ones, .kv_lens = lens});
}

TEST_F(CudaDecode, long_requests_are_split_and_merged) {
  for (const Backend* b : device_backends())
    for (const int len : {1000, 4096, 8191, 33000})
      expect_right(*b, {.num_heads = 16, .q_lens = {1}, .kv_lens = {len}});
}

TEST_F(CudaDecode, ragged_steps_of_several_tokens) {
  for (const Backend* b : device_backends())
    for (const int heads : {3, 16, 128})
      expect_right(*b, {.num_heads = heads,
                        .q_lens = {1, 8, 2, 3, 5, 0},
                        .kv_lens = {900, 8, 2000, 3, 77, 0},
                        .padded_rows = 9});
}

TEST_F(CudaDecode, page_sizes_and_types_and_widths) {
  for (const Backend* b : device_backends()) {
    for (const int page : {16, 32, 64, 128})
      expect_right(*b, {.page_tokens = page, .q_lens = {1, 2}, .kv_lens = {300, 1111}});
    for (const int rank : {256, 512})
      for (const int rope : {0, 32, 64}) {
        SCOPED_TRACE(std::to_string(rank) + " + " + std::to_string(rope));
        expect_right(
            *b, {.num_heads = 8, .kv_rank = rank, .rope_dim = rope, .q_lens = {1, 1}, .kv_lens = {77, 555}});
        expect_right(*b, {.num_heads = 8,
                          .kv_rank = rank,
                          .rope_dim = rope,
                          .dtype = DType::kF16,
                          .q_lens = {1, 1},
                          .kv_lens = {77, 555}});
      }
  }
}

TEST_F(CudaDecode, large_logits) {
  // Queries of deviation 100: logits of a few hundred to thousands.
  for (const Backend* b : device_backends())
    expect_right(*b, {.q_lens = {1, 1}, .kv_lens = {256, 3000}, .query_scale = 100.0f},
                 2.2e-3 + 16 * 0x1p-24 * 1e4);
}

TEST_F(CudaDecode, nothing_but_padding) {
  for (const Backend* b : device_backends())
    expect_right(*b, {.q_lens = {0, 0}, .kv_lens = {0, 0}, .padded_rows = 300});
}

TEST_F(CudaDecode, random_batches) {
  Random random(testing::test_seed(99));
  for (const Backend* b : device_backends())
    for (int i = 0; i < 30; ++i) {
      CaseShape shape{.num_heads = static_cast<int>(random.integer(1, 40))};
      const int64_t seqs = random.integer(1, 70);
      for (int64_t s = 0; s < seqs; ++s) {
        shape.q_lens.push_back(static_cast<int>(random.integer(0, 3)));
        shape.kv_lens.push_back(shape.q_lens.back() == 0 ? 0 : static_cast<int>(random.integer(1, 1500)));
      }
      shape.padded_rows = static_cast<int>(random.integer(0, 20));
      expect_right(*b, shape);
    }
}

}  // namespace
}  // namespace latent::attention
