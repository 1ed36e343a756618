// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/text_functions.h"

#include "text/jinja/operators.h"

namespace latent::text::jinja {
namespace {

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
bool is_letter(char c) { return upper(c) != lower(c); }

}  // namespace

Value change_case(const TaggedText& text, Case how) {
  std::string out = text.bytes();
  bool first = true;  // of a word; of the text for kCapitalize
  for (size_t i = 0; i < out.size(); i += code_point_bytes(out[i])) {
    if (has_foreign_case(code_point_at(out, i)))
      unsupported("changing the case of '{}' is not supported", out.substr(i, code_point_bytes(out[i])));
    const char c = out[i];
    out[i] = how == Case::kUpper || (how != Case::kLower && first) ? upper(c) : lower(c);
    if (how == Case::kCapitalize) first = false;
    if (how == Case::kTitleMethod) first = !is_letter(c);
    // The title filter's words begin after white space and after -({[<
    if (how == Case::kTitleFilter)
      first = is_space(code_point_at(out, i)) || std::string_view("-({[<").find(c) != std::string_view::npos;
  }
  return Value::string(text.with_bytes(std::move(out)));
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
