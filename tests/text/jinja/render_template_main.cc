// SPDX-License-Identifier: Apache-2.0
// Renders templates for compare_with_jinja2.py: reads lines {"template": "…", "variables": {…}} and answers
// each with
// {"text": "…"}, or {"error": "…", "code": "…"}. strftime_now sees 2026-01-02 03:04:05.
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "text/jinja/json_value.h"
#include "text/jinja/template.h"

namespace {

using namespace latent;
using namespace latent::text::jinja;

Result<TaggedText> render(const nlohmann::ordered_json& request) {
  Result<Template> parsed = Template::parse(request.at("template").get<std::string>());
  if (!parsed.ok()) return parsed.error();
  std::tm now{};
  now.tm_year = 126;
  now.tm_mday = 2;
  now.tm_hour = 3;
  now.tm_min = 4;
  now.tm_sec = 5;
  now.tm_wday = 5;
  now.tm_yday = 1;
  Variables variables;
  const Value given = parse_json(request.at("variables").dump());
  for (const auto& [name, value] : given.as_dict().entries) variables.emplace_back(name.as_bytes(), value);
  return parsed->render(variables, now);
}

}  // namespace

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::json answer;
    try {
      const Result<TaggedText> text = render(nlohmann::ordered_json::parse(line));
      if (text.ok())
        answer = {{"text", text->bytes()}};
      else
        answer = {{"error", text.error().message}, {"code", error_code_name(text.error().code)}};
    } catch (const TemplateError& error) {
      answer = {{"error", error.message}, {"code", error_code_name(error.code)}};
    }
    std::cout << answer.dump() << '\n';
  }
}
