// SPDX-License-Identifier: Apache-2.0
// The tests of "is".
#include <algorithm>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"
#include "text/jinja/text_functions.h"

namespace latent::text::jinja {
namespace {

using Kind = Value::Kind;
using Predicate = bool (*)(const Value&);

// A test of the subject alone.
template <Predicate kPredicate>
Value plain(Interpreter&, const Value& self, const Arguments& arguments) {
  bind_arguments("the test", arguments, {});
  return Value::boolean(kPredicate(self));
}

template <Kind kKind>
bool is_kind(const Value& value) {
  return value.is(kKind);
}

// An undefined value can be called, to raise.
bool is_callable(const Value& value) { return value.is(Kind::kCallable) || value.is_undefined(); }
bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_true(const Value& value) { return value.is(Kind::kBool) && value.as_int() != 0; }
bool is_false(const Value& value) { return value.is(Kind::kBool) && value.as_int() == 0; }
bool is_iterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is(Kind::kSequence) || value.is(Kind::kDict);
}
bool is_sequence(const Value& value) {
  if (value.is(Kind::kSequence))
    return value.as_sequence().form != Sequence::Form::kDictView &&
           value.as_sequence().form != Sequence::Form::kIterator;
  return value.is_undefined() || value.is_string() ||
         value.is(Kind::kDict);  // an undefined value has len() 0
}

double remainder_of_two(const Value& value) {
  if (!value.is_number()) fail("the test takes a number, not {}", value.type_name());
  return std::fabs(
      std::fmod(value.is_integral() ? static_cast<double>(value.as_int() % 2) : value.as_real(), 2));
}
bool is_odd(const Value& value) { return remainder_of_two(value) == 1; }
bool is_even(const Value& value) { return remainder_of_two(value) == 0; }

// str(self).islower() or .isupper(): some letter, and none of the other case.
template <Case kHow, Case kOther>
Value has_case(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  bind_arguments("the test", arguments, {});
  const TaggedText text = to_text(interpreter.budget(), self);
  return Value::boolean(change_case(text, kHow).as_bytes() == text.bytes() &&
                        change_case(text, kOther).as_bytes() != text.bytes());
}

const Value& only_argument(const std::vector<std::optional<Value>>& bound) {
  if (!bound[0]) fail("the test needs an argument");
  return *bound[0];
}

template <char kFirst, char kSecond = 0>
Value compare(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const auto bound = bind_arguments("the test", arguments, {"other"});
  constexpr char kOperator[] = {kFirst, kSecond, 0};
  return Value::boolean(apply_comparison(interpreter.budget(), kOperator, self, only_argument(bound)));
}

Value divisible_by(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Value by = only_argument(bind_arguments("divisibleby", arguments, {"num"}));
  return Value::boolean(!apply_binary(interpreter.budget(), "%", self, by).truthy());
}

// Identity means something for None and bools only.
Value same_as(Interpreter& interpreter, const Value& self, const Arguments& arguments) {
  const Value other = only_argument(bind_arguments("sameas", arguments, {"other"}));
  if (!other.is_none() && !other.is(Kind::kBool))
    unsupported("sameas a {} is not supported", other.type_name());
  return Value::boolean(self.kind() == other.kind() && are_equal(interpreter.budget(), self, other));
}

struct Entry {
  std::string_view name;
  Builtin builtin;
};

constexpr Entry kTests[] = {
    {"boolean", plain<is_kind<Kind::kBool>>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", divisible_by},
    {"even", plain<is_even>},
    {"false", plain<is_false>},
    {"float", plain<is_kind<Kind::kFloat>>},
    {"in", compare<'i', 'n'>},
    {"integer", plain<is_kind<Kind::kInt>>},
    {"iterable", plain<is_iterable>},
    {"lower", has_case<Case::kLower, Case::kUpper>},
    {"mapping", plain<is_kind<Kind::kDict>>},
    {"none", plain<is_kind<Kind::kNone>>},
    {"number", plain<is_number>},
    {"odd", plain<is_odd>},
    {"sameas", same_as},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_kind<Kind::kString>>},
    {"true", plain<is_true>},
    {"undefined", plain<is_kind<Kind::kUndefined>>},
    {"upper", has_case<Case::kUpper, Case::kLower>},
    {"==", compare<'=', '='>},
    {"eq", compare<'=', '='>},
    {"equalto", compare<'=', '='>},
    {"!=", compare<'!', '='>},
    {"ne", compare<'!', '='>},
    {">", compare<'>'>},
    {"gt", compare<'>'>},
    {"greaterthan", compare<'>'>},
    {">=", compare<'>', '='>},
    {"ge", compare<'>', '='>},
    {"<", compare<'<'>},
    {"lt", compare<'<'>},
    {"lessthan", compare<'<'>},
    {"<=", compare<'<', '='>},
    {"le", compare<'<', '='>},
};

}  // namespace

Builtin find_test(std::string_view name) {
  const auto found =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const Entry& e) { return e.name == name; });
  return found == std::end(kTests) ? nullptr : found->builtin;
}

}  // namespace latent::text::jinja
