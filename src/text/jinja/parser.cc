// SPDX-License-Identifier: Apache-2.0
// Recursive descent, one function per level of jinja2's grammar, lowest precedence first.
#include "text/jinja/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "text/jinja/builtins.h"
#include "text/jinja/lexer.h"

namespace latent::text::jinja {
namespace {

constexpr int kMaxDepth = 100;  // of parentheses and of tags in one another, and of operators in a row

using Kind = Token::Kind;

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize_template(source)) {}

  Body run() {
    try {
      std::string end;
      return parse_body({}, end);
    } catch (TemplateError& error) {
      if (error.line == 0) error.line = current().line;
      throw;
    }
  }

 private:
  // --- Tokens

  const Token& current() const { return tokens_[next_]; }
  const Token& look_ahead() const { return tokens_[std::min(next_ + 1, tokens_.size() - 1)]; }
  Token take() { return tokens_[next_ + 1 < tokens_.size() ? next_++ : next_]; }
  static bool is(const Token& token, Kind kind, std::string_view value) {
    return token.kind == kind && token.value == value;
  }
  bool at_operator(std::string_view value) const { return is(current(), Kind::kOperator, value); }
  bool at_name(std::string_view value) const { return is(current(), Kind::kName, value); }
  bool skip_operator(std::string_view value) { return at_operator(value) && (take(), true); }
  bool skip_name(std::string_view value) { return at_name(value) && (take(), true); }

  static std::string describe(const Token& token) {
    switch (token.kind) {
      case Kind::kEnd:
        return "the end of the template";
      case Kind::kOutputEnd:
        return "'}}'";
      case Kind::kBlockEnd:
        return "'%}'";
      case Kind::kString:
        return "a string";
      default:
        return "'" + token.value + "'";
    }
  }

  void expect_operator(std::string_view value) {
    if (!skip_operator(value)) fail("expected '{}', found {}", value, describe(current()));
  }

  std::string expect_name() {
    if (current().kind != Kind::kName) fail("expected a name, found {}", describe(current()));
    return take().value;
  }

  void expect(Kind kind, std::string_view what) {
    if (current().kind != kind) fail("expected '{}', found {}", what, describe(current()));
    take();
  }

  // --- Nodes

  struct Nested {
    explicit Nested(int& depth) : depth_(depth) {
      if (++depth_ > kMaxDepth)
        throw TemplateError{ErrorCode::kExhausted, fmt::format("nested deeper than {} levels", kMaxDepth)};
    }
    ~Nested() { --depth_; }
    int& depth_;
  };

  template <class... Children>
  ExprPtr make(Expr::Kind kind, int line, std::string name = {}, Children... children) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->line = line;
    expr->name = std::move(name);
    (add(*expr, std::move(children)), ...);
    return expr;
  }

  static void add(Expr& expr, ExprPtr child) {
    if (child) expr.depth = std::max(expr.depth, child->depth + 1);
    if (expr.depth > kMaxDepth)
      throw TemplateError{ErrorCode::kExhausted,
                          fmt::format("an expression is deeper than {} levels", kMaxDepth)};
    expr.children.push_back(std::move(child));
  }

  ExprPtr constant(int line, Value value) {
    ExprPtr expr = make(Expr::Kind::kConst, line);
    expr->constant = std::move(value);
    return expr;
  }

  // --- Expressions

  ExprPtr parse_expression() {  // a if b else c
    const Nested nested(depth_);
    const int line = current().line;
    ExprPtr value = parse_or();
    while (skip_name("if")) {
      ExprPtr condition = parse_or();
      ExprPtr otherwise = skip_name("else") ? parse_expression() : nullptr;
      value = make(Expr::Kind::kCondition, line, {}, std::move(condition), std::move(value),
                   std::move(otherwise));
    }
    return value;
  }

  ExprPtr parse_or() {
    const int line = current().line;
    ExprPtr left = parse_and();
    while (skip_name("or")) left = make(Expr::Kind::kOr, line, {}, std::move(left), parse_and());
    return left;
  }

  ExprPtr parse_and() {
    const int line = current().line;
    ExprPtr left = parse_not();
    while (skip_name("and")) left = make(Expr::Kind::kAnd, line, {}, std::move(left), parse_not());
    return left;
  }

  ExprPtr parse_not() {
    const Nested nested(depth_);
    const int line = current().line;
    if (skip_name("not")) return make(Expr::Kind::kNot, line, {}, parse_not());
    return parse_compare();
  }

  // The comparison operator at hand, taken; empty if there is none.
  std::string take_comparison() {
    constexpr std::string_view kOperators[] = {"==", "!=", "<", "<=", ">", ">="};
    if (current().kind == Kind::kOperator &&
        std::find(std::begin(kOperators), std::end(kOperators), current().value) != std::end(kOperators))
      return take().value;
    if (skip_name("in")) return "in";
    if (!at_name("not") || !is(look_ahead(), Kind::kName, "in")) return {};
    take();
    take();
    return "not in";
  }

  ExprPtr parse_compare() {
    const int line = current().line;
    ExprPtr first = parse_sum();
    ExprPtr compare;
    for (std::string op = take_comparison(); !op.empty(); op = take_comparison()) {
      if (!compare) compare = make(Expr::Kind::kCompare, line, {}, std::move(first));
      compare->names.push_back(op);
      add(*compare, parse_sum());
    }
    return compare ? std::move(compare) : std::move(first);
  }

  using Level = ExprPtr (Parser::*)();

  ExprPtr parse_binary(Level operand, std::initializer_list<std::string_view> operators) {
    const int line = current().line;
    ExprPtr left = (this->*operand)();
    while (current().kind == Kind::kOperator &&
           std::find(operators.begin(), operators.end(), current().value) != operators.end()) {
      std::string op = take().value;
      left = make(Expr::Kind::kBinary, line, std::move(op), std::move(left), (this->*operand)());
    }
    return left;
  }

  ExprPtr parse_sum() { return parse_binary(&Parser::parse_concat, {"+", "-"}); }

  ExprPtr parse_concat() {
    const int line = current().line;
    ExprPtr first = parse_product();
    if (!at_operator("~")) return first;
    ExprPtr concat = make(Expr::Kind::kConcat, line, {}, std::move(first));
    while (skip_operator("~")) add(*concat, parse_product());
    return concat;
  }

  ExprPtr parse_product() { return parse_binary(&Parser::parse_power, {"*", "/", "//", "%"}); }
  ExprPtr parse_power() { return parse_binary(&Parser::parse_unary_and_filters, {"**"}); }
  ExprPtr parse_unary_and_filters() { return parse_unary(true); }

  ExprPtr parse_unary(bool with_filters) {
    const Nested nested(depth_);
    const int line = current().line;
    ExprPtr expr;
    if (at_operator("-") || at_operator("+")) {
      std::string op = take().value;
      expr = make(Expr::Kind::kUnary, line, std::move(op), parse_unary(false));
    } else {
      expr = parse_primary();
    }
    expr = parse_postfix(std::move(expr));
    return with_filters ? parse_filters(std::move(expr)) : std::move(expr);
  }

  ExprPtr parse_primary() {
    const Token token = current();
    if (token.kind == Kind::kName) return parse_name();
    if (token.kind == Kind::kString) {
      std::string text;
      while (current().kind == Kind::kString) text += take().value;
      return constant(token.line, Value::string(std::move(text)));
    }
    if (token.kind == Kind::kInteger || token.kind == Kind::kFloat) return parse_number();
    if (skip_operator("(")) {
      ExprPtr inner = parse_tuple(&Parser::parse_expression, true);
      expect_operator(")");
      return inner;
    }
    if (skip_operator("[")) return parse_list(token.line);
    if (skip_operator("{")) return parse_dict(token.line);
    fail("unexpected {}", describe(token));
  }

  ExprPtr parse_name() {
    const Token token = take();
    const std::string& name = token.value;
    if (name == "true" || name == "True") return constant(token.line, Value::boolean(true));
    if (name == "false" || name == "False") return constant(token.line, Value::boolean(false));
    if (name == "none" || name == "None") return constant(token.line, Value::none());
    if (!macros_.empty() && name == "caller") macros_.back()->uses_caller = true;
    if (!macros_.empty() && (name == "varargs" || name == "kwargs"))
      unsupported("'{}' in a macro is not supported", name);
    return make(Expr::Kind::kName, token.line, name);
  }

  ExprPtr parse_number() {
    const Token token = take();
    const char *begin = token.value.data(), *end = begin + token.value.size();
    int64_t integer = 0;
    double real = 0;
    const bool is_integer = token.kind == Kind::kInteger;
    const auto [stop, error] =
        is_integer ? std::from_chars(begin, end, integer) : std::from_chars(begin, end, real);
    if (error != std::errc() || stop != end) unsupported("the number {} is out of range", token.value);
    return constant(token.line, is_integer ? Value::integer(integer) : Value::real(real));
  }

  // One operand, or a tuple if a comma follows. allow_empty: inside of parentheses.
  ExprPtr parse_tuple(Level operand, bool allow_empty) {
    const int line = current().line;
    const auto at_end = [&] {
      return at_operator(")") || current().kind == Kind::kOutputEnd || current().kind == Kind::kBlockEnd;
    };
    if (at_end()) {
      if (!allow_empty) fail("expected an expression, found {}", describe(current()));
      return make(Expr::Kind::kTuple, line);
    }
    ExprPtr first = (this->*operand)();
    if (!at_operator(",")) return first;
    ExprPtr tuple = make(Expr::Kind::kTuple, line, {}, std::move(first));
    while (skip_operator(",") && !at_end()) add(*tuple, (this->*operand)());
    return tuple;
  }

  ExprPtr parse_list(int line) {
    ExprPtr list = make(Expr::Kind::kList, line);
    while (!at_operator("]")) {
      if (!list->children.empty()) expect_operator(",");
      if (!at_operator("]")) add(*list, parse_expression());
    }
    take();
    return list;
  }

  ExprPtr parse_dict(int line) {
    ExprPtr dict = make(Expr::Kind::kDict, line);
    while (!at_operator("}")) {
      if (!dict->children.empty()) expect_operator(",");
      if (at_operator("}")) break;
      add(*dict, parse_expression());
      expect_operator(":");
      add(*dict, parse_expression());
    }
    take();
    return dict;
  }

  ExprPtr parse_postfix(ExprPtr expr) {
    for (;;) {
      const int line = current().line;
      if (skip_operator("."))
        expr = parse_attribute(std::move(expr), line);
      else if (skip_operator("["))
        expr = parse_subscript(std::move(expr), line);
      else if (at_operator("("))
        expr = parse_arguments(make(Expr::Kind::kCall, line, {}, std::move(expr)));
      else
        return expr;
    }
  }

  ExprPtr parse_attribute(ExprPtr object, int line) {
    if (current().kind == Kind::kInteger)
      return make(Expr::Kind::kItem, line, {}, std::move(object), parse_number());
    std::string name = expect_name();
    return make(Expr::Kind::kAttribute, line, std::move(name), std::move(object));
  }

  ExprPtr parse_subscript(ExprPtr object, int line) {
    const auto part = [&] { return at_operator(":") || at_operator("]") ? nullptr : parse_expression(); };
    ExprPtr start = part();
    if (!at_operator(":")) {
      if (!start) fail("expected an expression, found ']'");
      if (at_operator(",")) unsupported("a subscript of several values is not supported");
      expect_operator("]");
      return make(Expr::Kind::kItem, line, {}, std::move(object), std::move(start));
    }
    take();
    ExprPtr stop = part();
    ExprPtr step = skip_operator(":") ? part() : nullptr;
    expect_operator("]");
    return make(Expr::Kind::kSlice, line, {}, std::move(object), std::move(start), std::move(stop),
                std::move(step));
  }

  // Appends what stands between ( and ) to the children of a call, filter or test.
  ExprPtr parse_arguments(ExprPtr call) {
    expect_operator("(");
    bool first = true;
    while (!at_operator(")")) {
      if (!std::exchange(first, false)) expect_operator(",");
      if (at_operator(")")) break;
      if (at_operator("*") || at_operator("**"))
        unsupported("'{}' in a call is not supported", current().value);
      if (current().kind == Kind::kName && is(look_ahead(), Kind::kOperator, "=")) {
        call->names.push_back(take().value);
        take();
      } else if (!call->names.empty()) {
        fail("a positional argument follows a keyword argument");
      }
      add(*call, parse_expression());
    }
    take();
    return call;
  }

  ExprPtr parse_filters(ExprPtr expr) {
    for (;;) {
      const int line = current().line;
      if (skip_operator("|"))
        expr = parse_filter(std::move(expr));
      else if (skip_name("is"))
        expr = parse_test(std::move(expr));
      else if (at_operator("("))
        expr = parse_arguments(make(Expr::Kind::kCall, line, {}, std::move(expr)));
      else
        return expr;
    }
  }

  ExprPtr parse_filter(ExprPtr input) {
    const int line = current().line;
    std::string name = expect_name();
    if (!find_filter(name)) unsupported("the filter '{}' is not supported", name);
    ExprPtr filter = make(Expr::Kind::kFilter, line, std::move(name), std::move(input));
    return at_operator("(") ? parse_arguments(std::move(filter)) : std::move(filter);
  }

  ExprPtr parse_test(ExprPtr subject) {
    const int line = current().line;
    const bool negated = skip_name("not");
    std::string name = expect_name();
    if (!find_test(name)) unsupported("the test '{}' is not supported", name);
    ExprPtr test = make(Expr::Kind::kTest, line, std::move(name), std::move(subject));
    if (at_operator("("))
      test = parse_arguments(std::move(test));
    else if (at_test_argument())
      add(*test, parse_postfix(parse_primary()));
    return negated ? make(Expr::Kind::kNot, line, {}, std::move(test)) : std::move(test);
  }

  bool at_test_argument() const {
    const Token& token = current();
    if (token.kind == Kind::kName)
      return token.value != "else" && token.value != "or" && token.value != "and";
    return token.kind == Kind::kString || token.kind == Kind::kInteger || token.kind == Kind::kFloat ||
           at_operator("[") || at_operator("{");
  }

  // --- Statements

  // Up to one of the tags in `ends`, whose name is taken and returned in `end`; up to the template's end if
  // none.
  Body parse_body(std::initializer_list<std::string_view> ends, std::string& end) {
    const Nested nested(depth_);
    Body body;
    for (;;) {
      const Token token = take();
      if (token.kind == Kind::kText) {
        body.push_back(statement(Stmt::Kind::kText, token.line));
        body.back()->text = token.value;
      } else if (token.kind == Kind::kOutputBegin) {
        body.push_back(statement(Stmt::Kind::kOutput, token.line));
        body.back()->expr = parse_tuple(&Parser::parse_expression, false);
        expect(Kind::kOutputEnd, "}}");
      } else if (token.kind == Kind::kBlockBegin) {
        const std::string name = expect_name();
        if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
          end = name;
          return body;
        }
        body.push_back(parse_statement(name, token.line));
        expect(Kind::kBlockEnd, "%}");
      } else {
        if (ends.size() > 0) fail("the template ends where {{% {} %}} is missing", *(ends.end() - 1));
        return body;
      }
    }
  }

  static std::unique_ptr<Stmt> statement(Stmt::Kind kind, int line) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = line;
    return stmt;
  }

  // The rest of an opening tag, the body and the name of its end tag.
  Body parse_block(std::string_view end) {
    expect(Kind::kBlockEnd, "%}");
    std::string found;
    return parse_body({end}, found);
  }

  std::unique_ptr<Stmt> parse_statement(const std::string& name, int line) {
    if (name == "if") return parse_if(line);
    if (name == "for") return parse_for(line);
    if (name == "set") return parse_set(line);
    if (name == "macro") return parse_macro(line);
    if (name == "call") return parse_call_block(line);
    if (name == "with") return parse_with(line);
    if (name == "generation") {
      auto stmt = statement(Stmt::Kind::kScope, line);
      const int loops = std::exchange(loops_, 0);
      stmt->body = parse_block("endgeneration");
      loops_ = loops;
      return stmt;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail("{{% {} %}} stands in no loop", name);
      return statement(name == "break" ? Stmt::Kind::kBreak : Stmt::Kind::kContinue, line);
    }
    if (name.starts_with("end") || name == "else" || name == "elif") fail("{{% {} %}} closes nothing", name);
    unsupported("the tag {{% {} %}} is not supported", name);
  }

  std::unique_ptr<Stmt> parse_if(int line) {
    auto stmt = statement(Stmt::Kind::kIf, line);
    std::string end = "elif";
    while (end == "elif") {
      ExprPtr condition = parse_tuple(&Parser::parse_or, false);
      expect(Kind::kBlockEnd, "%}");
      Body body = parse_body({"elif", "else", "endif"}, end);
      stmt->branches.emplace_back(std::move(condition), std::move(body));
    }
    if (end == "else") stmt->otherwise = parse_block("endif");
    return stmt;
  }

  std::unique_ptr<Stmt> parse_for(int line) {
    auto stmt = statement(Stmt::Kind::kFor, line);
    stmt->target = parse_target_tuple();
    if (!skip_name("in")) fail("expected 'in', found {}", describe(current()));
    stmt->expr = parse_tuple(&Parser::parse_or, false);
    if (skip_name("if")) stmt->condition = parse_expression();
    if (at_name("recursive")) unsupported("a recursive loop is not supported");
    expect(Kind::kBlockEnd, "%}");
    std::string end;
    ++loops_;
    stmt->body = parse_body({"else", "endfor"}, end);
    --loops_;
    if (end == "else") stmt->otherwise = parse_block("endfor");
    return stmt;
  }

  std::unique_ptr<Stmt> parse_set(int line) {
    auto stmt = statement(Stmt::Kind::kSet, line);
    if (is(look_ahead(), Kind::kOperator, ".")) {
      stmt->target.name = expect_name();
      take();
      stmt->target.attribute = expect_name();
    } else {
      stmt->target = parse_target_tuple();
    }
    if (skip_operator("=")) {
      stmt->expr = parse_tuple(&Parser::parse_expression, false);
      return stmt;
    }
    stmt->kind = Stmt::Kind::kSetBlock;
    if (at_operator("|")) stmt->expr = parse_filters(make(Expr::Kind::kName, line, kCapturedName));
    stmt->body = parse_block("endset");
    return stmt;
  }

  Target parse_target_tuple() {
    Target first = parse_target();
    if (!at_operator(",")) return first;
    Target tuple;
    tuple.items.push_back(std::move(first));
    while (skip_operator(",") && (current().kind == Kind::kName || at_operator("(")) && !at_name("in"))
      tuple.items.push_back(parse_target());
    return tuple;
  }

  Target parse_target() {
    const Nested nested(depth_);
    Target target;
    if (skip_operator("(")) {
      target = parse_target_tuple();
      expect_operator(")");
    } else {
      target.name = parse_target_name();
    }
    return target;
  }

  std::string parse_target_name() {
    std::string name = expect_name();
    for (const char* constant : {"true", "false", "none", "True", "False", "None"})
      if (name == constant) fail("cannot assign to '{}'", name);
    return name;
  }

  std::unique_ptr<Stmt> parse_with(int line) {
    auto stmt = statement(Stmt::Kind::kWith, line);
    while (current().kind != Kind::kBlockEnd) {
      if (!stmt->with_targets.empty()) expect_operator(",");
      stmt->with_targets.push_back(parse_target());
      expect_operator("=");
      stmt->with_values.push_back(parse_expression());
    }
    stmt->body = parse_block("endwith");
    return stmt;
  }

  std::unique_ptr<Stmt> parse_macro(int line) {
    auto stmt = statement(Stmt::Kind::kMacro, line);
    stmt->macro = std::make_unique<Macro>();
    stmt->macro->name = parse_target_name();
    parse_parameters(*stmt->macro);
    parse_macro_body(*stmt->macro, "endmacro");
    return stmt;
  }

  std::unique_ptr<Stmt> parse_call_block(int line) {
    auto stmt = statement(Stmt::Kind::kCallBlock, line);
    stmt->macro = std::make_unique<Macro>();
    stmt->macro->name = "caller";
    if (at_operator("(")) parse_parameters(*stmt->macro);
    stmt->expr = parse_expression();
    if (stmt->expr->kind != Expr::Kind::kCall) fail("{{% call %}} needs a call");
    parse_macro_body(*stmt->macro, "endcall");
    // A caller used in the block is that of the macro around it.
    if (stmt->macro->uses_caller && !macros_.empty()) macros_.back()->uses_caller = true;
    return stmt;
  }

  void parse_parameters(Macro& macro) {
    expect_operator("(");
    while (!at_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      Parameter parameter{.name = parse_target_name(), .fallback = nullptr};
      if (parameter.name == "caller") unsupported("a macro parameter named 'caller' is not supported");
      if (skip_operator("="))
        parameter.fallback = parse_expression();
      else if (!macro.parameters.empty() && macro.parameters.back().fallback)
        fail("the parameter '{}' without a default follows one with a default", parameter.name);
      macro.parameters.push_back(std::move(parameter));
    }
    take();
  }

  void parse_macro_body(Macro& macro, std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    macros_.push_back(&macro);
    macro.body = parse_block(end);
    macros_.pop_back();
    loops_ = loops;
  }

  std::vector<Token> tokens_;
  size_t next_ = 0;
  int depth_ = 0;
  int loops_ = 0;               // loops around this place, inside of the innermost macro
  std::vector<Macro*> macros_;  // macros around this place
};

}  // namespace

Body parse_template(std::string_view source) { return Parser(source).run(); }

}  // namespace latent::text::jinja
