// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"
#include "text/jinja/printing.h"

namespace latent::text::jinja {
namespace {

constexpr int kMaxDepth = 600;  // of nodes at work: bounds the stack, and with it the recursion of macros

class Loop : public Object {
 public:
  explicit Loop(std::vector<Value> elements) : elements_(std::move(elements)) {}

  const std::vector<Value>& elements() const { return elements_; }
  void set_index(size_t index) { index_ = index; }

  std::optional<Value> attribute(std::string_view name) const override {
    const auto integer = [](size_t i) { return Value::integer(static_cast<int64_t>(i)); };
    const size_t left = elements_.size() - index_;
    if (name == "index") return integer(index_ + 1);
    if (name == "index0") return integer(index_);
    if (name == "revindex") return integer(left);
    if (name == "revindex0") return integer(left - 1);
    if (name == "first") return Value::boolean(index_ == 0);
    if (name == "last") return Value::boolean(left == 1);
    if (name == "length") return integer(elements_.size());
    if (name == "depth") return integer(1);  // only recursive loops go deeper
    if (name == "depth0") return integer(0);
    if (name == "previtem")
      return index_ > 0 ? elements_[index_ - 1] : Value::undefined("there is no previous item");
    if (name == "nextitem")
      return left > 1 ? elements_[index_ + 1] : Value::undefined("there is no next item");
    if (name == "cycle")
      return Value::callable(
          {"cycle", [this](Interpreter&, const Arguments& arguments) { return cycle(arguments); }});
    if (name == "changed") unsupported("loop.changed is not supported");
    return std::nullopt;
  }

 private:
  Value cycle(const Arguments& arguments) const {
    if (arguments.positional.empty() || !arguments.named.empty())
      fail("loop.cycle takes values to cycle through");
    return arguments.positional[index_ % arguments.positional.size()];
  }

  std::vector<Value> elements_;
  size_t index_ = 0;
};

}  // namespace

Interpreter::Interpreter(const RenderLimits& limits, const std::tm& now)
    : budget_(limits.max_work), output_left_(limits.max_output_bytes), now_(now) {}

TaggedText Interpreter::run(const Body& body, const Variables& variables) {
  const Variables globals = make_globals();
  Scope& context = new_scope(nullptr);
  for (const Variables* given : {&globals, &variables})
    for (const auto& [name, value] : *given) define(name, value, context);
  return capture(body, new_scope(&context));
}

Object* Interpreter::adopt(std::unique_ptr<Object> object) {
  budget_.charge(kElementCost);
  objects_.push_back(std::move(object));
  return objects_.back().get();
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  if (callee.is_undefined()) fail("{}, so it cannot be called", callee.hint());
  if (!callee.is(Value::Kind::kCallable)) fail("a {} cannot be called", callee.type_name());
  return callee.as_callable().call(*this, arguments);
}

// --- Scopes

Interpreter::Scope& Interpreter::new_scope(Scope* parent) {
  budget_.charge(kElementCost);
  scopes_.push_back({parent, {}});
  return scopes_.back();
}

const Value* Interpreter::look_up(std::string_view name, const Scope& scope) {
  for (const Scope* s = &scope; s; s = s->parent)
    for (const auto& [known, value] : s->names)
      if (known == name) return &value;
  return nullptr;
}

void Interpreter::define(std::string_view name, Value value, Scope& scope) {
  for (auto& [known, old] : scope.names)
    if (known == name) {
      old = std::move(value);
      return;
    }
  scope.names.emplace_back(name, std::move(value));
}

void Interpreter::assign(const Target& target, Value value, Scope& scope) {
  if (!target.attribute.empty()) {
    const Value* object = look_up(target.name, scope);
    if (!object) fail("'{}' is undefined", target.name);
    return set_namespace_attribute(*object, target.attribute, std::move(value));
  }
  if (target.items.empty()) return define(target.name, std::move(value), scope);
  std::vector<Value> values = elements_of(budget_, value);
  if (values.size() != target.items.size())
    fail("{} values for {} names", values.size(), target.items.size());
  for (size_t i = 0; i < values.size(); ++i) assign(target.items[i], std::move(values[i]), scope);
}

// --- Statements

void Interpreter::write(const TaggedText& text) {
  budget_.charge(text.size());
  if (out_->size() + text.size() > output_left_)
    throw TemplateError{ErrorCode::kExhausted,
                        fmt::format("the rendered text is longer than {} bytes", output_left_)};
  out_->append(text);
}

TaggedText Interpreter::capture(const Body& body, Scope& scope) {
  TaggedText text;
  TaggedText* const outer = std::exchange(out_, &text);
  run_body(body, scope);
  out_ = outer;
  return text;
}

void Interpreter::enter() {
  if (depth_ >= kMaxDepth) throw TemplateError{ErrorCode::kExhausted, "the template recurses too deep"};
  ++depth_;
}

Interpreter::Flow Interpreter::run_body(const Body& body, Scope& scope) {
  enter();
  for (const auto& stmt : body) {
    try {
      const Flow flow = run_statement(*stmt, scope);
      if (flow != Flow::kNormal) {
        --depth_;
        return flow;
      }
    } catch (TemplateError& error) {
      if (error.line == 0) error.line = stmt->line;
      throw;
    }
  }
  --depth_;
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_statement(const Stmt& stmt, Scope& scope) {
  budget_.charge(kNodeCost);
  switch (stmt.kind) {
    case Stmt::Kind::kText:
      write(TaggedText(stmt.text, Origin::kTemplate));
      break;
    case Stmt::Kind::kOutput:
      write(to_text(budget_, evaluate(*stmt.expr, scope)));
      break;
    case Stmt::Kind::kIf:
      return run_if(stmt, scope);
    case Stmt::Kind::kFor:
      return run_for(stmt, scope);
    case Stmt::Kind::kSet:
      assign(stmt.target, evaluate(*stmt.expr, scope), scope);
      break;
    case Stmt::Kind::kSetBlock: {
      Scope& inner = new_scope(&scope);
      Value text = Value::string(capture(stmt.body, inner));
      define(kCapturedName, text, inner);
      assign(stmt.target, stmt.expr ? evaluate(*stmt.expr, inner) : text, scope);
      break;
    }
    case Stmt::Kind::kWith:
      run_with(stmt, scope);
      break;
    case Stmt::Kind::kMacro:
      define(stmt.macro->name, make_macro(*stmt.macro, scope), scope);
      break;
    case Stmt::Kind::kCallBlock: {
      const Value caller = make_macro(*stmt.macro, scope);
      write(to_text(budget_, evaluate_call(*stmt.expr, scope, &caller)));
      break;
    }
    case Stmt::Kind::kScope:
      run_body(stmt.body, new_scope(&scope));
      break;
    case Stmt::Kind::kBreak:
      return Flow::kBreak;
    case Stmt::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_if(const Stmt& stmt, Scope& scope) {
  for (const auto& [condition, body] : stmt.branches)
    if (evaluate(*condition, scope).truthy()) return run_body(body, scope);
  return run_body(stmt.otherwise, scope);
}

Interpreter::Flow Interpreter::run_for(const Stmt& stmt, Scope& scope) {
  std::vector<Value> elements = elements_of(budget_, evaluate(*stmt.expr, scope));
  if (stmt.condition) {
    std::vector<Value> kept;
    for (Value& element : elements) {
      Scope& inner = new_scope(&scope);
      assign(stmt.target, element, inner);
      if (evaluate(*stmt.condition, inner).truthy()) kept.push_back(std::move(element));
    }
    elements = std::move(kept);
  }
  bool completed = false;  // jinja2's else runs unless some iteration came to its end
  auto* loop = static_cast<Loop*>(adopt(std::make_unique<Loop>(std::move(elements))));
  for (size_t i = 0; i < loop->elements().size(); ++i) {
    Scope& inner = new_scope(&scope);
    loop->set_index(i);
    define("loop", Value::object(loop), inner);
    assign(stmt.target, loop->elements()[i], inner);
    const Flow flow = run_body(stmt.body, inner);
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNormal;
  }
  return completed ? Flow::kNormal : run_body(stmt.otherwise, new_scope(&scope));
}

void Interpreter::run_with(const Stmt& stmt, Scope& scope) {
  Scope& inner = new_scope(&scope);
  for (size_t i = 0; i < stmt.with_targets.size(); ++i)
    assign(stmt.with_targets[i], evaluate(*stmt.with_values[i], scope), inner);
  run_body(stmt.body, inner);
}

// --- Macros

Value Interpreter::make_macro(const Macro& macro, Scope& scope) {
  return Value::callable({macro.name, [&macro, &scope](Interpreter& interpreter, const Arguments& arguments) {
                            return interpreter.call_macro(macro, scope, arguments);
                          }});
}

Value Interpreter::call_macro(const Macro& macro, Scope& defined_in, const Arguments& arguments) {
  Scope& scope = new_scope(&defined_in);
  if (arguments.positional.size() > macro.parameters.size())
    fail("the macro '{}' takes at most {} arguments, not {}", macro.name, macro.parameters.size(),
         arguments.positional.size());
  std::vector<std::optional<Value>> bound(macro.parameters.size());
  std::copy(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  Value caller = Value::undefined("no caller defined");
  for (const auto& [name, value] : arguments.named) {
    const auto place = std::find_if(macro.parameters.begin(), macro.parameters.end(),
                                    [&](const Parameter& parameter) { return parameter.name == name; });
    const size_t index = static_cast<size_t>(place - macro.parameters.begin());
    if (place != macro.parameters.end() && !bound[index])
      bound[index] = value;
    else if (name == "caller" && macro.uses_caller)
      caller = value;
    else
      fail("the macro '{}' takes no argument '{}'", macro.name, name);
  }
  for (size_t i = 0; i < bound.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    if (!bound[i] && parameter.fallback) bound[i] = evaluate(*parameter.fallback, scope);
    if (!bound[i])
      bound[i] = Value::undefined(fmt::format("parameter '{}' was not provided", parameter.name));
    define(parameter.name, std::move(*bound[i]), scope);
  }
  if (macro.uses_caller) define("caller", caller, scope);
  return Value::string(capture(macro.body, scope));
}

// --- Expressions

Value Interpreter::evaluate(const Expr& expr, Scope& scope) {
  try {
    budget_.charge(kNodeCost);
    enter();
    Value value = evaluate_node(expr, scope);
    --depth_;
    return value;
  } catch (TemplateError& error) {
    if (error.line == 0) error.line = expr.line;
    throw;
  }
}

Value Interpreter::evaluate_node(const Expr& expr, Scope& scope) {
  const auto child = [&](size_t i) { return evaluate(*expr.children[i], scope); };
  switch (expr.kind) {
    case Expr::Kind::kConst:
      return expr.constant;
    case Expr::Kind::kName:
      return evaluate_name(expr, scope);
    case Expr::Kind::kList:
    case Expr::Kind::kTuple:
      return evaluate_sequence(expr, scope);
    case Expr::Kind::kDict:
      return evaluate_dict(expr, scope);
    case Expr::Kind::kAttribute:
      return get_attribute(child(0), expr.name);
    case Expr::Kind::kItem: {
      const Value object = child(0);
      return get_item(object, child(1));
    }
    case Expr::Kind::kSlice:
      return evaluate_slice(expr, scope);
    case Expr::Kind::kCall:
      return evaluate_call(expr, scope, nullptr);
    case Expr::Kind::kFilter: {
      const Value input = child(0);
      return find_filter(expr.name)(*this, input, evaluate_arguments(expr, scope));
    }
    case Expr::Kind::kTest: {
      const Value subject = child(0);
      return find_test(expr.name)(*this, subject, evaluate_arguments(expr, scope));
    }
    case Expr::Kind::kUnary:
      return apply_unary(expr.name[0], child(0));
    case Expr::Kind::kNot:
      return Value::boolean(!child(0).truthy());
    case Expr::Kind::kBinary: {
      const Value left = child(0);
      return apply_binary(budget_, expr.name, left, child(1));
    }
    case Expr::Kind::kAnd: {
      Value left = child(0);
      return left.truthy() ? child(1) : left;
    }
    case Expr::Kind::kOr: {
      Value left = child(0);
      return left.truthy() ? left : child(1);
    }
    case Expr::Kind::kCompare:
      return evaluate_compare(expr, scope);
    case Expr::Kind::kCondition:
      return evaluate_condition(expr, scope);
    case Expr::Kind::kConcat:
      return evaluate_concat(expr, scope);
  }
  return {};
}

Value Interpreter::evaluate_name(const Expr& expr, const Scope& scope) {
  const Value* value = look_up(expr.name, scope);
  return value ? *value : Value::undefined(fmt::format("'{}' is undefined", expr.name));
}

Value Interpreter::evaluate_sequence(const Expr& expr, Scope& scope) {
  std::vector<Value> items;
  for (const ExprPtr& child : expr.children) items.push_back(evaluate(*child, scope));
  budget_.charge(items.size() * kElementCost);
  return expr.kind == Expr::Kind::kList ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

Value Interpreter::evaluate_dict(const Expr& expr, Scope& scope) {
  Dict dict;
  for (size_t i = 0; i < expr.children.size(); i += 2) {
    Value key = evaluate(*expr.children[i], scope);
    dict.set(std::move(key), evaluate(*expr.children[i + 1], scope));
  }
  budget_.charge(dict.entries.size() * 2 * kElementCost);
  return Value::dict(std::move(dict));
}

Value Interpreter::evaluate_slice(const Expr& expr, Scope& scope) {
  const auto part = [&](size_t i) {
    return expr.children[i] ? evaluate(*expr.children[i], scope) : Value::none();
  };
  const Value object = part(0), start = part(1), stop = part(2), step = part(3);
  return get_slice(budget_, object, start, stop, step);
}

Value Interpreter::evaluate_compare(const Expr& expr, Scope& scope) {
  Value left = evaluate(*expr.children[0], scope);
  for (size_t i = 0; i < expr.names.size(); ++i) {
    Value right = evaluate(*expr.children[i + 1], scope);
    if (!apply_comparison(budget_, expr.names[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_condition(const Expr& expr, Scope& scope) {
  if (evaluate(*expr.children[0], scope).truthy()) return evaluate(*expr.children[1], scope);
  if (expr.children[2]) return evaluate(*expr.children[2], scope);
  return Value::undefined(fmt::format("the inline if on line {} was false and has no else", expr.line));
}

Value Interpreter::evaluate_concat(const Expr& expr, Scope& scope) {
  TaggedText out;
  for (const ExprPtr& child : expr.children) out.append(to_text(budget_, evaluate(*child, scope)));
  return Value::string(std::move(out));
}

Arguments Interpreter::evaluate_arguments(const Expr& expr, Scope& scope) {
  Arguments arguments;
  const size_t first_named = expr.children.size() - expr.names.size();
  for (size_t i = 1; i < expr.children.size(); ++i) {
    Value value = evaluate(*expr.children[i], scope);
    if (i < first_named)
      arguments.positional.push_back(std::move(value));
    else
      arguments.named.emplace_back(expr.names[i - first_named], std::move(value));
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Expr& expr, Scope& scope, const Value* caller) {
  const Value callee = evaluate(*expr.children[0], scope);
  Arguments arguments = evaluate_arguments(expr, scope);
  if (caller) arguments.named.emplace_back("caller", *caller);
  return call(callee, arguments);
}

}  // namespace latent::text::jinja
