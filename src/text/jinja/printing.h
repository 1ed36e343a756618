// SPDX-License-Identifier: Apache-2.0
// Values as text, as Python's str(), repr() and json.dumps() write them. Strings inside keep their origin;
// the punctuation around them counts as data, as it belongs to no literal of the template.
#pragma once

#include <optional>
#include <string>

#include "text/jinja/value.h"

namespace latent::text::jinja {

TaggedText to_text(Budget& budget, const Value& value);     // str()
TaggedText to_literal(Budget& budget, const Value& value);  // repr()
std::string number_text(double number);                     // repr() of a float

struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // of one level; none: everything on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
TaggedText to_json(Budget& budget, const Value& value, const JsonStyle& style);

}  // namespace latent::text::jinja
