// SPDX-License-Identifier: Apache-2.0
#include "cli/fixture.h"

#include "runtime/tiny_tokenizer.h"

namespace latent::cli {

std::unique_ptr<testing::TempFolder> TinyModelTest::folder_;

Arguments operator+(Arguments a, const Arguments& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Json parse(const std::string& text) {
  Json json = Json::parse(text, nullptr, false);
  EXPECT_FALSE(json.is_discarded()) << text;
  return json;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string ids_text(const std::vector<int32_t>& ids) { return Json(ids).dump(); }

std::filesystem::path TinyModelTest::golden(const std::string& name) {
  return std::filesystem::path(LATENT_SOURCE_DIR) / "tests/golden/models" / name;
}

void TinyModelTest::SetUpTestSuite() {
  folder_ = std::make_unique<testing::TempFolder>();
  std::filesystem::copy(model(), text_model(), std::filesystem::copy_options::recursive);
  write("model/tokenizer.json", runtime::tiny_tokenizer_json(kVocab));
  write(
      "model/tokenizer_config.json",
      R"({"bos_token": "<100>", "add_bos_token": true, "chat_template": "{{ bos_token }}{% for m in messages %}<101>)"
      R"({{ m.role }}: {{ m.content }}<102>{% endfor %}<103>"})");
}

std::vector<int32_t> TinyModelTest::some_ids(int count) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back((i * 37 + 11) % kVocab);
  return ids;
}

}  // namespace latent::cli
