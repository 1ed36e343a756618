// SPDX-License-Identifier: Apache-2.0
// Tokens of a template, with the white-space rules of trim_blocks and lstrip_blocks, as `transformers` sets
// them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace latent::text::jinja {

struct Token {
  enum class Kind {
    kText,  // outside of tags, white space already trimmed
    kOutputBegin,
    kOutputEnd,
    kBlockBegin,
    kBlockEnd,
    kName,
    kString,  // value unescaped
    kInteger,
    kFloat,
    kOperator,
    kEnd,
  };

  Kind kind;
  int line;
  std::string value;
};

// Throws TemplateError. The last token is kEnd.
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace latent::text::jinja
