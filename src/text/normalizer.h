// SPDX-License-Identifier: Apache-2.0
// What a tokenizer does to text before it looks for words: Unicode normal forms and plain replacements.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/regex.h"

namespace latent::text {

enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

struct PrependText {
  std::string prefix;  // in front of any text that is not empty
};

struct ReplaceText {
  Regex pattern;
  std::string content;  // taken literally
};

// Immutable; the steps run in order.
class Normalizer {
 public:
  using Step = std::variant<UnicodeForm, PrependText, ReplaceText>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  bool is_identity() const { return steps_.empty(); }

  // `text` must be valid UTF-8.
  Result<std::string> apply(std::string_view text) const;

 private:
  std::vector<Step> steps_;
};

}  // namespace latent::text
