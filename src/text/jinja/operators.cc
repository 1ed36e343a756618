// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "text/jinja/builtins.h"

namespace latent::text::jinja {
namespace {

using Kind = Value::Kind;

std::string describe(const Value& value) {
  return value.is_undefined() ? "undefined (" + value.hint() + ")" : std::string(value.type_name());
}

[[noreturn]] void bad_operands(std::string_view op, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right})
    if (side->is(Kind::kSequence) && side->as_sequence().form == Sequence::Form::kDictView)
      unsupported("'{}' of a dict view is not supported; use '|list'", op);
  fail("'{}' does not take {} and {}", op, describe(left), describe(right));
}

int64_t checked(bool overflow, int64_t result) {
  if (overflow) unsupported("an integer beyond 64 bits is not supported");
  return result;
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) fail("division by zero");
  if (b == -1) return checked(a == INT64_MIN, -std::max(a, -INT64_MAX));
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  if (base == 0 || base == 1) return exponent == 0 ? 1 : base;
  if (base == -1) return exponent % 2 ? -1 : 1;
  for (; exponent > 0; --exponent) {  // at most 63 steps before it overflows
    const bool overflow = __builtin_mul_overflow(result, base, &result);
    result = checked(overflow, result);
  }
  return result;
}

Value integer_binary(std::string_view op, int64_t a, int64_t b, Origin origin) {
  int64_t r = 0;
  bool overflow = false;
  if (op == "+") overflow = __builtin_add_overflow(a, b, &r);
  if (op == "-") overflow = __builtin_sub_overflow(a, b, &r);
  if (op == "*") overflow = __builtin_mul_overflow(a, b, &r);
  if (op == "+" || op == "-" || op == "*") return Value::integer(checked(overflow, r), origin);
  if (op == "//") return Value::integer(floor_divide(a, b), origin);
  if (op == "%") return Value::integer(b == -1 ? 0 : a - floor_divide(a, b) * b, origin);
  return Value::integer(power(a, b), origin);
}

Value real_binary(std::string_view op, double a, double b, Origin origin) {
  if ((op == "/" || op == "//" || op == "%") && b == 0) fail("division by zero");
  if (op == "+") return Value::real(a + b, origin);
  if (op == "-") return Value::real(a - b, origin);
  if (op == "*") return Value::real(a * b, origin);
  if (op == "/") return Value::real(a / b, origin);
  if (op == "//") return Value::real(std::floor(a / b), origin);
  if (op == "%") {
    const double r = std::fmod(a, b);
    if (r == 0) return Value::real(std::copysign(0.0, b), origin);
    return Value::real((r < 0) != (b < 0) ? r + b : r, origin);
  }
  const double r = std::pow(a, b);
  if (!std::isfinite(r) && std::isfinite(a)) fail("{} ** {} is out of range", a, b);
  return Value::real(r, origin);
}

Value number_binary(std::string_view op, const Value& left, const Value& right) {
  const Origin origin = mix(left.origin(), right.origin());
  const bool negative_power = op == "**" && right.as_real() < 0;
  if (left.is_integral() && right.is_integral() && op != "/" && !negative_power)
    return integer_binary(op, left.as_int(), right.as_int(), origin);
  return real_binary(op, left.as_real(), right.as_real(), origin);
}

Value repeat(Budget& budget, const Value& value, int64_t times) {
  const size_t count = static_cast<size_t>(std::max<int64_t>(times, 0));
  const auto charge = [&](size_t cost) {
    if (cost > 0 && count > SIZE_MAX / cost) budget.charge(SIZE_MAX);
    budget.charge(cost * count);
  };
  if (value.is_string()) {
    charge(value.as_text().size());
    TaggedText out;
    for (size_t i = 0; i < count && !value.as_text().empty(); ++i) out.append(value.as_text());
    return Value::string(std::move(out));
  }
  const Sequence& sequence = value.as_sequence();
  charge(sequence.items.size() * kElementCost);
  Sequence out{.form = sequence.form, .items = {}, .view = {}};
  for (size_t i = 0; i < count && !sequence.items.empty(); ++i)
    out.items.insert(out.items.end(), sequence.items.begin(), sequence.items.end());
  return Value::sequence(std::move(out));
}

bool is_list_or_tuple(const Value& value) {
  return value.is(Kind::kSequence) && (value.as_sequence().form == Sequence::Form::kList ||
                                       value.as_sequence().form == Sequence::Form::kTuple);
}

// jinja2 escapes for HTML what is added to a text marked by 'safe', even where nothing else escapes.
void check_markup(const Value& marked, const Value& other) {
  if (marked.is_markup() && !other.is_markup() &&
      other.as_bytes().find_first_of("&<>'\"") != std::string::npos)
    unsupported("adding a text with any of &<>'\" to one marked by 'safe' is not supported");
}

Value concatenate(Budget& budget, const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    check_markup(left, right);
    check_markup(right, left);
    budget.charge(left.as_text().size() + right.as_text().size());
    TaggedText out = left.as_text();
    out.append(right.as_text());
    const Value sum = Value::string(std::move(out));
    return left.is_markup() || right.is_markup() ? sum.as_markup() : sum;
  }
  if (!is_list_or_tuple(left) || !is_list_or_tuple(right) ||
      left.as_sequence().form != right.as_sequence().form)
    bad_operands("+", left, right);
  budget.charge((left.as_sequence().items.size() + right.as_sequence().items.size()) * kElementCost);
  Sequence out = left.as_sequence();
  out.items.insert(out.items.end(), right.as_sequence().items.begin(), right.as_sequence().items.end());
  return Value::sequence(std::move(out));
}

bool equal_dicts(Budget& budget, const Dict& left, const Dict& right) {
  if (left.entries.size() != right.entries.size()) return false;
  return std::all_of(left.entries.begin(), left.entries.end(), [&](const auto& entry) {
    const Value* other = right.find(entry.first);
    return other && are_equal(budget, entry.second, *other);
  });
}

bool equal_sequences(Budget& budget, const Sequence& left, const Sequence& right) {
  if (left.form != right.form || left.items.size() != right.items.size()) return false;
  return std::equal(left.items.begin(), left.items.end(), right.items.begin(),
                    [&](const Value& a, const Value& b) { return are_equal(budget, a, b); });
}

// < 0, 0, > 0; throws for what Python does not order.
int order(Budget& budget, std::string_view op, const Value& left, const Value& right) {
  budget.charge(kNodeCost);
  const auto sign = [](auto a, auto b) { return a < b ? -1 : a > b ? 1 : 0; };
  if (left.is_integral() && right.is_integral()) return sign(left.as_int(), right.as_int());
  if (left.is_number() && right.is_number()) return sign(left.as_real(), right.as_real());
  if (left.is_string() && right.is_string()) {
    budget.charge(std::min(left.as_text().size(), right.as_text().size()));
    return left.as_bytes().compare(right.as_bytes());  // UTF-8 sorts as its code points
  }
  if (!is_list_or_tuple(left) || !is_list_or_tuple(right) ||
      left.as_sequence().form != right.as_sequence().form)
    bad_operands(op, left, right);
  const auto &a = left.as_sequence().items, &b = right.as_sequence().items;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    if (!are_equal(budget, a[i], b[i])) return order(budget, op, a[i], b[i]);
  return sign(a.size(), b.size());
}

bool contains(Budget& budget, const Value& container, const Value& element) {
  if (container.is_string()) {
    if (!element.is_string()) fail("'in' a string takes a string, not {}", describe(element));
    return find_bytes(budget, container.as_bytes(), element.as_bytes(), 0) != std::string_view::npos;
  }
  if (container.is(Kind::kDict)) {
    if (!element.is_hashable()) fail("a {} is no key of a dict", element.type_name());
    return container.as_dict().find(element) != nullptr;
  }
  if (container.is_undefined()) return false;
  if (!container.is(Kind::kSequence)) fail("'in' takes no {}", describe(container));
  const auto& items = container.as_sequence().items;
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& item) { return are_equal(budget, item, element); });
}

}  // namespace

size_t find_bytes(Budget& budget, std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  const size_t at =
      found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
  budget.charge((found ? at : text.size()) - from + needle.size());
  return at;
}

Value apply_unary(char op, const Value& operand) {
  if (!operand.is_number()) fail("unary '{}' does not take {}", op, describe(operand));
  const bool negate = op == '-';
  if (operand.is(Kind::kFloat))
    return Value::real(negate ? -operand.as_real() : operand.as_real(), operand.origin());
  const int64_t i = operand.as_int();
  return Value::integer(negate ? checked(i == INT64_MIN, -std::max(i, -INT64_MAX)) : i, operand.origin());
}

Value apply_binary(Budget& budget, std::string_view op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) return number_binary(op, left, right);
  const auto repeats = [](const Value& v) { return v.is_string() || is_list_or_tuple(v); };
  if (op == "*" && repeats(left) && right.is_integral()) return repeat(budget, left, right.as_int());
  if (op == "*" && left.is_integral() && repeats(right)) return repeat(budget, right, left.as_int());
  if (op == "%" && left.is_string()) unsupported("string formatting with '%' is not supported");
  if (op != "+") bad_operands(op, left, right);
  return concatenate(budget, left, right);
}

bool are_equal(Budget& budget, const Value& left, const Value& right) {
  budget.charge(kNodeCost);
  if (left.is_integral() && right.is_integral()) return left.as_int() == right.as_int();
  if (left.is_number() && right.is_number()) return left.as_real() == right.as_real();
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kString:
      budget.charge(std::min(left.as_text().size(), right.as_text().size()));
      return left.as_bytes() == right.as_bytes();
    case Kind::kSequence:
      return equal_sequences(budget, left.as_sequence(), right.as_sequence());
    case Kind::kDict:
      return equal_dicts(budget, left.as_dict(), right.as_dict());
    case Kind::kObject:
      return left.as_object() == right.as_object();
    case Kind::kCallable:
      return &left.as_callable() == &right.as_callable();
    default:
      return true;  // undefined, None
  }
}

bool apply_comparison(Budget& budget, std::string_view op, const Value& left, const Value& right) {
  if (op == "==") return are_equal(budget, left, right);
  if (op == "!=") return !are_equal(budget, left, right);
  if (op == "in") return contains(budget, right, left);
  if (op == "not in") return !contains(budget, right, left);
  const bool nan = (left.is(Kind::kFloat) && std::isnan(left.as_real())) ||
                   (right.is(Kind::kFloat) && std::isnan(right.as_real()));
  const int result = order(budget, op, left, right);
  if (nan) return false;
  return op == "<" ? result < 0 : op == "<=" ? result <= 0 : op == ">" ? result > 0 : result >= 0;
}

}  // namespace latent::text::jinja
