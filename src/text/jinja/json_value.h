// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "text/jinja/value.h"

namespace latent::text::jinja {

// The value of a JSON text; all of it is data. Keys keep their order. Throws TemplateError on text that is no
// JSON or UTF-8, on numbers that no int64 or double holds, and beyond kMaxNesting.
Value parse_json(std::string_view json);

}  // namespace latent::text::jinja
