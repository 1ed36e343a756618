// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/json_value.h"

#include <nlohmann/json.hpp>

namespace latent::text::jinja {
namespace {

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return add(Value::none(Origin::kData)); }
  bool boolean(bool b) override { return add(Value::boolean(b, Origin::kData)); }
  bool number_integer(int64_t i) override { return add(Value::integer(i, Origin::kData)); }
  bool number_unsigned(uint64_t u) override {
    if (u > INT64_MAX) fail("the integer {} does not fit 64 bits", u);
    return add(Value::integer(static_cast<int64_t>(u), Origin::kData));
  }
  bool number_float(double d, const std::string& text) override {
    if (text.find_first_of(".eE") == std::string::npos) fail("the integer {} does not fit 64 bits", text);
    return add(Value::real(d, Origin::kData));
  }
  bool string(std::string& s) override { return add(Value::string(std::move(s), Origin::kData)); }
  bool binary(binary_t&) override { fail("binary JSON"); }
  bool start_object(size_t) override { return open(true); }
  bool key(std::string& key) override {
    open_.back().key = Value::string(std::move(key), Origin::kData);
    return true;
  }
  bool end_object() override { return add(Value::dict(std::move(pop().dict))); }
  bool start_array(size_t) override { return open(false); }
  bool end_array() override { return add(Value::list(std::move(pop().items))); }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& error) override {
    const std::string_view what = error.what();
    fail("no valid JSON: {}",
         what.substr(what.find("] ") == std::string_view::npos ? 0 : what.find("] ") + 2));
  }

  Value result;

 private:
  struct Open {
    bool is_object;
    Value key;
    Dict dict;
    std::vector<Value> items;
  };

  bool open(bool is_object) {
    if (open_.size() >= static_cast<size_t>(kMaxNesting))
      fail("JSON nested deeper than {} levels", kMaxNesting);
    open_.push_back({.is_object = is_object, .key = {}, .dict = {}, .items = {}});
    return true;
  }

  Open pop() {
    Open last = std::move(open_.back());
    open_.pop_back();
    return last;
  }

  bool add(Value value) {
    if (open_.empty())
      result = std::move(value);
    else if (open_.back().is_object)
      open_.back().dict.set(std::move(open_.back().key), std::move(value));
    else
      open_.back().items.push_back(std::move(value));
    return true;
  }

  std::vector<Open> open_;
};

}  // namespace

Value parse_json(std::string_view json) {
  Builder builder;
  nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  return std::move(builder.result);
}

}  // namespace latent::text::jinja
