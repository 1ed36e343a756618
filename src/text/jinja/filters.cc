// SPDX-License-Identifier: Apache-2.0
// Filters as jinja2 has them; tojson as `transformers` overrides it: json.dumps, with nothing escaped for
// HTML.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/text_functions.h"

namespace latent::text::jinja {
namespace {

using Kind = Value::Kind;

TaggedText text_of(Interpreter& interpreter, const Value& value) {
  return to_text(interpreter.budget(), value);
}

TaggedText text_or(Interpreter& interpreter, const std::optional<Value>& argument,
                   std::string_view fallback) {
  return argument ? text_of(interpreter, *argument) : TaggedText(std::string(fallback), Origin::kTemplate);
}

Value iterator(std::vector<Value> items) {
  return Value::sequence({.form = Sequence::Form::kIterator, .items = std::move(items), .view = {}});
}

// --- Text

Value tojson(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound =
      bind_arguments("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style{
      .ensure_ascii = truthy_or(bound[0], false), .indent = {}, .sort_keys = truthy_or(bound[3], false)};
  if (bound[1] && !bound[1]->is_none()) {
    if (!bound[1]->is_string() && integer_or(bound[1], 0) > 64) fail("tojson takes an indent of at most 64");
    style.indent = bound[1]->is_string()
                       ? bound[1]->as_bytes()
                       : std::string(static_cast<size_t>(std::max<int64_t>(bound[1]->as_int(), 0)), ' ');
    style.item_separator = ",";
  }
  if (bound[2] && !bound[2]->is_none()) {
    const std::vector<Value> separators = elements_of(interpreter.budget(), *bound[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
      fail("tojson takes two separators");
    style.item_separator = separators[0].as_bytes();
    style.key_separator = separators[1].as_bytes();
  }
  return Value::string(to_json(interpreter.budget(), self, style));
}

Value string(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  bind_arguments("string", arguments, {});
  return self.is_string() ? self : Value::string(text_of(interpreter, self));
}

Value trim(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return strip(text_of(interpreter, self), bind_arguments("trim", arguments, {"chars"})[0], true, true);
}

template <Case kHow>
Value case_filter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  bind_arguments("a case filter", arguments, {});
  return change_case(text_of(interpreter, self), kHow);
}

Value replace_filter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("replace", arguments, {"old", "new", "count"});
  if (!bound[0] || !bound[1]) fail("replace takes what to replace and by what");
  const int64_t count = bound[2] && !bound[2]->is_none() ? integer_or(bound[2], -1) : -1;
  return replace(interpreter.budget(), text_of(interpreter, self), text_of(interpreter, *bound[0]),
                 text_of(interpreter, *bound[1]), count);
}

Value indent(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("indent", arguments, {"width", "first", "blank"});
  if (!self.is_string()) fail("indent takes a string, not {}", self.type_name());
  const int64_t width = bound[0] && bound[0]->is_string() ? 0 : integer_or(bound[0], 4);
  if (width > 1000) fail("indent takes a width of at most 1000");
  const TaggedText by =
      bound[0] && bound[0]->is_string()
          ? bound[0]->as_text()
          : TaggedText(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '), Origin::kTemplate);
  const bool blank = truthy_or(bound[2], false);
  TaggedText text = self.as_text();
  text.append("\n", Origin::kTemplate);
  interpreter.budget().charge(2 * text.size());
  std::vector<TaggedText> lines = split_lines(text, false);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i == 0 ? !truthy_or(bound[1], false) : (lines[i].empty() && !blank)) continue;
    interpreter.budget().charge(by.size());
    TaggedText line = by;
    line.append(lines[i]);
    lines[i] = std::move(line);
  }
  return Value::string(join(interpreter.budget(), lines, TaggedText("\n", Origin::kTemplate)));
}

// item.a.b of "a.b", digits as indices.
Value dotted_attribute(const Value& item, const Value& path) {
  if (path.is_integral()) return get_item(item, path);
  if (!path.is_string()) fail("an attribute is named by a string, not {}", path.type_name());
  Value at = item;
  std::string_view rest = path.as_bytes();
  for (size_t dot = 0; dot != std::string_view::npos;) {
    dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool digits = error == std::errc() && end == part.data() + part.size() && index >= 0;
    at = get_item(at, digits ? Value::integer(index) : Value::string(part));
    rest.remove_prefix(dot == std::string_view::npos ? rest.size() : dot + 1);
  }
  return at;
}

Value join_filter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("join", arguments, {"d", "attribute"});
  std::vector<TaggedText> parts;
  for (const Value& item : elements_of(interpreter.budget(), self))
    parts.push_back(
        text_of(interpreter, bound[1] && !bound[1]->is_none() ? dotted_attribute(item, *bound[1]) : item));
  return Value::string(join(interpreter.budget(), parts, text_or(interpreter, bound[0], "")));
}

// --- Numbers

std::optional<double> parse_real(const TaggedText& text) {
  const ByteRange range = stripped_range(text.bytes(), nullptr, true, true);
  std::string digits = text.bytes().substr(range.begin, range.end - range.begin);
  if (digits.starts_with('+') && digits.substr(1, 1) != "-") digits.erase(0, 1);
  if (digits.find_first_of("xX()") != std::string::npos) return std::nullopt;
  if (digits.find('_') != std::string::npos &&
      digits.find_first_not_of("0123456789_.eE+-") == std::string::npos)
    unsupported("the number '{}' is not supported", digits);
  double real = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), real);
  if (error == std::errc::result_out_of_range) unsupported("the number {} is out of range", digits);
  return error == std::errc() && end == digits.data() + digits.size() && !digits.empty() ? std::optional(real)
                                                                                         : std::nullopt;
}

std::optional<int64_t> truncate(double real) {
  if (std::isnan(real)) return std::nullopt;
  if (std::fabs(real) >= 9.2e18) unsupported("an integer beyond 64 bits is not supported");
  return static_cast<int64_t>(real);
}

std::optional<int64_t> parse_integer(const TaggedText& text) {
  const ByteRange range = stripped_range(text.bytes(), nullptr, true, true);
  const size_t plus = text.bytes().compare(range.begin, 1, "+") == 0 && range.begin < range.end ? 1 : 0;
  const char *begin = text.bytes().data() + range.begin + plus, *end = text.bytes().data() + range.end;
  int64_t integer = 0;
  const auto [stop, error] = std::from_chars(begin, end, integer);
  if (error == std::errc::result_out_of_range) unsupported("an integer beyond 64 bits is not supported");
  if (error == std::errc() && stop == end && !(plus && *begin == '-')) return integer;
  const std::optional<double> real = parse_real(text);  // "42.9"|int is 42
  return real ? truncate(*real) : std::nullopt;
}

Origin origin_of(const Value& value) {
  if (!value.is_string()) return value.origin();
  const auto& runs = value.as_text().runs();
  const bool data =
      std::any_of(runs.begin(), runs.end(), [](const auto& r) { return r.origin == Origin::kData; });
  return data ? Origin::kData : Origin::kTemplate;
}

Value int_filter(Interpreter&, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("int", arguments, {"default", "base"});
  if (integer_or(bound[1], 10) != 10)
    unsupported("the filter 'int' with another base than 10 is not supported");
  if (self.is_undefined()) fail("{}, so it is no number", self.hint());
  std::optional<int64_t> integer;
  if (self.is_string()) integer = parse_integer(self.as_text());
  if (self.is_number()) integer = self.is_integral() ? self.as_int() : truncate(self.as_real());
  if (integer) return Value::integer(*integer, origin_of(self));
  return bound[0].value_or(Value::integer(0));
}

Value float_filter(Interpreter&, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("float", arguments, {"default"});
  if (self.is_undefined()) fail("{}, so it is no number", self.hint());
  std::optional<double> real;
  if (self.is_string()) real = parse_real(self.as_text());
  if (self.is_number()) real = self.as_real();
  return real ? Value::real(*real, origin_of(self)) : bound[0].value_or(Value::real(0));
}

Value abs_filter(Interpreter&, const Value& self, const Arguments& arguments) {
  bind_arguments("abs", arguments, {});
  const bool negative = self.is_number() && self.as_real() < 0;
  return apply_unary(negative ? '-' : '+', self);
}

Value length(Interpreter&, const Value& self, const Arguments& arguments) {
  bind_arguments("length", arguments, {});
  size_t size = 0;
  if (self.is_string())
    size = count_code_points(self.as_bytes());
  else if (self.is(Kind::kDict))
    size = self.as_dict().entries.size();
  else if (self.is(Kind::kSequence) && self.as_sequence().form != Sequence::Form::kIterator)
    size = self.as_sequence().items.size();
  else if (!self.is_undefined())
    fail("a {} has no length", self.type_name());
  return Value::integer(static_cast<int64_t>(size));
}

// --- Any value

Value default_filter(Interpreter&, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("default", arguments, {"default_value", "boolean"});
  const bool absent = self.is_undefined() || (truthy_or(bound[1], false) && !self.truthy());
  return absent ? bound[0].value_or(Value::string("")) : self;
}

Value safe(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  return string(interpreter, self, arguments).as_markup();
}

// --- Lists and dicts

Value items(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  bind_arguments("items", arguments, {});
  if (self.is_undefined()) return iterator({});
  if (!self.is(Kind::kDict)) fail("items takes a dict, not {}", self.type_name());
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.as_dict().entries) pairs.push_back(Value::tuple({key, value}));
  interpreter.budget().charge(pairs.size() * 2 * kElementCost);
  return iterator(std::move(pairs));
}

Value list(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  bind_arguments("list", arguments, {});
  return Value::list(elements_of(interpreter.budget(), self));
}

template <bool kFirst>
Value end_filter(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  bind_arguments(kFirst ? "first" : "last", arguments, {});
  if (!kFirst && self.is(Kind::kSequence) && self.as_sequence().form == Sequence::Form::kIterator)
    fail("last takes no generator");
  const std::vector<Value> elements = elements_of(interpreter.budget(), self);
  if (elements.empty()) return Value::undefined("the sequence is empty");
  return kFirst ? elements.front() : elements.back();
}

Value reverse(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  bind_arguments("reverse", arguments, {});
  if (self.is_string())
    return get_slice(interpreter.budget(), self, Value::none(), Value::none(), Value::integer(-1));
  std::vector<Value> elements = elements_of(interpreter.budget(), self);
  std::reverse(elements.begin(), elements.end());
  return iterator(std::move(elements));
}

// Strings sort without regard to case, unless asked to.
Value sort_key(const Value& value, bool case_sensitive) {
  return value.is_string() && !case_sensitive ? change_case(value.as_text(), Case::kLower) : value;
}

std::vector<Value> sorted(Budget& budget, const std::vector<Value>& values, const std::vector<Value>& keys,
                          bool descending) {
  std::vector<size_t> order(values.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const Value &left = keys[descending ? b : a], &right = keys[descending ? a : b];
    return !are_equal(budget, left, right) && apply_comparison(budget, "<", left, right);
  });
  std::vector<Value> out;
  for (const size_t i : order) out.push_back(values[i]);
  return out;
}

Value sort(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const std::vector<Value> values = elements_of(interpreter.budget(), self);
  std::vector<Value> keys;
  for (const Value& value : values)
    keys.push_back(sort_key(bound[2] && !bound[2]->is_none() ? dotted_attribute(value, *bound[2]) : value,
                            truthy_or(bound[1], false)));
  return Value::list(sorted(interpreter.budget(), values, keys, truthy_or(bound[0], false)));
}

Value dictsort(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!self.is(Kind::kDict)) fail("dictsort takes a dict, not {}", self.type_name());
  const std::string by = text_or(interpreter, bound[1], "key").bytes();
  if (by != "key" && by != "value") fail("dictsort sorts by 'key' or 'value', not '{}'", by);
  std::vector<Value> values, keys;
  for (const auto& [key, value] : self.as_dict().entries) {
    values.push_back(Value::tuple({key, value}));
    keys.push_back(sort_key(by == "key" ? key : value, truthy_or(bound[0], false)));
  }
  interpreter.budget().charge(values.size() * 4 * kElementCost);
  return Value::list(sorted(interpreter.budget(), values, keys, truthy_or(bound[2], false)));
}

Value unique(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("unique", arguments, {"case_sensitive", "attribute"});
  std::vector<Value> kept, keys;
  for (const Value& value : elements_of(interpreter.budget(), self)) {
    const Value key = sort_key(bound[1] && !bound[1]->is_none() ? dotted_attribute(value, *bound[1]) : value,
                               truthy_or(bound[0], false));
    if (!key.is_hashable()) fail("unique does not take a {}", key.type_name());
    const auto same = [&](const Value& known) { return are_equal(interpreter.budget(), known, key); };
    if (std::any_of(keys.begin(), keys.end(), same)) continue;
    keys.push_back(key);
    kept.push_back(value);
  }
  return iterator(std::move(kept));
}

// The name of a filter or test and its arguments, from arguments `skip` on.
struct Applied {
  std::string name;
  Arguments arguments;
};

Applied applied(const Arguments& arguments, size_t skip) {
  if (!arguments.positional[skip].is_string()) fail("a filter or test is named by a string");
  Applied out{arguments.positional[skip].as_bytes(), {}};
  out.arguments.positional.assign(arguments.positional.begin() + static_cast<ptrdiff_t>(skip) + 1,
                                  arguments.positional.end());
  out.arguments.named = arguments.named;
  return out;
}

// map, select and their kin take None and its like for an empty list.
std::vector<Value> elements_if_any(Interpreter& interpreter, const Value& value) {
  return value.truthy() ? elements_of(interpreter.budget(), value) : std::vector<Value>();
}

Value map(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const std::vector<Value> elements = elements_if_any(interpreter, self);
  std::vector<Value> out;
  if (arguments.positional.empty()) {
    const auto bound = bind_arguments("map", arguments, {"attribute", "default"});
    if (!bound[0]) fail("map takes a filter or an attribute");
    for (const Value& element : elements) {
      Value value = dotted_attribute(element, *bound[0]);
      out.push_back(value.is_undefined() && bound[1] ? *bound[1] : std::move(value));
    }
    return iterator(std::move(out));
  }
  const Applied filter = applied(arguments, 0);
  const Builtin function = find_filter(filter.name);
  if (!function) unsupported("the filter '{}' is not supported", filter.name);
  for (const Value& element : elements) out.push_back(function(interpreter, element, filter.arguments));
  return iterator(std::move(out));
}

// Elements for which a test holds (kKeep), or does not; without a test, their truth counts.
template <bool kKeep, bool kByAttribute>
Value select(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  constexpr size_t kSkip = kByAttribute ? 1 : 0;
  if (arguments.positional.size() < kSkip) fail("selectattr and rejectattr take an attribute");
  Applied test;
  Builtin function = nullptr;
  if (arguments.positional.size() > kSkip) {
    test = applied(arguments, kSkip);
    function = find_test(test.name);
    if (!function) unsupported("the test '{}' is not supported", test.name);
  }
  std::vector<Value> kept;
  for (const Value& element : elements_if_any(interpreter, self)) {
    const Value subject = kByAttribute ? dotted_attribute(element, arguments.positional[0]) : element;
    const Value result = function ? function(interpreter, subject, test.arguments) : subject;
    if (result.truthy() == kKeep) kept.push_back(element);
  }
  return iterator(std::move(kept));
}

struct Entry {
  std::string_view name;
  Builtin builtin;
};

constexpr Entry kFilters[] = {
    {"abs", abs_filter},
    {"capitalize", case_filter<Case::kCapitalize>},
    {"count", length},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort},
    {"first", end_filter<true>},
    {"float", float_filter},
    {"indent", indent},
    {"int", int_filter},
    {"items", items},
    {"join", join_filter},
    {"last", end_filter<false>},
    {"length", length},
    {"list", list},
    {"lower", case_filter<Case::kLower>},
    {"map", map},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"replace", replace_filter},
    {"reverse", reverse},
    {"safe", safe},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"sort", sort},
    {"string", string},
    {"title", case_filter<Case::kTitleFilter>},
    {"tojson", tojson},
    {"trim", trim},
    {"unique", unique},
    {"upper", case_filter<Case::kUpper>},
};

}  // namespace

Builtin find_filter(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kFilters), std::end(kFilters), [&](const Entry& e) { return e.name == name; });
  return found == std::end(kFilters) ? nullptr : found->builtin;
}

}  // namespace latent::text::jinja
