// SPDX-License-Identifier: Apache-2.0
// Values of the interpreter: Python's None, bool, int, float, str, list, tuple and dict as far as templates
// see them. Immutable and shared (the sandbox of `transformers` allows no mutation), so cheap to copy; the
// exception are namespaces, which the interpreter owns.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/jinja/tagged_text.h"

namespace latent::text::jinja {

// Thrown inside this folder only; Template turns it into an Error. line 0: not known yet.
struct TemplateError {
  ErrorCode code;
  std::string message;
  int line = 0;
};

template <class... Args>
[[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError{ErrorCode::kInvalidArgument, fmt::format(format, std::forward<Args>(args)...)};
}
template <class... Args>
[[noreturn]] void unsupported(fmt::format_string<Args...> format, Args&&... args) {
  throw TemplateError{ErrorCode::kUnsupported, fmt::format(format, std::forward<Args>(args)...)};
}

// What a render may still spend: a byte made or searched costs 1, larger things multiples. Bounds time and
// memory.
class Budget {
 public:
  explicit Budget(size_t units) : left_(units) {}
  void charge(size_t units) {
    if (units > left_)
      throw TemplateError{ErrorCode::kExhausted, "the template does more work than a render may cost"};
    left_ -= units;
  }

 private:
  size_t left_;
};

inline constexpr size_t kNodeCost = 16;     // one step of the interpreter
inline constexpr size_t kElementCost = 64;  // one element of a list or dict, one scope
inline constexpr int kMaxNesting = 128;     // of lists and dicts in one another

class Value;
struct Sequence;
struct Dict;
struct Callable;

// A thing with attributes and identity: a namespace or a loop.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::optional<Value> attribute(std::string_view name) const = 0;
};

class Value {
 public:
  // In the order of the variant below.
  enum class Kind { kUndefined, kNone, kBool, kInt, kFloat, kString, kSequence, kDict, kObject, kCallable };

  Value() = default;  // undefined
  static Value undefined(std::string hint);
  static Value none(Origin origin = Origin::kTemplate) { return Value(std::monostate(), origin); }
  static Value boolean(bool b, Origin origin = Origin::kTemplate) { return Value(b, origin); }
  static Value integer(int64_t i, Origin origin = Origin::kTemplate) { return Value(i, origin); }
  static Value real(double d, Origin origin = Origin::kTemplate) { return Value(d, origin); }
  static Value string(TaggedText text);
  static Value string(std::string bytes, Origin origin = Origin::kTemplate);
  static Value sequence(Sequence sequence);  // throws beyond kMaxNesting, as dict() does
  static Value list(std::vector<Value> items);
  static Value tuple(std::vector<Value> items);
  static Value dict(Dict dict);
  static Value object(Object* object) { return Value(object, Origin::kTemplate); }  // not owned
  static Value callable(Callable callable);                                         // throws likewise

  Kind kind() const { return static_cast<Kind>(storage_.index()); }
  bool is(Kind kind) const { return this->kind() == kind; }
  bool is_undefined() const { return is(Kind::kUndefined); }
  bool is_none() const { return is(Kind::kNone); }
  bool is_string() const { return is(Kind::kString); }
  bool is_number() const { return is(Kind::kBool) || is(Kind::kInt) || is(Kind::kFloat); }
  bool is_integral() const { return is(Kind::kBool) || is(Kind::kInt); }

  // Each only if the kind fits.
  std::string hint() const;  // what an undefined value is, for errors
  int64_t as_int() const;    // bool or int
  double as_real() const;    // any number
  const TaggedText& as_text() const { return *std::get<std::shared_ptr<const TaggedText>>(storage_); }
  const std::string& as_bytes() const { return as_text().bytes(); }
  const Sequence& as_sequence() const { return *std::get<std::shared_ptr<const Sequence>>(storage_); }
  const Dict& as_dict() const { return *std::get<std::shared_ptr<const Dict>>(storage_); }
  Object* as_object() const { return std::get<Object*>(storage_); }
  const Callable& as_callable() const { return *std::get<std::shared_ptr<const Callable>>(storage_); }

  // Who wrote a number, a bool or None.
  Origin origin() const { return origin_; }
  // Marked by the filter 'safe'.
  bool is_markup() const { return markup_; }
  Value as_markup() const;
  bool truthy() const;
  bool is_hashable() const;       // whether Python takes it for a key
  const char* type_name() const;  // Python's
  int nesting() const;            // 0 for what holds nothing

 private:
  struct Undefined {
    std::shared_ptr<const std::string> hint;
  };
  using Storage = std::variant<Undefined, std::monostate, bool, int64_t, double,
                               std::shared_ptr<const TaggedText>, std::shared_ptr<const Sequence>,
                               std::shared_ptr<const Dict>, Object*, std::shared_ptr<const Callable>>;
  template <class T>
  Value(T held, Origin origin) : storage_(std::in_place_type<T>, std::move(held)), origin_(origin) {}

  Storage storage_;
  Origin origin_ = Origin::kTemplate;
  bool markup_ = false;
};

struct Sequence {
  enum class Form { kList, kTuple, kRange, kDictView, kIterator };
  Form form = Form::kList;
  std::vector<Value> items;
  std::string view;           // "dict_items" and its like, for kDictView
  int nesting = 1;            // set by Value::sequence
  mutable bool read = false;  // an iterator can be read once
};

// Insertion-ordered. Keys are strings, numbers, bools or None; 1, 1.0 and true are one key, as in Python.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  int nesting = 1;  // set by Value::dict

  void set(Value key, Value value);  // throws on a key of another kind
  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;

 private:
  std::unordered_map<std::string, size_t> index_;
};

class Interpreter;

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

struct Callable {
  std::string name;
  std::function<Value(Interpreter&, const Arguments&)> call;
  int nesting = 0;  // of the object it is bound to
};

}  // namespace latent::text::jinja
