// SPDX-License-Identifier: Apache-2.0
// A Jinja template of the subset that chat templates use, as `transformers` renders it: jinja2's
// ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, loop controls, {% generation %}, and
// raise_exception, strftime_now and an unescaped tojson.
//
// Built in: set (also of blocks and of namespace attributes), for (filter, else, unpacking, loop.*, break,
// continue), if, with, macro and call blocks; Python's operators, slices and printing; the filters, tests and
// methods listed in filters.cc, predicates.cc and methods.cc. Anything else is refused with its name and
// line, at parsing where that can be known, and no render outlasts its limits.
#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/jinja/interpreter.h"

namespace latent::text::jinja {

class Template {
 public:
  // Errors carry the line.
  static Result<Template> parse(std::string_view source);

  // The rendered text with the origin of each byte: literals of the template, and data from the variables.
  // Errors carry the line; kExhausted if a limit is met. const and without shared state: any number of
  // threads may render.
  Result<TaggedText> render(const Variables& variables, const std::tm& now,
                            const RenderLimits& limits = {}) const;

 private:
  explicit Template(std::shared_ptr<const Body> body) : body_(std::move(body)) {}

  std::shared_ptr<const Body> body_;
};

}  // namespace latent::text::jinja
