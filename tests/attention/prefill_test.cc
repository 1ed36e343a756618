// SPDX-License-Identifier: Apache-2.0
#include "attention/prefill.h"

#include <gtest/gtest.h>

#include <string>

namespace latent {
namespace {

attention::PrefillDesc usual(bool on_device) {
  return {.attrs = {.num_heads = 2, .nope_dim = 128, .rope_dim = 64, .v_dim = 128}, .on_device = on_device};
}

TEST(SelectPrefill, ends_with_the_reference_which_serves_all_host_memory) {
  EXPECT_STREQ(attention::prefill_backends().back()->name(), "ref");
  const auto found = attention::select_prefill(usual(false));
  ASSERT_TRUE(found.ok());
  EXPECT_STREQ((*found)->name(), "ref");
}

TEST(SelectPrefill, names_what_it_asked_and_why_each_refused) {
  const auto unknown = attention::select_prefill(usual(false), "cuda_sm70");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("cuda_sm70"), std::string::npos);
  const auto forced = attention::select_prefill(usual(true), "ref");
  ASSERT_FALSE(forced.ok());
  EXPECT_NE(forced.error().message.find("device memory"), std::string::npos);
  const auto empty = attention::select_prefill({});
  ASSERT_FALSE(empty.ok());
  EXPECT_NE(empty.error().message.find("ref"), std::string::npos);
}

}  // namespace
}  // namespace latent
