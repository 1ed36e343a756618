// SPDX-License-Identifier: Apache-2.0
// The parsed template. Depth is bounded by the parser, so that walking and destroying it is safe.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace latent::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind {
    kConst,      // constant
    kName,       // name
    kList,       // children: the elements
    kTuple,      // children: the elements
    kDict,       // children: key, value, key, value …
    kAttribute,  // children: object; name
    kItem,       // children: object, key
    kSlice,      // children: object, start, stop, step; the last three may be null
    kCall,       // children: callee, then arguments
    kFilter,     // children: input, then arguments; name
    kTest,       // children: input, then arguments; name
    kUnary,      // children: operand; name is "-" or "+"
    kNot,        // children: operand
    kBinary,     // children: left, right; name is the operator
    kAnd,        // children: left, right
    kOr,         // children: left, right
    kCompare,    // children: first, second, …; names: the operators between them
    kCondition,  // children: condition, value if true, value if false (may be null)
    kConcat,     // children: the parts of a ~ b ~ c
  };

  Kind kind;
  int line = 0;
  int depth = 1;
  std::string name;
  std::vector<std::string>
      names;  // the last names.size() arguments of a call are keyword arguments of these names
  Value constant;
  std::vector<ExprPtr> children;
};

// What `set` and `for` assign to: a name, an attribute of a namespace, or a tuple of targets.
struct Target {
  std::string name;
  std::string attribute;      // of the namespace `name`, if not empty
  std::vector<Target> items;  // if not empty, the above are unused
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Parameter {
  std::string name;
  ExprPtr fallback;  // null: none
};

struct Macro {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
  bool uses_caller = false;
};

struct Stmt {
  enum class Kind {
    kText,       // text
    kOutput,     // expr
    kIf,         // branches, otherwise
    kFor,        // target, expr, condition (may be null), body, otherwise
    kSet,        // target, expr
    kSetBlock,   // target, body; expr: a chain of filters over the hidden name kCapturedName, or null
    kWith,       // with_targets, with_values, body
    kMacro,      // macro
    kCallBlock,  // expr (a call), macro: the block as the `caller`
    kScope,      // body: a block that only marks its text, as {% generation %}
    kBreak,
    kContinue,
  };

  Kind kind;
  int line = 0;
  std::string text;
  Target target;
  ExprPtr expr;
  ExprPtr condition;
  std::vector<std::pair<ExprPtr, Body>> branches;  // condition and what it guards
  Body body;
  Body otherwise;
  std::unique_ptr<Macro> macro;
  std::vector<Target> with_targets;
  std::vector<ExprPtr> with_values;
};

// Name of the captured text in the filters of {% set x | filter %}…{% endset %}; no template can spell it.
inline constexpr const char* kCapturedName = " captured";

}  // namespace latent::text::jinja
