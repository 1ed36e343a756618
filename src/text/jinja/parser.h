// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "text/jinja/ast.h"

namespace latent::text::jinja {

// Throws TemplateError: kInvalidArgument for what jinja2 refuses too, kUnsupported for what only this module
// does.
Body parse_template(std::string_view source);

}  // namespace latent::text::jinja
