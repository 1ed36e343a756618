// SPDX-License-Identifier: Apache-2.0
// Filters, tests and methods by name, and the rules of attribute and item access.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace latent::text::jinja {

// self is a filter's input, a test's subject or a method's object. Tests return a bool.
using Builtin = Value (*)(Interpreter&, const Value& self, const Arguments&);

// Null if there is none.
Builtin find_filter(std::string_view name);
Builtin find_test(std::string_view name);
// Throws kUnsupported for a method that Python has and this module has not.
Builtin find_string_method(std::string_view name);
Builtin find_dict_method(std::string_view name);
Builtin find_sequence_method(std::string_view name);

// Arguments in the order of `names`, absent ones empty; throws if one does not fit.
std::vector<std::optional<Value>> bind_arguments(std::string_view what, const Arguments& arguments,
                                                 std::initializer_list<std::string_view> names);

// object.name, object[key], object[start:stop:step], as the sandbox of jinja2 has them: an absent attribute
// or item is undefined; looking into something undefined throws.
Value get_attribute(const Value& object, const std::string& name);
Value get_item(const Value& object, const Value& key);
Value get_slice(Budget& budget, const Value& object, const Value& start, const Value& stop,
                const Value& step);

// The elements that a loop over the value sees. Throws for what Python cannot iterate.
std::vector<Value> elements_of(Budget& budget, const Value& value);

}  // namespace latent::text::jinja
