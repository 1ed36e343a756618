// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/text_functions.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/jinja/operators.h"
#include "text/utf8.h"

namespace latent::text::jinja {
namespace {

char32_t mapped(char32_t cp, utf8proc_int32_t (*map)(utf8proc_int32_t)) {
  return static_cast<char32_t>(map(static_cast<utf8proc_int32_t>(cp)));
}

// Unicode's SpecialCasing: sharp s, dotted I, sigma, ligatures, and Greek and Armenian letters of several
// parts.
bool has_special_case(char32_t cp) {
  constexpr char32_t kRanges[][2] = {{0xDF, 0xDF},   {0x130, 0x130},   {0x149, 0x149},   {0x1F0, 0x1F0},
                                     {0x345, 0x345}, {0x390, 0x390},   {0x3A3, 0x3A3},   {0x3B0, 0x3B0},
                                     {0x587, 0x587}, {0x1E96, 0x1E9A}, {0x1F50, 0x1FFF}, {0xFB00, 0xFB17}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [cp](const auto& range) { return cp >= range[0] && cp <= range[1]; });
}

bool is_cased(char32_t cp) { return mapped(cp, utf8proc_toupper) != mapped(cp, utf8proc_tolower); }

}  // namespace

Value change_case(const TaggedText& text, Case how) {
  bool first = true;  // of a word; of the text for kCapitalize
  return Value::string(text.map_runs([&](std::string_view run) {
    std::string out;
    for (size_t i = 0; i < run.size(); i += code_point_bytes(run[i])) {
      const char32_t cp = code_point_at(run, i);
      if (has_special_case(cp))
        unsupported("changing the case of '{}' is not supported", run.substr(i, code_point_bytes(run[i])));
      const bool raise = how == Case::kUpper || (how != Case::kLower && first);
      const bool as_title = how == Case::kCapitalize || how == Case::kTitleMethod;
      append_utf8(out, mapped(cp, !raise     ? utf8proc_tolower
                                  : as_title ? utf8proc_totitle
                                             : utf8proc_toupper));
      if (how == Case::kCapitalize) first = false;
      if (how == Case::kTitleMethod) first = !is_cased(cp);
      // The title filter's words begin after white space and after -({[<
      if (how == Case::kTitleFilter)
        first = is_space(cp) || std::u32string_view(U"-({[<").find(cp) != std::u32string_view::npos;
    }
    return out;
  }));
}

Value strip(const TaggedText& text, const std::optional<Value>& chars, bool left, bool right) {
  const bool given = chars && !chars->is_none();
  if (given && !chars->is_string()) fail("strip takes a string of characters, not {}", chars->type_name());
  const ByteRange range = stripped_range(text.bytes(), given ? &chars->as_bytes() : nullptr, left, right);
  return Value::string(text.substr(range.begin, range.end));
}

Value replace(Budget& budget, const TaggedText& text, const TaggedText& old, const TaggedText& by,
              int64_t count) {
  TaggedText out;
  size_t at = 0;
  while (count-- != 0) {
    const size_t found = find_bytes(budget, text.bytes(), old.bytes(), at);
    if (found == std::string::npos) break;
    out.append(text.substr(at, found));
    out.append(by);
    budget.charge(by.size() + kNodeCost);
    at = found + old.size();
    if (old.empty()) {  // between all characters
      if (at == text.size()) break;
      const size_t next = at + code_point_bytes(text.bytes()[at]);
      out.append(text.substr(at, next));
      at = next;
    }
  }
  budget.charge(text.size());
  out.append(text.substr(at, text.size()));
  return Value::string(std::move(out));
}

std::vector<TaggedText> split_lines(const TaggedText& text, bool keep_ends) {
  const auto is_end = [](char32_t cp) {
    return (cp >= 0x0A && cp <= 0x0D) || (cp >= 0x1C && cp <= 0x1E) || cp == 0x85 || cp == 0x2028 ||
           cp == 0x2029;
  };
  std::vector<TaggedText> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    size_t end = i + code_point_bytes(text.bytes()[i]);
    if (is_end(code_point_at(text.bytes(), i))) {
      if (text.bytes().compare(i, 2, "\r\n") == 0) ++end;
      lines.push_back(text.substr(begin, keep_ends ? end : i));
      begin = end;
    }
    i = end;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin, text.size()));
  return lines;
}

TaggedText join(Budget& budget, const std::vector<TaggedText>& parts, const TaggedText& separator) {
  TaggedText out;
  for (size_t i = 0; i < parts.size(); ++i) {
    budget.charge(parts[i].size() + separator.size());
    if (i > 0) out.append(separator);
    out.append(parts[i]);
  }
  return out;
}

int64_t integer_or(const std::optional<Value>& argument, int64_t fallback) {
  if (!argument) return fallback;
  if (!argument->is_integral()) fail("an integer is needed, not {}", argument->type_name());
  return argument->as_int();
}

bool truthy_or(const std::optional<Value>& argument, bool fallback) {
  return argument ? argument->truthy() : fallback;
}

}  // namespace latent::text::jinja
