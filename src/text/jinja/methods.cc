// SPDX-License-Identifier: Apache-2.0
// Methods of str, dict and list.
#include <algorithm>
#include <span>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/text_functions.h"

namespace latent::text::jinja {
namespace {

using Kind = Value::Kind;

const Value& required(const std::optional<Value>& argument, std::string_view what) {
  if (!argument) fail("{} needs an argument", what);
  return *argument;
}

const TaggedText& required_text(const std::optional<Value>& argument, std::string_view what) {
  if (!required(argument, what).is_string()) fail("{} takes a string, not {}", what, argument->type_name());
  return argument->as_text();
}

template <bool kLeft, bool kRight>
Value strip_method(Interpreter&, const Value& self, const Arguments& arguments) {
  return strip(self.as_text(), bind_arguments("strip", arguments, {"chars"})[0], kLeft, kRight);
}

template <Case kHow>
Value case_method(Interpreter&, const Value& self, const Arguments& arguments) {
  bind_arguments("a case method", arguments, {});
  return change_case(self.as_text(), kHow);
}

// Byte ranges between white space, at most `limit` cuts from the left, or from the right.
std::vector<TaggedText> split_at_space(const TaggedText& text, int64_t limit, bool from_right) {
  std::vector<ByteRange> words;
  for (size_t i = 0; i < text.size();) {
    const std::string_view rest = std::string_view(text.bytes()).substr(i);
    i += stripped_range(rest, nullptr, true, false).begin;
    size_t end = i;
    while (end < text.size() && !is_space(code_point_at(text.bytes(), end)))
      end += code_point_bytes(text.bytes()[end]);
    if (end > i) words.push_back({i, end});
    i = end;
  }
  const size_t cuts = limit < 0 ? words.size() : static_cast<size_t>(limit);
  if (words.size() > cuts) {  // what is not cut off stays one part, with its white space
    if (from_right) {
      const auto first_cut = words.end() - static_cast<ptrdiff_t>(cuts);
      const ByteRange head{0, (first_cut - 1)->end};
      words.erase(words.begin(), first_cut);
      words.insert(words.begin(), head);
    } else {
      words.resize(cuts + 1);
      words.back().end = text.size();
    }
  }
  std::vector<TaggedText> parts;
  for (const ByteRange& word : words) parts.push_back(text.substr(word.begin, word.end));
  return parts;
}

std::vector<TaggedText> split_at(Budget& budget, const TaggedText& text, const std::string& separator,
                                 int64_t limit, bool from_right) {
  if (separator.empty()) fail("split takes no empty separator");
  std::vector<size_t> cuts;
  const auto more = [&] { return limit < 0 || cuts.size() < static_cast<size_t>(limit); };
  if (from_right) {
    budget.charge(text.size() * (1 + separator.size() / 16));  // rfind compares at every place
    for (size_t at = text.bytes().rfind(separator); at != std::string::npos && more();) {
      cuts.push_back(at);
      budget.charge(kElementCost);
      at = at < separator.size() ? std::string::npos : text.bytes().rfind(separator, at - separator.size());
    }
    std::reverse(cuts.begin(), cuts.end());
  } else {
    for (size_t at = 0; more(); at += separator.size()) {
      at = find_bytes(budget, text.bytes(), separator, at);
      if (at == std::string::npos) break;
      cuts.push_back(at);
    }
  }
  std::vector<TaggedText> parts;
  size_t begin = 0;
  for (const size_t cut : cuts) {
    parts.push_back(text.substr(begin, cut));
    begin = cut + separator.size();
  }
  parts.push_back(text.substr(begin, text.size()));
  return parts;
}

Value list_of_texts(Budget& budget, std::vector<TaggedText> texts) {
  std::vector<Value> items;
  for (TaggedText& text : texts) items.push_back(Value::string(std::move(text)));
  budget.charge(items.size() * kElementCost);
  return Value::list(std::move(items));
}

template <bool kFromRight>
Value split_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("split", arguments, {"sep", "maxsplit"});
  const int64_t limit = integer_or(bound[1], -1);
  Budget& budget = interpreter.budget();
  budget.charge(self.as_text().size());
  if (!bound[0] || bound[0]->is_none())
    return list_of_texts(budget, split_at_space(self.as_text(), limit, kFromRight));
  const std::string& separator = required_text(bound[0], "split").bytes();
  return list_of_texts(budget, split_at(budget, self.as_text(), separator, limit, kFromRight));
}

Value splitlines(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("splitlines", arguments, {"keepends"});
  interpreter.budget().charge(self.as_text().size());
  return list_of_texts(interpreter.budget(), split_lines(self.as_text(), truthy_or(bound[0], false)));
}

template <bool kStart>
Value affix_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const char* what = kStart ? "startswith" : "endswith";
  const Value affix = required(bind_arguments(what, arguments, {"affix"})[0], what);
  const std::string_view text = self.as_bytes();
  const auto fits = [&](const Value& one) {
    if (!one.is_string()) fail("{} takes a string or a tuple of strings, not {}", what, one.type_name());
    return kStart ? text.starts_with(one.as_bytes()) : text.ends_with(one.as_bytes());
  };
  if (!affix.is(Kind::kSequence) || affix.as_sequence().form != Sequence::Form::kTuple)
    return Value::boolean(fits(affix));
  const auto& options = affix.as_sequence().items;
  return Value::boolean(std::any_of(options.begin(), options.end(), fits));
}

template <bool kStart>
Value remove_affix(Interpreter&, const Value& self, const Arguments& arguments) {
  const char* what = kStart ? "removeprefix" : "removesuffix";
  const auto bound = bind_arguments(what, arguments, {"affix"});
  const TaggedText &text = self.as_text(), &affix = required_text(bound[0], what);
  if (kStart && text.bytes().starts_with(affix.bytes()))
    return Value::string(text.substr(affix.size(), text.size()));
  if (!kStart && text.bytes().ends_with(affix.bytes()))
    return Value::string(text.substr(0, text.size() - affix.size()));
  return self;
}

Value replace_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("replace", arguments, {"old", "new", "count"});
  return replace(interpreter.budget(), self.as_text(), required_text(bound[0], "replace"),
                 required_text(bound[1], "replace"), integer_or(bound[2], -1));
}

Value find_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("find", arguments, {"sub"});
  const size_t at =
      find_bytes(interpreter.budget(), self.as_bytes(), required_text(bound[0], "find").bytes(), 0);
  if (at == std::string::npos) return Value::integer(-1);
  return Value::integer(
      static_cast<int64_t>(count_code_points(std::string_view(self.as_bytes()).substr(0, at))));
}

Value count_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("count", arguments, {"sub"});
  const std::string& sub = required_text(bound[0], "count").bytes();
  if (sub.empty()) return Value::integer(static_cast<int64_t>(count_code_points(self.as_bytes())) + 1);
  int64_t count = 0;
  for (size_t at = 0;; at += sub.size(), ++count) {
    at = find_bytes(interpreter.budget(), self.as_bytes(), sub, at);
    if (at == std::string::npos) return Value::integer(count);
  }
}

Value join_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("join", arguments, {"iterable"});
  std::vector<TaggedText> parts;
  for (const Value& part : elements_of(interpreter.budget(), required(bound[0], "join"))) {
    if (!part.is_string()) fail("join takes strings, not {}", part.type_name());
    parts.push_back(part.as_text());
  }
  return Value::string(join(interpreter.budget(), parts, self.as_text()));
}

Value get_method(Interpreter&, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("get", arguments, {"key", "default"});
  if (!required(bound[0], "get").is_hashable()) fail("a {} is no key of a dict", bound[0]->type_name());
  const Value* found = self.as_dict().find(*bound[0]);
  return found ? *found : bound[1].value_or(Value::none());
}

// Keys, values or both as a view.
template <bool kKeys, bool kValues>
Value view_method(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const char* name = kKeys && kValues ? "dict_items" : kKeys ? "dict_keys" : "dict_values";
  bind_arguments(name, arguments, {});
  Sequence view{.form = Sequence::Form::kDictView, .items = {}, .view = name};
  for (const auto& [key, value] : self.as_dict().entries)
    view.items.push_back(kKeys && kValues ? Value::tuple({key, value}) : kKeys ? key : value);
  interpreter.budget().charge(view.items.size() * 2 * kElementCost);
  return Value::sequence(std::move(view));
}

Value copy_method(Interpreter&, const Value& self, const Arguments& arguments) {
  bind_arguments("copy", arguments, {});
  return self;  // nothing can change it
}

struct Entry {
  std::string_view name;
  Builtin builtin;  // null: Python has it, this module has not
};

constexpr Entry kStringMethods[] = {
    {"strip", strip_method<true, true>},
    {"lstrip", strip_method<true, false>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"rsplit", split_method<true>},
    {"splitlines", splitlines},
    {"startswith", affix_method<true>},
    {"endswith", affix_method<false>},
    {"removeprefix", remove_affix<true>},
    {"removesuffix", remove_affix<false>},
    {"replace", replace_method},
    {"find", find_method},
    {"count", count_method},
    {"join", join_method},
    {"upper", case_method<Case::kUpper>},
    {"lower", case_method<Case::kLower>},
    {"title", case_method<Case::kTitleMethod>},
    {"capitalize", case_method<Case::kCapitalize>},
    {"casefold", nullptr},
    {"center", nullptr},
    {"encode", nullptr},
    {"expandtabs", nullptr},
    {"format", nullptr},
    {"format_map", nullptr},
    {"index", nullptr},
    {"isalnum", nullptr},
    {"isalpha", nullptr},
    {"isascii", nullptr},
    {"isdecimal", nullptr},
    {"isdigit", nullptr},
    {"isidentifier", nullptr},
    {"islower", nullptr},
    {"isnumeric", nullptr},
    {"isprintable", nullptr},
    {"isspace", nullptr},
    {"istitle", nullptr},
    {"isupper", nullptr},
    {"ljust", nullptr},
    {"maketrans", nullptr},
    {"partition", nullptr},
    {"rfind", nullptr},
    {"rindex", nullptr},
    {"rjust", nullptr},
    {"rpartition", nullptr},
    {"swapcase", nullptr},
    {"translate", nullptr},
    {"zfill", nullptr},
};

constexpr Entry kDictMethods[] = {
    {"get", get_method},
    {"items", view_method<true, true>},
    {"keys", view_method<true, false>},
    {"values", view_method<false, true>},
    {"copy", copy_method},
    {"fromkeys", nullptr},
};

constexpr Entry kSequenceMethods[] = {
    {"copy", copy_method}, {"count", nullptr}, {"index", nullptr}, {"pop", nullptr}, {"clear", nullptr},
};

Builtin find_method_in(std::span<const Entry> methods, std::string_view type, std::string_view name) {
  const auto found =
      std::find_if(methods.begin(), methods.end(), [&](const Entry& e) { return e.name == name; });
  if (found == methods.end()) return nullptr;
  if (!found->builtin) unsupported("the {} method '{}' is not supported", type, name);
  return found->builtin;
}

}  // namespace

Builtin find_string_method(std::string_view name) { return find_method_in(kStringMethods, "str", name); }
Builtin find_dict_method(std::string_view name) { return find_method_in(kDictMethods, "dict", name); }
Builtin find_sequence_method(std::string_view name) { return find_method_in(kSequenceMethods, "list", name); }

}  // namespace latent::text::jinja
