// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "attention/backend.h"

namespace latent {
namespace {

attention::MlaDesc v2_lite() {
  return {.attrs = {.form = ops::AttentionForm::kAbsorbed,
                    .num_heads = 16,
                    .kv_rank = 512,
                    .rope_dim = 64,
                    .nope_dim = 128,
                    .v_dim = 128,
                    .page_tokens = 64,
                    .softmax_scale = 0.1f}};
}

TEST(SelectBackend, the_reference_is_last_and_serves_everything_well_formed) {
  EXPECT_STREQ(attention::backends().back()->name(), "ref");
  EXPECT_TRUE(attention::select(v2_lite()).ok());
  attention::MlaDesc odd = v2_lite();
  odd.attrs = {.form = ops::AttentionForm::kMultiHead,
               .num_heads = 3,
               .kv_rank = 7,
               .rope_dim = 2,
               .nope_dim = 5,
               .v_dim = 1,
               .page_tokens = 1,
               .softmax_scale = 1};
  EXPECT_TRUE(attention::select(odd, "ref").ok());
}

TEST(SelectBackend, every_backend_can_be_forced_by_its_name) {
  for (const attention::Backend* backend : attention::backends()) {
    if (backend->supports(v2_lite())) continue;
    const auto chosen = attention::select(v2_lite(), backend->name());
    ASSERT_TRUE(chosen.ok()) << chosen.error().message;
    EXPECT_EQ(*chosen, backend);
  }
}

// contract: C14
TEST(SelectBackend, an_unknown_name_lists_the_names) {
  const auto chosen = attention::select(v2_lite(), "flash");
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(chosen.error().message.find("'flash'"), std::string::npos) << chosen.error().message;
  EXPECT_NE(chosen.error().message.find("ref"), std::string::npos) << chosen.error().message;
}

// contract: C14
TEST(SelectBackend, a_backend_that_was_not_built_says_so) {
  for (const attention::AbsentBackend& absent : attention::absent_backends()) {
    const auto chosen = attention::select(v2_lite(), absent.name);
    ASSERT_FALSE(chosen.ok());
    EXPECT_EQ(chosen.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(chosen.error().message.find("was not built"), std::string::npos) << chosen.error().message;
  }
}

// contract: C14
TEST(SelectBackend, where_none_serves_every_reason_is_given) {
  attention::MlaDesc nobody = v2_lite();
  nobody.on_device = true;
  nobody.attrs.kv_rank = 7;
  const auto chosen = attention::select(nobody);
  ASSERT_FALSE(chosen.ok());
  EXPECT_EQ(chosen.error().code, ErrorCode::kUnsupported);
  for (const attention::Backend* backend : attention::backends())
    EXPECT_NE(chosen.error().message.find(backend->name()), std::string::npos) << chosen.error().message;
  for (const attention::AbsentBackend& absent : attention::absent_backends())
    EXPECT_NE(chosen.error().message.find(absent.name), std::string::npos) << chosen.error().message;
}

// contract: C14
TEST(SelectBackend, a_backend_on_a_cpu_refuses_device_memory) {
  attention::MlaDesc on_device = v2_lite();
  on_device.on_device = true;
  for (const std::string name : {"cpu", "ref"}) {
    const auto chosen = attention::select(on_device, name);
    ASSERT_FALSE(chosen.ok());
    EXPECT_NE(chosen.error().message.find("device memory"), std::string::npos) << chosen.error().message;
  }
}

// contract: C14
TEST(SelectBackend, a_refusal_says_which_value_is_wrong) {
  attention::MlaDesc odd_rope = v2_lite();
  odd_rope.attrs.rope_dim = 7;
  attention::MlaDesc wrong_cache = v2_lite();
  wrong_cache.cache_dtype = DType::kI64;
  attention::MlaDesc no_heads = v2_lite();
  no_heads.attrs.num_heads = 0;
  const std::pair<attention::MlaDesc, const char*> cases[] = {
      {odd_rope, "rope_dim 7"}, {wrong_cache, "i64"}, {no_heads, "0 heads"}};
  for (const auto& [desc, words] : cases) {
    for (const std::string name : {"", "ref"}) {
      const auto chosen = attention::select(desc, name);
      ASSERT_FALSE(chosen.ok());
      EXPECT_EQ(chosen.error().code, ErrorCode::kUnsupported);
      EXPECT_NE(chosen.error().message.find(words), std::string::npos) << chosen.error().message;
    }
  }
}

}  // namespace
}  // namespace latent
