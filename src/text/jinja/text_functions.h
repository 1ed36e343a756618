// SPDX-License-Identifier: Apache-2.0
// What string methods and filters share.
#pragma once

#include <optional>
#include <vector>

#include "text/jinja/value.h"

namespace latent::text::jinja {

// Letter by letter; the few letters whose case is another number of letters, or depends on those around, are
// refused.
enum class Case { kUpper, kLower, kCapitalize, kTitleMethod, kTitleFilter };
Value change_case(const TaggedText& text, Case how);

Value strip(const TaggedText& text, const std::optional<Value>& chars, bool left, bool right);
// count < 0: every place.
Value replace(Budget& budget, const TaggedText& text, const TaggedText& old, const TaggedText& by,
              int64_t count);
std::vector<TaggedText> split_lines(const TaggedText& text, bool keep_ends);
TaggedText join(Budget& budget, const std::vector<TaggedText>& parts, const TaggedText& separator);

// Arguments with Python's rules for what may stand for them.
int64_t integer_or(const std::optional<Value>& argument, int64_t fallback);
bool truthy_or(const std::optional<Value>& argument, bool fallback);

}  // namespace latent::text::jinja
