// SPDX-License-Identifier: Apache-2.0
// Ids and texts as Hugging Face `tokenizers` gives them, recorded by
// tools/fixtures/make_tokenizer_fixtures.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "text/test_data.h"
#include "text/tokenizer.h"

namespace latent::text {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<int32_t>;
namespace fs = std::filesystem;

const fs::path kGolden = fs::path(LATENT_SOURCE_DIR) / "tests/golden/tokenizer";

Json read_json(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return Json::parse(file);
}

const Json& corpus() {
  static const Json json = read_json(kGolden / "corpus.json");
  return json;
}

fs::path tokenizer_folder(const std::string& name) {
  if (name == "deepseek-v3") return deepseek_v3_folder();
  if (name == "tiny") return fs::path(LATENT_SOURCE_DIR) / "models/tiny";
  return kGolden / name;
}

struct Answer {
  Ids ids, plain;
  std::string text, text_without_special;

  bool operator==(const Answer&) const = default;
};

Answer answer_of(const Tokenizer& tokenizer, const std::string& text) {
  Answer answer;
  answer.ids = *tokenizer.encode(text, SpecialTokens::kParse);
  answer.plain = *tokenizer.encode(text, SpecialTokens::kAsText);
  answer.text = tokenizer.decode(answer.ids, false);
  answer.text_without_special = tokenizer.decode(answer.ids, true);
  return answer;
}

// 32-bit FNV-1a, as `digest` of the script.
class Digest {
 public:
  void add(std::string_view bytes) {
    for (const char byte : bytes) value_ = (value_ ^ static_cast<uint8_t>(byte)) * 0x01000193u;
  }
  void add(const Ids& ids) {
    for (const int32_t id : ids)
      for (const int shift : {0, 8, 16, 24}) add(std::string(1, static_cast<char>(id >> shift)));
  }
  std::string text() const { return fmt::format("{:08x}", value_); }

 private:
  uint32_t value_ = 0x811C9DC5u;
};

std::string digest_of(const Answer& answer) {
  const std::string separator(4, '\xFF');
  Digest digest;
  digest.add(answer.ids);
  digest.add(separator);
  digest.add(answer.plain);
  digest.add(separator);
  digest.add(answer.text);
  digest.add(separator);
  digest.add(answer.text_without_special);
  return digest.text();
}

std::string unhex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

class TokenizerGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const fs::path folder = tokenizer_folder(GetParam());
    const fs::path fixture = kGolden / (GetParam() + ".json");
    if (!fs::exists(fixture)) GTEST_SKIP() << "no recorded ids in " << fixture;
    if (folder.empty() || !fs::exists(folder)) GTEST_SKIP() << "tokenizer absent; run scripts/setup";
    auto loaded = Tokenizer::load(folder);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    tokenizer_ = std::move(*loaded);
    recorded_ = read_json(fixture);
  }

  std::unique_ptr<Tokenizer> tokenizer_;
  Json recorded_;
};

TEST_P(TokenizerGolden, recorded_texts_have_the_recorded_ids) {
  const Json& full = recorded_["full"];
  ASSERT_GE(full.size(), 200u);
  for (size_t i = 0; i < full.size(); ++i) {
    const std::string text = corpus()["texts"][i];
    const Answer ours = answer_of(*tokenizer_, text);
    EXPECT_EQ(ours.ids, full[i]["ids"].get<Ids>()) << "text " << i << ": " << corpus()["texts"][i];
    EXPECT_EQ(ours.plain, full[i]["plain"].get<Ids>()) << "text " << i << ": " << corpus()["texts"][i];
    EXPECT_EQ(ours.text, full[i]["text"].get<std::string>()) << "text " << i;
    EXPECT_EQ(ours.text_without_special, full[i]["text_without_special"].get<std::string>()) << "text " << i;
  }
}

TEST_P(TokenizerGolden, every_text_has_the_recorded_hash) {
  const std::string hashes = recorded_["hashes"];
  const Json& texts = corpus()["texts"];
  ASSERT_GE(texts.size(), 10000u);
  ASSERT_EQ(hashes.size(), 8 * texts.size());
  int wrong = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const Answer ours = answer_of(*tokenizer_, texts[i]);
    if (digest_of(ours) == hashes.substr(8 * i, 8)) continue;
    if (++wrong <= 5)
      ADD_FAILURE() << "text " << i << ": " << texts[i] << "\n  ids " << Json(ours.ids) << "\n  plain "
                    << Json(ours.plain);
  }
  EXPECT_EQ(wrong, 0);
}

TEST_P(TokenizerGolden, bytes_that_are_not_utf8_have_the_ids_of_their_repair) {
  const Json& damaged = corpus()["damaged"];
  ASSERT_EQ(recorded_["damaged"].size(), damaged.size());
  for (size_t i = 0; i < damaged.size(); ++i)
    EXPECT_EQ(*tokenizer_->encode(unhex(damaged[i]), SpecialTokens::kParse),
              recorded_["damaged"][i].get<Ids>())
        << damaged[i];
}

INSTANTIATE_TEST_SUITE_P(Families, TokenizerGolden,
                         testing::Values("deepseek-v2-like", "glm-4-like", "minicpm3-like", "kimi-like",
                                         "deepseek-v3", "tiny"),
                         [](const testing::TestParamInfo<std::string>& family) {
                           std::string name = family.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// A few facts of the real thing, known without any record.
TEST(DeepSeekV3, its_own_tokenizer_loads_and_behaves) {
  const fs::path folder = deepseek_v3_folder();
  if (folder.empty()) GTEST_SKIP() << "DeepSeek-V3's tokenizer is absent; run scripts/setup";
  const auto loaded = Tokenizer::load(folder);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const Tokenizer& tokenizer = **loaded;
  EXPECT_EQ(tokenizer.vocab_size(), 128815);
  EXPECT_EQ(tokenizer.bos_id(), 0);
  EXPECT_EQ(tokenizer.eos_ids()[0], 1);
  EXPECT_TRUE(tokenizer.adds_bos());
  EXPECT_EQ(tokenizer.encode("501", SpecialTokens::kParse)->size(), 1u);
  EXPECT_EQ(tokenizer.encode("1234567", SpecialTokens::kParse)->size(), 3u);
  EXPECT_EQ(tokenizer.encode_prompt("hi")->front(), 0);
  const Ids chat = *tokenizer.encode_prompt("<｜begin▁of▁sentence｜><｜User｜>hi<｜Assistant｜>");
  EXPECT_EQ(chat.size(), 4u);
  EXPECT_EQ(std::count(chat.begin(), chat.end(), 0), 1);
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_added(id)) continue;
    const Ids as_text = *tokenizer.encode(tokenizer.token_bytes(id), SpecialTokens::kAsText);
    for (const int32_t got : as_text) EXPECT_FALSE(tokenizer.is_added(got)) << tokenizer.token_bytes(id);
    EXPECT_EQ(*tokenizer.encode(tokenizer.token_bytes(id), SpecialTokens::kParse), Ids{id});
  }
}

}  // namespace
}  // namespace latent::text
