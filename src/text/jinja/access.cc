// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "text/jinja/builtins.h"

namespace latent::text::jinja {
namespace {

using Kind = Value::Kind;

// "list object", as the messages of jinja2 have it.
Value no_attribute(const Value& object, std::string_view name) {
  return Value::undefined(fmt::format("'{} object' has no attribute '{}'", object.type_name(), name));
}

Value bind_method(const Value& object, std::string_view name, Builtin method) {
  auto call = [object, method](Interpreter& interpreter, const Arguments& arguments) {
    return method(interpreter, object, arguments);
  };
  return Value::callable({std::string(name), std::move(call), object.nesting() + 1});
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What the sandbox hides: Python's internals, and methods that change their object.
bool is_unsafe(const Value& object, std::string_view name) {
  if (name.starts_with("__")) return true;
  if (object.is(Kind::kDict)) return is_one_of(name, {"clear", "pop", "popitem", "setdefault", "update"});
  return object.is(Kind::kSequence) && object.as_sequence().form == Sequence::Form::kList &&
         is_one_of(name, {"append", "reverse", "insert", "sort", "extend", "remove"});
}

std::optional<Value> find_method(const Value& object, std::string_view name) {
  if (is_unsafe(object, name))
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe", name, object.type_name()));
  if (object.is_markup()) unsupported("the method '{}' of a text marked by 'safe' is not supported", name);
  Builtin method = nullptr;
  if (object.is_string()) method = find_string_method(name);
  if (object.is(Kind::kDict)) method = find_dict_method(name);
  if (object.is(Kind::kSequence)) method = find_sequence_method(name);
  if (object.is(Kind::kObject)) return object.as_object()->attribute(name);
  return method ? std::optional(bind_method(object, name, method)) : std::nullopt;
}

// Python's index: negative ones count from the end. Negative if outside.
int64_t resolve_index(int64_t index, size_t size) {
  const int64_t n = static_cast<int64_t>(size);
  if (index < 0) index += n;
  return index < n ? std::max<int64_t>(index, -1) : -1;
}

std::optional<Value> find_item(const Value& object, const Value& key) {
  if (object.is(Kind::kDict)) {
    const Value* item = object.as_dict().find(key);
    return item ? std::optional(*item) : std::nullopt;
  }
  if (!key.is_integral()) return std::nullopt;
  if (object.is_string()) {
    const TaggedText& text = object.as_text();
    const int64_t index = resolve_index(key.as_int(), count_code_points(text.bytes()));
    if (index < 0) return std::nullopt;
    const size_t byte = byte_of_code_point(text.bytes(), static_cast<size_t>(index));
    return Value::string(text.substr(byte, byte + code_point_bytes(text.bytes()[byte])));
  }
  if (!object.is(Kind::kSequence) || object.as_sequence().form == Sequence::Form::kDictView ||
      object.as_sequence().form == Sequence::Form::kIterator)
    return std::nullopt;
  const auto& items = object.as_sequence().items;
  const int64_t index = resolve_index(key.as_int(), items.size());
  return index < 0 ? std::nullopt : std::optional(items[static_cast<size_t>(index)]);
}

struct SliceRange {
  int64_t start, step;
  size_t count;
};

// Python's slice.indices().
SliceRange resolve_slice(const Value& start, const Value& stop, const Value& step, size_t size) {
  const auto number = [](const Value& part, int64_t fallback) {
    if (part.is_none()) return fallback;
    if (!part.is_integral()) fail("a slice takes integers, not {}", part.type_name());
    return part.as_int();
  };
  const int64_t n = static_cast<int64_t>(size), by = number(step, 1);
  if (by == 0) fail("a slice step is zero");
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? n : n - 1;
  const auto clamp = [&](const Value& part, int64_t fallback) {
    if (part.is_none()) return fallback;
    const int64_t at = number(part, 0);
    return at < 0 ? std::max(at + n, low) : std::min(at, high);
  };
  const int64_t first = clamp(start, by > 0 ? low : high), last = clamp(stop, by > 0 ? high : low);
  const int64_t span = by > 0 ? last - first : first - last;
  const uint64_t stride = by > 0 ? static_cast<uint64_t>(by) : 0 - static_cast<uint64_t>(by);
  return {first, by, span <= 0 ? 0 : static_cast<size_t>((static_cast<uint64_t>(span) - 1) / stride + 1)};
}

Value slice_text(Budget& budget, const TaggedText& text, const SliceRange& range) {
  budget.charge(text.size());
  if (range.step == 1) {
    const size_t begin = byte_of_code_point(text.bytes(), static_cast<size_t>(range.start));
    const size_t end = begin + byte_of_code_point(std::string_view(text.bytes()).substr(begin), range.count);
    return Value::string(text.substr(begin, end));
  }
  std::vector<size_t> starts;  // of each code point
  for (size_t i = 0; i < text.size(); i += code_point_bytes(text.bytes()[i])) starts.push_back(i);
  TaggedText out;
  for (size_t i = 0; i < range.count; ++i) {
    const size_t byte = starts[static_cast<size_t>(range.start + static_cast<int64_t>(i) * range.step)];
    out.append(text.substr(byte, byte + code_point_bytes(text.bytes()[byte])));
  }
  return Value::string(std::move(out));
}

}  // namespace

std::vector<std::optional<Value>> bind_arguments(std::string_view what, const Arguments& arguments,
                                                 std::initializer_list<std::string_view> names) {
  std::vector<std::optional<Value>> bound(names.size());
  if (arguments.positional.size() > names.size())
    fail("{} takes at most {} arguments, not {}", what, names.size(), arguments.positional.size());
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find(names.begin(), names.end(), name);
    if (place == names.end()) fail("{} takes no argument '{}'", what, name);
    std::optional<Value>& slot = bound[static_cast<size_t>(place - names.begin())];
    if (slot) fail("{} got its argument '{}' twice", what, name);
    slot = value;
  }
  return bound;
}

Value get_attribute(const Value& object, const std::string& name) {
  if (object.is_undefined()) fail("{}, so it has no attribute '{}'", object.hint(), name);
  if (std::optional<Value> method = find_method(object, name)) return *method;
  if (object.is(Kind::kDict))
    if (const Value* item = object.as_dict().find(name)) return *item;
  return no_attribute(object, name);
}

Value get_item(const Value& object, const Value& key) {
  if (object.is_undefined()) fail("{}, so it has no items", object.hint());
  if (std::optional<Value> item = find_item(object, key))
    return object.is_markup() ? item->as_markup() : *item;
  if (!key.is_string())
    return Value::undefined(fmt::format("'{} object' has no such item", object.type_name()));
  if (std::optional<Value> method = find_method(object, key.as_bytes())) return *method;
  return no_attribute(object, key.as_bytes());
}

Value get_slice(Budget& budget, const Value& object, const Value& start, const Value& stop,
                const Value& step) {
  if (object.is_undefined()) fail("{}, so it has no items", object.hint());
  if (object.is_string()) {
    const size_t size = count_code_points(object.as_bytes());
    const Value slice = slice_text(budget, object.as_text(), resolve_slice(start, stop, step, size));
    return object.is_markup() ? slice.as_markup() : slice;
  }
  if (!object.is(Kind::kSequence) || object.as_sequence().form == Sequence::Form::kDictView ||
      object.as_sequence().form == Sequence::Form::kIterator)
    fail("a {} cannot be sliced", object.type_name());
  const Sequence& from = object.as_sequence();
  const SliceRange range = resolve_slice(start, stop, step, from.items.size());
  budget.charge(range.count * kElementCost);
  Sequence out{.form = from.form, .items = {}, .view = {}};
  for (size_t i = 0; i < range.count; ++i)
    out.items.push_back(from.items[static_cast<size_t>(range.start + static_cast<int64_t>(i) * range.step)]);
  return Value::sequence(std::move(out));
}

std::vector<Value> elements_of(Budget& budget, const Value& value) {
  std::vector<Value> elements;
  if (value.is(Kind::kSequence)) {
    const Sequence& sequence = value.as_sequence();
    if (sequence.form == Sequence::Form::kIterator && std::exchange(sequence.read, true))
      unsupported("reading a generator twice is not supported; use '|list'");
    elements = sequence.items;
  } else if (value.is(Kind::kDict)) {
    for (const auto& entry : value.as_dict().entries) elements.push_back(entry.first);
  } else if (value.is_string()) {
    const TaggedText& text = value.as_text();
    budget.charge(text.size() * kElementCost);
    for (size_t i = 0, n; i < text.size(); i += n) {
      n = code_point_bytes(text.bytes()[i]);
      elements.push_back(Value::string(text.substr(i, i + n)));
    }
  } else if (!value.is_undefined()) {
    fail("a {} is not iterable", value.type_name());
  }
  budget.charge(elements.size() * kElementCost);
  return elements;
}

}  // namespace latent::text::jinja
