// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/lexer.h"

#include <algorithm>
#include <array>

#include "text/jinja/value.h"
#include "text/utf8.h"

namespace latent::text::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_name_char(char c) {
  return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// "\r\n" and "\r" become "\n"; one newline at the end goes.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    out += source[i] == '\r' ? '\n' : source[i];
    if (source.substr(i, 2) == "\r\n") ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Python's escapes in string literals. An unknown escape keeps its backslash.
class Unescaper {
 public:
  explicit Unescaper(std::string_view raw) : raw_(raw) {}

  std::string run() {
    while (i_ < raw_.size()) {
      if (raw_[i_] != '\\') {
        out_ += raw_[i_++];
        continue;
      }
      escape(raw_[i_ + 1]);
    }
    return std::move(out_);
  }

 private:
  void escape(char c) {
    constexpr std::string_view kFrom = "\\'\"abfnrtv", kTo = "\\'\"\a\b\f\n\r\t\v";
    const size_t simple = kFrom.find(c);
    if (simple != std::string_view::npos) {
      out_ += kTo[simple];
      i_ += 2;
    } else if (c == '\n') {
      i_ += 2;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      number(i_ + 2, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    } else if (c >= '0' && c <= '7') {
      size_t digits = 1;
      while (digits < 3 && i_ + 1 + digits < raw_.size() && raw_[i_ + 1 + digits] >= '0' &&
             raw_[i_ + 1 + digits] <= '7')
        ++digits;
      number(i_ + 1, digits, 8);
    } else if (c == 'N' || static_cast<unsigned char>(c) >= 0x80) {
      unsupported("the string escape '\\{}' is not supported", c == 'N' ? "N" : "non-ASCII");
    } else {
      out_ += raw_[i_++];
    }
  }

  void number(size_t begin, size_t digits, int base) {
    const std::string text(raw_.substr(begin, digits));
    if (text.size() != digits || (base == 16 && !std::all_of(text.begin(), text.end(), is_hex)))
      fail("a truncated string escape '{}'", raw_.substr(i_, 2));
    const unsigned long cp = std::stoul(text, nullptr, base);
    if (cp > 0x10FFFF || (cp >= 0xD800 && cp < 0xE000)) fail("the string escape U+{:X} is no character", cp);
    append_utf8(out_, static_cast<char32_t>(cp));
    i_ = begin + digits;
  }

  std::string_view raw_;
  size_t i_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalize_newlines(source)) {}

  std::vector<Token> run() {
    try {
      while (position_ < source_.size()) read_text_and_tag();
    } catch (TemplateError& error) {
      if (error.line == 0) error.line = line_;
      throw;
    }
    add(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(position_); }
  bool at(std::string_view text) const { return rest().starts_with(text); }
  void add(Token::Kind kind, std::string value) { tokens_.push_back({kind, line_, std::move(value)}); }

  void advance(size_t bytes) {
    const std::string_view eaten = rest().substr(0, bytes);
    line_ += static_cast<int>(std::count(eaten.begin(), eaten.end(), '\n'));
    position_ += eaten.size();
  }

  bool skip(std::string_view text) {
    const bool found = at(text);
    if (found) advance(text.size());
    return found;
  }

  void skip_space() { advance(stripped_range(rest(), nullptr, true, false).begin); }

  size_t find_tag() const {
    for (size_t tag = source_.find('{', position_); tag != std::string::npos;
         tag = source_.find('{', tag + 1))
      if (tag + 1 < source_.size() &&
          std::string_view("{%#").find(source_[tag + 1]) != std::string_view::npos)
        return tag;
    return std::string::npos;
  }

  void read_text_and_tag() {
    const size_t tag = find_tag();
    if (tag == std::string::npos) {
      add(Token::Kind::kText, std::string(rest()));
      return advance(rest().size());
    }
    const char type = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    const std::string_view text = trim_before_tag(rest().substr(0, tag - position_), type, sign);
    if (!text.empty()) add(Token::Kind::kText, std::string(text));
    advance(tag - position_ + 2 + (sign == '-' || sign == '+'));
    if (type == '#')
      read_comment();
    else
      read_tag(type == '{');
  }

  // The text before a tag: stripped by "{%-", else (lstrip_blocks) freed of the white space that starts the
  // tag's line, if nothing else stands there.
  std::string_view trim_before_tag(std::string_view text, char type, char sign) const {
    if (sign == '-') return text.substr(0, stripped_range(text, nullptr, false, true).end);
    if (sign == '+' || type == '{') return text;
    const size_t newline = text.rfind('\n');
    const bool starts_line =
        newline != std::string_view::npos || position_ == 0 || source_[position_ - 1] == '\n';
    const size_t line = newline == std::string_view::npos ? 0 : newline + 1;
    const ByteRange rest_of_line = stripped_range(text.substr(line), nullptr, true, false);
    return starts_line && rest_of_line.begin == rest_of_line.end ? text.substr(0, line) : text;
  }

  void read_comment() {
    const size_t end = rest().find("#}");
    if (end == std::string_view::npos) fail("a comment is not closed");
    const char sign = end > 0 ? rest()[end - 1] : ' ';
    advance(end + 2);
    after_block(sign);
  }

  // White space after "-%}", or (trim_blocks) one newline after "%}".
  void after_block(char sign) {
    if (sign == '-')
      skip_space();
    else if (sign != '+')
      skip("\n");
  }

  void read_tag(bool output) {
    add(output ? Token::Kind::kOutputBegin : Token::Kind::kBlockBegin, "");
    std::string brackets;
    for (;;) {
      skip_space();
      if (rest().empty()) fail("a tag is not closed");
      if (brackets.empty() && read_tag_end(output)) return;
      read_token(brackets);
    }
  }

  bool read_tag_end(bool output) {
    const std::string_view end = output ? "}}" : "%}";
    const char sign = at("-") || (!output && at("+")) ? rest()[0] : ' ';
    const size_t skipped = sign == ' ' ? 0 : 1;
    if (!rest().substr(skipped).starts_with(end)) return false;
    add(output ? Token::Kind::kOutputEnd : Token::Kind::kBlockEnd, "");
    advance(skipped + 2);
    if (!output)
      after_block(sign);
    else if (sign == '-')
      skip_space();
    return true;
  }

  void read_token(std::string& brackets) {
    const char c = rest()[0];
    if (c == '\'' || c == '"') return read_string(c);
    if (is_digit(c)) return read_number();
    if (is_name_char(c)) {
      size_t n = 1;
      while (n < rest().size() && is_name_char(rest()[n])) ++n;
      return take(Token::Kind::kName, n);
    }
    read_operator(brackets);
  }

  void take(Token::Kind kind, size_t bytes) {
    add(kind, std::string(rest().substr(0, bytes)));
    advance(bytes);
  }

  void read_string(char quote) {
    size_t n = 1;
    while (n < rest().size() && rest()[n] != quote) n += rest()[n] == '\\' ? 2 : 1;
    if (n >= rest().size()) fail("a string is not closed");
    add(Token::Kind::kString, Unescaper(rest().substr(1, n - 1)).run());
    advance(n + 1);
  }

  size_t digits_at(size_t n) const {
    while (n < rest().size() && (is_digit(rest()[n]) || (rest()[n] == '_' && digit_at(n + 1)))) ++n;
    return n;
  }

  bool digit_at(size_t n) const { return n < rest().size() && is_digit(rest()[n]); }

  void read_number() {
    size_t n = digits_at(0);
    const size_t integer = n;
    const bool subscript = position_ > 0 && source_[position_ - 1] == '.';  // a.0.1 holds no float
    if (!subscript && rest().substr(n).starts_with('.') && digit_at(n + 1)) n = digits_at(n + 1);
    if (!subscript && n < rest().size() && (rest()[n] == 'e' || rest()[n] == 'E')) {
      const size_t sign = n + 1 < rest().size() && (rest()[n + 1] == '+' || rest()[n + 1] == '-') ? 1 : 0;
      if (digit_at(n + 1 + sign)) n = digits_at(n + 1 + sign);
    }
    if (n < rest().size() && is_name_char(rest()[n])) fail("'{}' is no number", rest().substr(0, n + 1));
    std::string value(rest().substr(0, n));
    std::erase(value, '_');
    if (n == integer && value.size() > 1 && value[0] == '0') fail("'{}' is no number", value);
    add(n == integer ? Token::Kind::kInteger : Token::Kind::kFloat, std::move(value));
    advance(n);
  }

  void read_operator(std::string& brackets) {
    constexpr std::array<std::string_view, 6> kLong = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kShort = "+-/*%~[](){}><=.:|,", kOpen = "([{", kClose = ")]}";
    const auto found = std::find_if(kLong.begin(), kLong.end(), [&](std::string_view o) { return at(o); });
    if (found != kLong.end()) return take(Token::Kind::kOperator, 2);
    const char c = rest()[0];
    if (kShort.find(c) == std::string_view::npos)
      fail("unexpected character '{}'", rest().substr(0, code_point_bytes(c)));
    if (const size_t open = kOpen.find(c); open != std::string_view::npos) brackets += kClose[open];
    if (kClose.find(c) != std::string_view::npos) {
      if (brackets.empty() || brackets.back() != c) fail("unexpected '{}'", c);
      brackets.pop_back();
    }
    take(Token::Kind::kOperator, 1);
  }

  std::string source_;
  size_t position_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source) { return Lexer(source).run(); }

}  // namespace latent::text::jinja
