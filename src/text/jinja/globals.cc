// SPDX-License-Identifier: Apache-2.0
// The functions that `transformers` gives to a template.
#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/printing.h"

namespace latent::text::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // jinja2's sandbox

class Namespace : public Object {
 public:
  std::optional<Value> attribute(std::string_view name) const override {
    const Value* value = values_.find(name);
    return value ? std::optional(*value) : std::nullopt;
  }
  void set(std::string name, Value value) { values_.set(Value::string(std::move(name)), std::move(value)); }

 private:
  Dict values_;
};

Dict make_dict(const char* what, const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1 ||
      (arguments.positional.size() == 1 && !arguments.positional[0].is(Value::Kind::kDict)))
    unsupported("{} of anything but a dict and keywords is not supported", what);
  if (!arguments.positional.empty()) dict = arguments.positional[0].as_dict();
  for (const auto& [name, value] : arguments.named) dict.set(Value::string(name), value);
  return dict;
}

Value make_namespace(Interpreter& interpreter, const Arguments& arguments) {
  auto made = std::make_unique<Namespace>();
  for (auto& [name, value] : make_dict("namespace()", arguments).entries)
    if (name.is_string()) made->set(name.as_bytes(), std::move(value));
  return Value::object(interpreter.adopt(std::move(made)));
}

Value make_range(Interpreter& interpreter, const Arguments& arguments) {
  const std::vector<Value>& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.named.empty())
    fail("range takes one to three integers");
  for (const Value& value : given)
    if (!value.is_integral()) fail("range takes integers, not {}", value.type_name());
  const __int128 start = given.size() > 1 ? given[0].as_int() : 0;
  const __int128 stop = given[given.size() > 1 ? 1 : 0].as_int();
  const __int128 step = given.size() > 2 ? given[2].as_int() : 1;
  if (step == 0) fail("range takes no step of zero");
  const __int128 span = step > 0 ? stop - start : start - stop;
  const __int128 count = span <= 0 ? 0 : (span - 1) / (step > 0 ? step : -step) + 1;
  if (count > kMaxRange)
    throw TemplateError{ErrorCode::kExhausted, fmt::format("a range has more than {} elements", kMaxRange)};
  interpreter.budget().charge(static_cast<size_t>(count) * kElementCost);
  Sequence range{.form = Sequence::Form::kRange, .items = {}, .view = {}};
  for (__int128 i = 0; i < count; ++i)
    range.items.push_back(Value::integer(static_cast<int64_t>(start + i * step)));
  return Value::sequence(std::move(range));
}

Value raise_exception(Interpreter& interpreter, const Arguments& arguments) {
  const auto bound = bind_arguments("raise_exception", arguments, {"message"});
  fail("{}", bound[0] ? to_text(interpreter.budget(), *bound[0]).bytes()
                      : "the template refuses this conversation");
}

Value strftime_now(Interpreter& interpreter, const Arguments& arguments) {
  const auto bound = bind_arguments("strftime_now", arguments, {"format"});
  if (!bound[0] || !bound[0]->is_string()) fail("strftime_now takes a format");
  char buffer[256];
  const std::string& format = bound[0]->as_bytes();
  const size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &interpreter.now());
  if (size == 0 && !format.empty()) fail("strftime_now cannot format '{}'", format);
  return Value::string(std::string(buffer, size));
}

}  // namespace

Variables make_globals() {
  const auto function = [](const char* name, Value (*call)(Interpreter&, const Arguments&)) {
    return std::pair<std::string, Value>(name, Value::callable({name, call}));
  };
  return {function("namespace", make_namespace), function("range", make_range),
          function("raise_exception", raise_exception), function("strftime_now", strftime_now),
          function("dict", [](Interpreter&, const Arguments& arguments) {
            return Value::dict(make_dict("dict()", arguments));
          })};
}

void set_namespace_attribute(const Value& target, const std::string& name, Value value) {
  auto* space = target.is(Value::Kind::kObject) ? dynamic_cast<Namespace*>(target.as_object()) : nullptr;
  if (!space) fail("only a namespace has attributes to set, not a {}", target.type_name());
  space->set(name, std::move(value));
}

}  // namespace latent::text::jinja
