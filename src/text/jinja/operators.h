// SPDX-License-Identifier: Apache-2.0
// Python's operators on values. All throw TemplateError for types that Python refuses, and for integers
// beyond 64 bits.
#pragma once

#include <string_view>

#include "text/jinja/value.h"

namespace latent::text::jinja {

Value apply_unary(char op, const Value& operand);  // - +
Value apply_binary(Budget& budget, std::string_view op, const Value& left,
                   const Value& right);  // + - * / // % **
bool apply_comparison(Budget& budget, std::string_view op, const Value& left,
                      const Value& right);  // == < in …
bool are_equal(Budget& budget, const Value& left, const Value& right);

// Byte offset of needle at or after `from`, or npos; in linear time.
size_t find_bytes(Budget& budget, std::string_view text, std::string_view needle, size_t from);

}  // namespace latent::text::jinja
