// SPDX-License-Identifier: Apache-2.0
#include "text/normalizer.h"

#include <gtest/gtest.h>

#include "text/mini_tokenizers.h"

namespace latent::text {
namespace {

// Normal forms come from a library; this only shows that each name means its form.
TEST(Normalizer, normal_forms_do_what_their_names_say) {
  const std::string text = "\u00e9e\u0301\ufb01";  // é composed, é decomposed, the ligature fi
  const std::vector<std::pair<std::string, std::string>> forms = {{"NFC", "\u00e9\u00e9\ufb01"},
                                                                  {"NFD", "e\u0301e\u0301\ufb01"},
                                                                  {"NFKC", "\u00e9\u00e9fi"},
                                                                  {"NFKD", "e\u0301e\u0301fi"}};
  for (const auto& [name, expected] : forms) {
    const auto tokenizer = make_tokenizer({.normalizer = R"({"type": ")" + name + R"("})"});
    EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, text), false), expected) << name;
  }
}

TEST(Normalizer, replace_normalizer_takes_strings_and_patterns) {
  const auto by_string =
      make_tokenizer({.normalizer = R"({"type": "Replace", "pattern": {"String": "."}, "content": "!"})"});
  EXPECT_EQ(by_string->decode(ids_of(*by_string, "a.b."), false), "a!b!");
  const auto by_regex =
      make_tokenizer({.normalizer = R"({"type": "Replace", "pattern": {"Regex": " +"}, "content": "_"})"});
  EXPECT_EQ(by_regex->decode(ids_of(*by_regex, "a   b c"), false), "a_b_c");
}

}  // namespace
}  // namespace latent::text
