// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/printing.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace latent::text::jinja {
namespace {

// str() of what is no string and holds nothing.
std::string scalar_text(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kNone:
      return "None";
    case Value::Kind::kBool:
      return value.as_int() ? "True" : "False";
    case Value::Kind::kInt:
      return fmt::format("{}", value.as_int());
    case Value::Kind::kFloat:
      return number_text(value.as_real());
    default:
      unsupported("printing a {} is not supported", value.type_name());
  }
}

// Escape of a code point, or empty if it stands for itself.
using Escape = std::string (*)(char32_t, char quote);

TaggedText quoted(const TaggedText& text, char quote, Escape escape) {
  TaggedText out(std::string(1, quote), Origin::kData);
  out.append(text.map_runs([&](std::string_view run) {
    std::string escaped;
    for (size_t i = 0; i < run.size(); i += code_point_bytes(run[i])) {
      const std::string special = escape(code_point_at(run, i), quote);
      escaped += special.empty() ? run.substr(i, code_point_bytes(run[i])) : std::string_view(special);
    }
    return escaped;
  }));
  out.append(std::string_view(&quote, 1), Origin::kData);
  return out;
}

std::string literal_escape(char32_t cp, char quote) {
  if (cp == U'\\' || cp == static_cast<char32_t>(quote)) return std::string("\\") + static_cast<char>(cp);
  if (cp == U'\n') return "\\n";
  if (cp == U'\r') return "\\r";
  if (cp == U'\t') return "\\t";
  if (is_printable(cp)) return {};
  const auto number = static_cast<uint32_t>(cp);
  return number < 0x100     ? fmt::format("\\x{:02x}", number)
         : number < 0x10000 ? fmt::format("\\u{:04x}", number)
                            : fmt::format("\\U{:08x}", number);
}

std::string json_escape(char32_t cp, char) {
  constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
  const size_t simple = cp < 0x80 ? kFrom.find(static_cast<char>(cp)) : std::string_view::npos;
  if (simple != std::string_view::npos) return std::string("\\") + kTo[simple];
  return cp < 0x20 ? fmt::format("\\u{:04x}", static_cast<uint32_t>(cp)) : std::string();
}

std::string ascii_json_escape(char32_t cp, char quote) {
  if (cp < 0x7F) return json_escape(cp, quote);
  const auto number = static_cast<uint32_t>(cp);
  if (number < 0x10000) return fmt::format("\\u{:04x}", number);
  const uint32_t rest = number - 0x10000;
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
}

class LiteralPrinter {
 public:
  explicit LiteralPrinter(Budget& budget) : budget_(budget) {}

  void print(const Value& value) {
    budget_.charge(kNodeCost);
    if (value.is_markup())
      unsupported("printing a list or dict that holds a text marked by 'safe' is not supported");
    if (value.is_string())
      print_string(value.as_text());
    else if (value.is(Value::Kind::kSequence))
      print_sequence(value.as_sequence());
    else if (value.is(Value::Kind::kDict))
      print_dict(value.as_dict());
    else if (value.is_undefined())
      write("Undefined");
    else
      out.append(scalar_text(value), value.origin());
  }

  TaggedText out;

 private:
  void write(std::string_view text) { out.append(text, Origin::kData); }

  void print_string(const TaggedText& text) {
    budget_.charge(text.size());
    const bool single =
        text.bytes().find('\'') == std::string::npos || text.bytes().find('"') != std::string::npos;
    out.append(quoted(text, single ? '\'' : '"', literal_escape));
  }

  void print_sequence(const Sequence& sequence) {
    if (sequence.form == Sequence::Form::kRange || sequence.form == Sequence::Form::kIterator)
      unsupported("printing a range or a generator is not supported; use '|list'");
    const bool tuple = sequence.form == Sequence::Form::kTuple;
    if (!sequence.view.empty()) write(sequence.view + "(");
    write(tuple ? "(" : "[");
    for (size_t i = 0; i < sequence.items.size(); ++i) {
      if (i > 0) write(", ");
      print(sequence.items[i]);
    }
    if (tuple && sequence.items.size() == 1) write(",");
    write(tuple ? ")" : "]");
    if (!sequence.view.empty()) write(")");
  }

  void print_dict(const Dict& dict) {
    write("{");
    for (size_t i = 0; i < dict.entries.size(); ++i) {
      if (i > 0) write(", ");
      print(dict.entries[i].first);
      write(": ");
      print(dict.entries[i].second);
    }
    write("}");
  }

  Budget& budget_;
};

class JsonPrinter {
 public:
  JsonPrinter(Budget& budget, const JsonStyle& style) : budget_(budget), style_(style) {}

  void print(const Value& value) {
    budget_.charge(kNodeCost);
    if (value.is_string())
      print_string(value.as_text());
    else if (value.is(Value::Kind::kDict))
      print_dict(value.as_dict());
    else if (value.is(Value::Kind::kSequence) && (value.as_sequence().form == Sequence::Form::kList ||
                                                  value.as_sequence().form == Sequence::Form::kTuple))
      print_list(value.as_sequence());
    else if (value.is_undefined())
      fail("tojson of something undefined: {}", value.hint());
    else if (value.is_none() || value.is_number())
      out.append(scalar_json(value), value.origin());
    else
      fail("tojson cannot write a {}", value.type_name());
  }

  TaggedText out;

 private:
  void write(std::string_view text) { out.append(text, Origin::kData); }

  static std::string scalar_json(const Value& value) {
    if (value.is_none()) return "null";
    if (value.is(Value::Kind::kBool)) return value.as_int() ? "true" : "false";
    if (!value.is(Value::Kind::kFloat) || std::isfinite(value.as_real())) return scalar_text(value);
    return std::isnan(value.as_real()) ? "NaN" : value.as_real() > 0 ? "Infinity" : "-Infinity";
  }

  void print_string(const TaggedText& text) {
    budget_.charge(text.size());
    out.append(quoted(text, '"', style_.ensure_ascii ? ascii_json_escape : json_escape));
  }

  void new_line() {
    if (!style_.indent) return;
    std::string line = "\n";
    for (int i = 0; i < level_; ++i) line += *style_.indent;
    budget_.charge(line.size());
    write(line);
  }

  // An opened list or dict: a comma and a new line before each element.
  void before_item(size_t index) {
    if (index > 0) write(style_.item_separator);
    new_line();
  }

  void close(bool empty, std::string_view bracket) {
    --level_;
    if (!empty) new_line();
    write(bracket);
  }

  void print_list(const Sequence& list) {
    write("[");
    ++level_;
    for (size_t i = 0; i < list.items.size(); ++i) {
      before_item(i);
      print(list.items[i]);
    }
    close(list.items.empty(), "]");
  }

  void print_dict(const Dict& dict) {
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) sort(entries);
    write("{");
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      before_item(i);
      const Value& key = entries[i]->first;
      print_string(key.is_string() ? key.as_text() : TaggedText(scalar_json(key), key.origin()));
      write(style_.key_separator);
      print(entries[i]->second);
    }
    close(entries.empty(), "}");
  }

  static void sort(std::vector<const std::pair<Value, Value>*>& entries) {
    for (const auto* entry : entries)
      if (!entry->first.is_string()) unsupported("sort_keys with keys that are no strings is not supported");
    std::sort(entries.begin(), entries.end(),
              [](const auto* a, const auto* b) { return a->first.as_bytes() < b->first.as_bytes(); });
  }

  Budget& budget_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

std::string number_text(double number) {
  if (std::isnan(number)) return "nan";
  if (std::isinf(number)) return number > 0 ? "inf" : "-inf";
  const auto written = [number](std::chars_format format) {
    char buffer[400];  // the longest double in fixed notation has 327 characters
    return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, number, format).ptr);
  };
  // Python: the shortest digits that read back as the number, positional if -4 <= exponent < 16.
  const std::string scientific = written(std::chars_format::scientific);
  const int exponent = std::stoi(scientific.substr(scientific.find('e') + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  const std::string fixed = written(std::chars_format::fixed);
  return fixed.find('.') == std::string::npos ? fixed + ".0" : fixed;
}

TaggedText to_text(Budget& budget, const Value& value) {
  budget.charge(kNodeCost);
  if (value.is_string()) {
    budget.charge(value.as_text().size());
    return value.as_text();
  }
  return value.is_undefined() ? TaggedText() : to_literal(budget, value);
}

TaggedText to_literal(Budget& budget, const Value& value) {
  LiteralPrinter printer(budget);
  printer.print(value);
  return std::move(printer.out);
}

TaggedText to_json(Budget& budget, const Value& value, const JsonStyle& style) {
  JsonPrinter printer(budget, style);
  printer.print(value);
  return std::move(printer.out);
}

}  // namespace latent::text::jinja
