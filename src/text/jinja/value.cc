// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

namespace latent::text::jinja {
namespace {

// Equal for equal keys only.
std::optional<std::string> key_text(const Value& key) {
  switch (key.kind()) {
    case Value::Kind::kString:
      return "s" + key.as_bytes();
    case Value::Kind::kNone:
      return "none";
    case Value::Kind::kBool:
    case Value::Kind::kInt:
      return fmt::format("n{}", key.as_int());
    case Value::Kind::kFloat: {
      const double d = key.as_real();
      if (d == std::floor(d) && std::fabs(d) < 9e15) return fmt::format("n{}", static_cast<int64_t>(d));
      return fmt::format("f{}", d);
    }
    default:
      return std::nullopt;
  }
}

void check_nesting(int nesting) {
  if (nesting > kMaxNesting)
    throw TemplateError{ErrorCode::kExhausted,
                        fmt::format("lists and dicts are nested deeper than {} levels", kMaxNesting)};
}

}  // namespace

Value Value::undefined(std::string hint) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(hint))}, Origin::kTemplate);
}

Value Value::string(TaggedText text) {
  return Value(std::make_shared<const TaggedText>(std::move(text)), Origin::kTemplate);
}

Value Value::string(std::string bytes, Origin origin) { return string(TaggedText(std::move(bytes), origin)); }

Value Value::sequence(Sequence sequence) {
  for (const Value& item : sequence.items) sequence.nesting = std::max(sequence.nesting, item.nesting() + 1);
  check_nesting(sequence.nesting);
  return Value(std::make_shared<const Sequence>(std::move(sequence)), Origin::kTemplate);
}

Value Value::list(std::vector<Value> items) {
  return sequence({.form = Sequence::Form::kList, .items = std::move(items), .view = {}});
}

Value Value::tuple(std::vector<Value> items) {
  return sequence({.form = Sequence::Form::kTuple, .items = std::move(items), .view = {}});
}

Value Value::dict(Dict dict) {
  for (const auto& [key, value] : dict.entries) dict.nesting = std::max(dict.nesting, value.nesting() + 1);
  check_nesting(dict.nesting);
  return Value(std::make_shared<const Dict>(std::move(dict)), Origin::kTemplate);
}

Value Value::callable(Callable callable) {
  check_nesting(callable.nesting);
  return Value(std::make_shared<const Callable>(std::move(callable)), Origin::kTemplate);
}

std::string Value::hint() const {
  const auto& hint = std::get<Undefined>(storage_).hint;
  return hint ? *hint : "an undefined value";
}

int64_t Value::as_int() const {
  return is(Kind::kBool) ? std::get<bool>(storage_) : std::get<int64_t>(storage_);
}

double Value::as_real() const {
  return is(Kind::kFloat) ? std::get<double>(storage_) : static_cast<double>(as_int());
}

Value Value::as_markup() const {
  Value marked = *this;
  marked.markup_ = true;
  return marked;
}

bool Value::truthy() const {
  switch (kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return as_int() != 0;
    case Kind::kFloat:
      return as_real() != 0;
    case Kind::kString:
      return !as_text().empty();
    case Kind::kSequence:
      return as_sequence().form == Sequence::Form::kIterator || !as_sequence().items.empty();
    case Kind::kDict:
      return !as_dict().entries.empty();
    case Kind::kObject:
    case Kind::kCallable:
      return true;
  }
  return false;
}

bool Value::is_hashable() const {
  if (!is(Kind::kSequence)) return !is(Kind::kDict);
  const Sequence& sequence = as_sequence();
  switch (sequence.form) {
    case Sequence::Form::kList:
      return false;
    case Sequence::Form::kTuple:
      return std::all_of(sequence.items.begin(), sequence.items.end(),
                         [](const Value& v) { return v.is_hashable(); });
    case Sequence::Form::kDictView:
      return sequence.view == "dict_values";
    case Sequence::Form::kRange:
    case Sequence::Form::kIterator:
      return true;
  }
  return true;
}

const char* Value::type_name() const {
  constexpr const char* kNames[] = {"Undefined", "NoneType", "bool", "int",    "float",
                                    "str",       "list",     "dict", "object", "function"};
  constexpr const char* kForms[] = {"list", "tuple", "range", "dict view", "generator"};
  if (is(Kind::kSequence)) return kForms[static_cast<int>(as_sequence().form)];
  return kNames[static_cast<int>(kind())];
}

int Value::nesting() const {
  if (is(Kind::kCallable)) return as_callable().nesting;
  return is(Kind::kSequence) ? as_sequence().nesting : is(Kind::kDict) ? as_dict().nesting : 0;
}

void Dict::set(Value key, Value value) {
  std::optional<std::string> text = key_text(key);
  if (!text) unsupported("a dict key of type {} is not supported", key.type_name());
  const auto [place, added] = index_.try_emplace(std::move(*text), entries.size());
  if (added)
    entries.emplace_back(std::move(key), std::move(value));
  else
    entries[place->second].second = std::move(value);
}

const Value* Dict::find(const Value& key) const {
  const std::optional<std::string> text = key_text(key);
  const auto place = text ? index_.find(*text) : index_.end();
  return place == index_.end() ? nullptr : &entries[place->second].second;
}

const Value* Dict::find(std::string_view key) const {
  const auto place = index_.find("s" + std::string(key));
  return place == index_.end() ? nullptr : &entries[place->second].second;
}

}  // namespace latent::text::jinja
