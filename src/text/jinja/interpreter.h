// SPDX-License-Identifier: Apache-2.0
// Walks a parsed template and writes its text.
#pragma once

#include <ctime>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace latent::text::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

struct RenderLimits {
  size_t max_work = size_t{1} << 28;          // units of Budget; a second or two
  size_t max_output_bytes = size_t{1} << 26;  // of the rendered text
};

// One render. Holds every namespace, loop and scope until it is destroyed; values may point to them.
class Interpreter {
 public:
  // now: what strftime_now formats.
  Interpreter(const RenderLimits& limits, const std::tm& now);

  TaggedText run(const Body& body, const Variables& variables);

  Budget& budget() { return budget_; }
  Value call(const Value& callee, const Arguments& arguments);
  Object* adopt(std::unique_ptr<Object> object);  // charges for it
  const std::tm& now() const { return now_; }

 private:
  struct Scope {
    Scope* parent;
    std::vector<std::pair<std::string_view, Value>> names;
  };
  enum class Flow { kNormal, kBreak, kContinue };

  void enter();  // one level deeper; left by --depth_, or never after an error
  Flow run_body(const Body& body, Scope& scope);
  Flow run_statement(const Stmt& stmt, Scope& scope);
  Flow run_if(const Stmt& stmt, Scope& scope);
  Flow run_for(const Stmt& stmt, Scope& scope);
  void run_with(const Stmt& stmt, Scope& scope);
  TaggedText capture(const Body& body, Scope& scope);
  void write(const TaggedText& text);

  Value evaluate(const Expr& expr, Scope& scope);
  Value evaluate_node(const Expr& expr, Scope& scope);
  Value evaluate_name(const Expr& expr, const Scope& scope);
  Value evaluate_sequence(const Expr& expr, Scope& scope);
  Value evaluate_dict(const Expr& expr, Scope& scope);
  Value evaluate_slice(const Expr& expr, Scope& scope);
  Value evaluate_compare(const Expr& expr, Scope& scope);
  Value evaluate_condition(const Expr& expr, Scope& scope);
  Value evaluate_concat(const Expr& expr, Scope& scope);
  Value evaluate_call(const Expr& expr, Scope& scope, const Value* caller);
  Arguments evaluate_arguments(const Expr& expr, Scope& scope);

  Value make_macro(const Macro& macro, Scope& scope);
  Value call_macro(const Macro& macro, Scope& defined_in, const Arguments& arguments);
  void assign(const Target& target, Value value, Scope& scope);
  Scope& new_scope(Scope* parent);
  static const Value* look_up(std::string_view name, const Scope& scope);
  static void define(std::string_view name, Value value, Scope& scope);

  Budget budget_;
  size_t output_left_;
  std::tm now_;
  int depth_ = 0;
  TaggedText* out_ = nullptr;
  std::deque<Scope> scopes_;
  std::vector<std::unique_ptr<Object>> objects_;
};

// namespace, range, dict, raise_exception, strftime_now.
Variables make_globals();
// Assigns to an attribute; throws if the value is no namespace.
void set_namespace_attribute(const Value& target, const std::string& name, Value value);

}  // namespace latent::text::jinja
