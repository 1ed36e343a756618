// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/template.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "text/jinja/json_value.h"

namespace latent::text::jinja {
namespace {

std::tm golden_time() {  // 2026-01-02 03:04:05, as in compare_with_jinja2.py
  std::tm now{};
  now.tm_year = 126;
  now.tm_mday = 2;
  now.tm_hour = 3;
  now.tm_min = 4;
  now.tm_sec = 5;
  return now;
}

Variables variables_of(const std::string& json) {
  Variables variables;
  const Value given = parse_json(json);
  for (const auto& [name, value] : given.as_dict().entries) variables.emplace_back(name.as_bytes(), value);
  return variables;
}

Result<TaggedText> render(const std::string& source, const std::string& variables_json = "{}",
                          const RenderLimits& limits = {}) {
  const Result<Template> parsed = Template::parse(source);
  if (!parsed.ok()) return parsed.error();
  return parsed->render(variables_of(variables_json), golden_time(), limits);
}

// The rendered text with what is data in [brackets]; the error's message if there is one.
std::string marked(const std::string& source, const std::string& variables_json = R"({"d": "data"})") {
  const Result<TaggedText> text = render(source, variables_json);
  if (!text.ok()) return text.error().message;
  std::string out;
  size_t begin = 0;
  for (const TaggedText::Run& run : text->runs()) {
    const std::string piece = text->bytes().substr(begin, run.end - begin);
    out += run.origin == Origin::kData ? "[" + piece + "]" : piece;
    begin = run.end;
  }
  return out;
}

Error error_of(const std::string& source, const std::string& variables_json = "{}",
               const RenderLimits& limits = {}) {
  const Result<TaggedText> text = render(source, variables_json, limits);
  return text.ok() ? Error{ErrorCode::kIo, "no error but: " + text->bytes()} : text.error();
}

TEST(JinjaTemplate, renders_what_jinja2_renders) {
  std::ifstream file(std::string(LATENT_SOURCE_DIR) + "/tests/text/jinja/golden.jsonl");
  std::string variables, line;
  ASSERT_TRUE(std::getline(file, variables));
  int count = 0;
  for (; std::getline(file, line); ++count) {
    const auto golden = nlohmann::json::parse(line);
    const std::string source = golden[0].get<std::string>();
    const Result<TaggedText> text = render(source, variables);
    if (golden[1].is_string()) {
      ASSERT_TRUE(text.ok()) << source << "\n" << text.error().message;
      EXPECT_EQ(text->bytes(), golden[1].get<std::string>()) << source;
    } else {
      EXPECT_FALSE(text.ok()) << source << "\nrendered " << (text.ok() ? text->bytes() : "");
    }
  }
  EXPECT_GE(count, 150);
}

TEST(JinjaTemplate, every_operation_keeps_who_wrote_a_byte) {
  EXPECT_EQ(marked("a{{ d }}b{{ 'c' }}"), "a[data]bc");
  EXPECT_EQ(marked("{{ '<' + d + '>' }}{{ '<' ~ d ~ 1 }}"), "<[data]><[data]1");
  EXPECT_EQ(marked("{{ ('<' + d + '>')[1:3] }}{{ ('<' + d + '>')[::-1] }}{{ (d ~ '!')[-1] }}"),
            "[da]>[atad]<!");
  EXPECT_EQ(marked("{{ (' ' ~ d ~ ' ') | trim }}{{ d | upper ~ 'x' | upper }}{{ d | title }}"),
            "[dataDATA]X[Data]");
  EXPECT_EQ(marked("{{ 'a-b' | replace('-', d) }}{{ d | replace('t', '-') }}"), "a[data]b[da]-[a]");
  EXPECT_EQ(marked("{{ [d, 'x', d] | join('|') }}{{ d.split('t') | join('|') }}"), "[data]|x|[datada]|[a]");
  EXPECT_EQ(marked("{{ ['<', d] | tojson }}"), "[[\"]<[\", \"data\"]]");
  EXPECT_EQ(
      marked("{% set x %}<{{ d }}>{% endset %}{{ x }}{% macro m(a) %}({{ a }}){% endmacro %}{{ m(d) }}"),
      "<[data]>([data])");
  EXPECT_EQ(marked("{% set ns = namespace(s='<') %}{% set ns.s = ns.s + d %}{{ ns.s * 2 }}"),
            "<[data]<[data]");
  EXPECT_EQ(marked("{{ (d ~ '\\n' ~ 'x') | indent(2, true) }}"), "  [data]\n  x");
  EXPECT_EQ(marked("{% for c in d %}{{ c }},{% endfor %}"), "[d],[a],[t],[a],");
}

TEST(JinjaTemplate, numbers_keys_and_literals_from_data_are_data) {
  const std::string json = R"({"n": 5, "t": true, "z": null, "o": {"k": 1.5}})";
  EXPECT_EQ(marked("{{ n }}{{ 5 }}{{ t }}{{ z }}{{ n + 1 }}{{ 1 + 1 }}", json), "[5]5[TrueNone6]2");
  EXPECT_EQ(marked("{% for k, v in o.items() %}<{{ k }}={{ v }}>{% endfor %}{{ o }}", json),
            "<[k]=[1.5]>[{'k': 1.5}]");
  EXPECT_EQ(marked("<|image_{{ loop_index | default(1) }}|>", json), "<|image_1|>");
  EXPECT_EQ(marked("<|image_{{ n }}|>", json), "<|image_[5]|>");
}

TEST(JinjaTemplate, an_error_names_what_and_where) {
  EXPECT_EQ(error_of("a\n\n{{ 1 + none }}").message,
            "chat template, line 3: '+' does not take int and NoneType");
  EXPECT_EQ(error_of("{{ m.x\n  .y }}", R"({"m": {}})").message,
            "chat template, line 2: 'dict object' has no attribute 'x', so it has no attribute 'y'");
  EXPECT_EQ(error_of("\n{% if x %}").message,
            "chat template, line 2: the template ends where {% endif %} is missing");
  EXPECT_EQ(error_of("{{ raise_exception('roles must alternate') }}").message,
            "chat template, line 1: roles must alternate");
  EXPECT_EQ(error_of("{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ m() }}").message,
            "chat template, line 2: division by zero");
}

TEST(JinjaTemplate, what_is_not_built_in_is_refused_by_name) {
  const std::pair<const char*, const char*> cases[] = {
      {"{% include 'x' %}", "the tag {% include %}"},
      {"{% raw %}x{% endraw %}", "the tag {% raw %}"},
      {"{% do x %}", "the tag {% do %}"},
      {"{% filter upper %}x{% endfilter %}", "the tag {% filter %}"},
      {"{% for x in [] recursive %}{% endfor %}", "a recursive loop"},
      {"{{ x | wordwrap }}", "the filter 'wordwrap'"},
      {"{{ x is escaped }}", "the test 'escaped'"},
      {"{{ f(*x) }}", "'*' in a call"},
      {"{{ 'a'.zfill(3) }}", "the str method 'zfill'"},
      {"{{ '%s' % 1 }}", "string formatting with '%'"},
      {"{{ 9223372036854775807 + 1 }}", "an integer beyond 64 bits"},
      {"{{ 9223372036854775808 }}", "9223372036854775808 is out of range"},
      {"{% macro m() %}{{ varargs }}{% endmacro %}", "'varargs' in a macro"},
      {"{{ 'straße' | upper }}", "changing the case of 'ß'"},
      {"{{ namespace() }}", "printing a object"},
      {"{% set g = [1] | map('string') %}{{ g | list }}{{ g | list }}", "reading a generator twice"},
      {"{{ ('a' | safe) + '<' }}", "marked by 'safe'"},
  };
  for (const auto& [source, what] : cases) {
    const Error error = error_of(source);
    EXPECT_EQ(error.code, ErrorCode::kUnsupported) << source << ": " << error.message;
    EXPECT_NE(error.message.find(what), std::string::npos) << source << ": " << error.message;
    EXPECT_NE(error.message.find("line 1"), std::string::npos) << error.message;
  }
}

TEST(JinjaTemplate, no_template_outruns_its_limits) {
  const std::string nest = "{% for a in range(1000) %}", end = "{% endfor %}";
  const std::string sources[] = {
      nest + nest + nest + nest + end + end + end + end,
      nest + nest + "{{ 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' * 1000 }}" + end + end,
      "{% set ns = namespace(s='ab') %}" + nest + "{% set ns.s = ns.s + ns.s %}" + end,
      "{% set ns = namespace(s=[1]) %}" + nest + "{% set ns.s = ns.s + ns.s %}" + end,
      "{% set ns = namespace(s=[1]) %}" + nest + "{% set ns.s = [ns.s, ns.s] %}" + end,
      "{% set ns = namespace(s=[1]) %}" + nest + "{% set ns.s = [ns.s.copy] %}" + end,
      "{{ 'x' * 9223372036854775807 }}",
      "{{ [1, 2] * 9223372036854775807 }}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m(x) %}{% if 1 %}{% for i in [1] %}{{ m(x) }}{% endfor %}{% endif %}{% endmacro %}{{ m(1) }}",
      "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}",
      "{{ ('a' * 1000000).replace('', 'b' * 1000) }}",
      "{{ ('a' * 1000000).rsplit('a' * 500000 ~ 'b') }}",
      "{{ range(0, 9223372036854775807) }}",
      "{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}",
      "{{ " + std::string(5000, '-') + "1 }}",
      "{{ 1" + std::string(5000, '+') + "1 }}",
      "{{ x" +
          [] {
            std::string s;
            for (int i = 0; i < 5000; ++i) s += ".a";
            return s;
          }() +
          " }}",
      [] {
        std::string s;
        for (int i = 0; i < 5000; ++i) s += "{% if 1 %}";
        return s;
      }(),
  };
  for (const std::string& source : sources) {
    const Error error = error_of(source, "{}", {.max_work = 1 << 24});
    EXPECT_EQ(error.code, ErrorCode::kExhausted)
        << source.substr(0, 200) << ": " << error.message.substr(0, 200);
  }
}

TEST(JinjaTemplate, a_value_shared_many_times_is_printed_within_the_limits) {
  std::string source = "{% set x0 = ['data'] %}";
  for (int i = 1; i < 60; ++i) source += fmt::format("{{% set x{} = [x{}, x{}] %}}", i, i - 1, i - 1);
  for (const char* use :
       {"{{ x59 }}", "{{ x59 | tojson }}", "{{ x59 == [x58, x57] }}{{ x59 == [x58, x58] }}"})
    EXPECT_EQ(error_of(source + use, "{}", {.max_work = 1 << 24}).code, ErrorCode::kExhausted) << use;
}

TEST(JinjaTemplate, output_is_bounded) {
  EXPECT_EQ(error_of("{{ 'x' * 101 }}", "{}", {.max_output_bytes = 100}).code, ErrorCode::kExhausted);
  EXPECT_TRUE(render("{{ 'x' * 100 }}", "{}", {.max_output_bytes = 100}).ok());
}

TEST(JinjaTemplate, sources_that_are_no_text_are_refused) {
  EXPECT_EQ(error_of("a\xff").code, ErrorCode::kCorrupt);
  EXPECT_EQ(error_of(std::string(2 << 20, 'x')).code, ErrorCode::kUnsupported);
  EXPECT_TRUE(render(std::string("a\0b", 3)).ok());
}

TEST(JinjaJson, integers_beyond_64_bits_and_bad_json_are_refused) {
  EXPECT_THROW(parse_json("9223372036854775808"), TemplateError);
  EXPECT_THROW(parse_json("123456789012345678901234567890"), TemplateError);
  EXPECT_THROW(parse_json("{\"a\": }"), TemplateError);
  EXPECT_THROW(parse_json("[1] 2"), TemplateError);
  EXPECT_THROW(parse_json("\"\xff\""), TemplateError);
  EXPECT_THROW(parse_json(std::string(1000, '[') + std::string(1000, ']')), TemplateError);
  EXPECT_EQ(parse_json("-9223372036854775808").as_int(), INT64_MIN);
}

}  // namespace
}  // namespace latent::text::jinja
