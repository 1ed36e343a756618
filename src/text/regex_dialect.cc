// SPDX-License-Identifier: Apache-2.0
// translate_pattern: from Oniguruma's Ruby syntax (and the part of Rust's that tiktoken patterns use) to
// PCRE2. One pass over the pattern, one function a construct.
#include <algorithm>
#include <array>

#include "text/regex.h"
#include "text/utf8.h"

namespace latent::text {
namespace {

// Items of a character class, without the brackets. The odd Latin-1 digits and fractions are in Oniguruma's
// \w though their categories are not.
constexpr std::string_view kWhiteSpace =
    R"(\t\n\x{b}\f\r\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}\x{bd}\x{be})";

// Every two-letter general category; together they hold all code points, each once.
constexpr std::array<std::string_view, 30> kCategories = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

bool is_category(std::string_view name) {
  return std::any_of(kCategories.begin(), kCategories.end(),
                     [&](std::string_view c) { return c == name || c.substr(0, 1) == name; });
}

bool is_alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

// One class being read: what PCRE2 will see, and its categories if it holds nothing else.
struct ClassItems {
  std::string text;
  std::vector<std::string_view> categories;
  bool only_categories = true;
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (!at_end() && !error_) step();
    if (error_) return *error_;
    return std::move(out_);
  }

 private:
  bool at_end() const { return at_ >= pattern_.size(); }
  char peek(size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  bool starts_with(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  void refuse(std::string_view what) {
    if (!error_)
      error_ = make_error(ErrorCode::kUnsupported, "regex '{}': {} at byte {} is not supported", pattern_,
                          what, at_);
    at_ = pattern_.size();
  }

  void step() {
    switch (peek()) {
      case '\\':
        return escape();
      case '[':
        return character_class();
      case '(':
        return group();
      case '{':
        return interval();
      default:
        out_.push_back(pattern_[at_++]);
    }
  }

  void escape() {
    const char c = peek(1);
    if (c == 's' || c == 'w') return class_escape(c == 's' ? kWhiteSpace : kWord, false);
    if (c == 'S' || c == 'W') return class_escape(c == 'S' ? kWhiteSpace : kWord, true);
    if (c == 'A' || c == 'z' || c == 'Z') {
      out_.append(pattern_.substr(at_, 2));
      at_ += 2;
      return;
    }
    out_ += common_escape().text;
  }

  void class_escape(std::string_view items, bool negated) {
    out_.append(negated ? "[^" : "[").append(items).append("]");
    at_ += 2;
  }

  struct Escape {
    std::string text;
    std::string_view category;  // of \p{category}, else empty
  };

  // An escape that is the same inside a class and outside: at_ stands on the backslash.
  Escape common_escape() {
    const char c = peek(1);
    if (c == 'p' || c == 'P') return property();
    if (c == 'x' || c == 'u') return {code_point_escape(), {}};
    if (c == '\0' || (is_alnum(c) && std::string_view("dDrntfv").find(c) == std::string_view::npos)) {
      refuse(fmt::format("escape '\\{}'", c));
      return {};
    }
    at_ += 2;
    if (c == 'v') return {R"(\x{b})", {}};
    if (static_cast<uint8_t>(c) >= 0x80) return {std::string(1, c), {}};  // an escaped non-ASCII literal
    return {std::string{'\\', c}, {}};
  }

  Escape property() {
    const bool negated = peek(1) == 'P';
    const size_t close = pattern_.find('}', at_);
    if (peek(2) != '{' || close == std::string_view::npos) {
      refuse("property without braces");
      return {};
    }
    const std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    if (name.empty() ||
        !std::all_of(name.begin(), name.end(), [](char c) { return is_alnum(c) || c == '_'; })) {
      refuse(fmt::format("property '{}'", name));
      return {};
    }
    at_ = close + 1;
    const bool category = is_category(name);
    const bool binary = name == "Alphabetic" || name == "Uppercase" || name == "Lowercase";
    return {fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', category || binary ? "" : "sc:", name),
            category && !negated ? name : std::string_view()};
  }

  // \xHH below 0x80, \x{H…} and \uHHHH.
  std::string code_point_escape() {
    const bool unicode = peek(1) == 'u';
    const bool braces = !unicode && peek(2) == '{';
    const size_t begin = at_ + (braces ? 3 : 2);
    const size_t end =
        braces ? std::min(pattern_.find('}', begin), pattern_.size()) : begin + (unicode ? 4 : 2);
    const std::string digits(pattern_.substr(std::min(begin, pattern_.size()), end - begin));
    const bool hex = !digits.empty() && digits.size() <= 6 &&
                     digits.find_first_not_of("0123456789abcdefABCDEF") == std::string::npos;
    if (!hex || end + (braces ? 1 : 0) > pattern_.size() ||
        (!braces && !unicode && (digits.size() != 2 || digits[0] > '7'))) {
      refuse("code point escape");
      return {};
    }
    at_ = end + (braces ? 1 : 0);
    return fmt::format("\\x{{{}}}", digits);
  }

  void group() {
    if (peek(1) == '*') return refuse("'(*'");
    for (const std::string_view opening : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"}) {
      if (take(opening)) {
        out_ += opening;
        return;
      }
    }
    if (peek(1) == '?') return refuse("group '(?" + std::string(1, peek(2)) + "'");
    out_.push_back(pattern_[at_++]);
  }

  // {n}, {n,}, {n,m}, {,m}; any other brace is a literal one.
  void interval() {
    size_t i = at_ + 1;
    const size_t low_begin = i;
    while (i < pattern_.size() && is_digit(pattern_[i])) ++i;
    const std::string_view low = pattern_.substr(low_begin, i - low_begin);
    std::string_view high = low;
    const bool comma = i < pattern_.size() && pattern_[i] == ',';
    if (comma) {
      const size_t high_begin = ++i;
      while (i < pattern_.size() && is_digit(pattern_[i])) ++i;
      high = pattern_.substr(high_begin, i - high_begin);
    }
    if (i >= pattern_.size() || pattern_[i] != '}' || (low.empty() && high.empty())) {
      out_ += "\\{";
      ++at_;
      return;
    }
    at_ = i + 1;
    if (peek() == '+' || (peek() == '?' && !comma)) return refuse("quantifier after an interval");
    out_ += comma ? fmt::format("{{{},{}}}", low.empty() ? "0" : low, high) : fmt::format("{{{}}}", low);
  }

  void character_class() {
    ++at_;
    const bool negated = take("^");
    if (peek() == ']') return refuse("class that begins with ']'");
    ClassItems items = class_items();
    if (error_) return;
    if (take("&&")) return intersection(items, negated);
    if (!take("]")) return refuse("class without an end");
    out_.append(negated ? "[^" : "[").append(items.text).append("]");
  }

  // Up to the closing bracket or "&&", which is not taken.
  ClassItems class_items() {
    ClassItems items;
    while (!at_end() && peek() != ']' && !starts_with("&&")) class_item(items);
    return items;
  }

  void class_item(ClassItems& items) {
    if (peek() == '[') return refuse(peek(1) == ':' ? "POSIX bracket" : "nested class");
    if (peek() != '\\') {
      items.only_categories = false;
      items.text.push_back(pattern_[at_++]);
      return;
    }
    const char c = peek(1);
    if (c == 's' || c == 'S' || c == 'w') {
      items.only_categories = false;
      // PCRE2's \S is all but its white space, so without U+180E.
      items.text += c == 's' ? kWhiteSpace : c == 'w' ? kWord : std::string_view(R"(\S\x{180e})");
      at_ += 2;
      return;
    }
    const Escape escape = common_escape();
    items.only_categories &= !escape.category.empty();
    items.categories.push_back(escape.category);
    items.text += escape.text;
  }

  // [categories&&[^others]] is [^the other categories, others]. at_ stands after "&&".
  void intersection(const ClassItems& left, bool negated) {
    if (negated || !left.only_categories || left.categories.empty() || !take("[^"))
      return refuse("class intersection other than [\\p{category}…&&[^…]]");
    const ClassItems right = class_items();
    if (error_) return;
    if (right.text.empty() || !take("]]")) return refuse("class intersection without an end");
    out_ += "[^";
    for (const std::string_view category : kCategories) {
      const bool kept = std::any_of(left.categories.begin(), left.categories.end(), [&](std::string_view c) {
        return c == category || c == category.substr(0, 1);
      });
      if (!kept) out_ += fmt::format("\\p{{{}}}", category);
    }
    out_.append(right.text).append("]");
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  std::optional<Error> error_;
};

}  // namespace

Result<std::string> translate_pattern(std::string_view pattern) {
  if (!is_utf8(pattern)) return make_error(ErrorCode::kCorrupt, "a regex that is not UTF-8");
  if (pattern == R"(\s+$)") return fmt::format("(?<![{0}])[{0}]+$", kWhiteSpace);
  return Translator(pattern).run();
}

std::string escape_pattern(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = is_alnum(c) || static_cast<uint8_t>(c) >= 0x80;
    if (c == '\0' || (static_cast<uint8_t>(c) < 0x20)) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else {
      if (!plain) out.push_back('\\');
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace latent::text
